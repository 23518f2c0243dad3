package redisstore

import (
	"bytes"
	"net"
)

// The client says HELLO 2 where it is to speak RESP2, and goes on when it is refused. A
// proxy such as twemproxy ends the connection instead. So it is refused here.
const (
	hello   = "*2\r\n$5\r\nHELLO\r\n$1\r\n2\r\n"
	refusal = "-ERR unknown command 'HELLO'\r\n"
)

// silent is a connection that never sends HELLO.
type silent struct {
	net.Conn
	begun   bool
	awaits  bool   // AUTH, which is answered by one line, went out before HELLO
	pending []byte // to be read before what comes next
}

// Write takes HELLO out of the first that is sent, in which the whole handshake is.
func (s *silent) Write(b []byte) (int, error) {
	at := -1
	if !s.begun {
		s.begun, at = true, bytes.Index(b, []byte(hello))
	}
	switch {
	case at < 0:
		return s.Conn.Write(b)
	case at > 0:
		s.awaits = true
	default:
		s.pending = []byte(refusal)
	}
	rest := append(bytes.Clone(b[:at]), b[at+len(hello):]...)
	if len(rest) == 0 {
		return len(b), nil
	}
	n, err := s.Conn.Write(rest)
	if n == len(rest) {
		n = len(b)
	}
	return n, err
}

// Read puts the refusal where its answer would be.
func (s *silent) Read(b []byte) (int, error) {
	if len(s.pending) > 0 {
		n := copy(b, s.pending)
		s.pending = s.pending[n:]
		return n, nil
	}
	n, err := s.Conn.Read(b)
	if end := bytes.IndexByte(b[:n], '\n') + 1; s.awaits && end > 0 {
		s.awaits = false
		s.pending = append([]byte(refusal), b[end:n]...)
		return end, nil
	}
	return n, err
}
