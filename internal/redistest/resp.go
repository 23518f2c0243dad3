package redistest

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// Error is an error reply, such as "NOSCRIPT No matching script.".
type Error string

// Error returns the reply as the server wrote it.
func (e Error) Error() string { return string(e) }

// replyTimeout bounds one command, so that a paused server fails a test and does not hang it.
const replyTimeout = 5 * time.Second

// conn speaks RESP2, which every version knows.
type conn struct {
	net    net.Conn
	reader *bufio.Reader
}

func dial(addr string, config *tls.Config) (*conn, error) {
	dialer := net.Dialer{Timeout: replyTimeout}
	c, err := dialer.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	if err := c.SetDeadline(time.Now().Add(replyTimeout)); err != nil {
		return nil, err
	}
	if config != nil {
		c = tls.Client(c, config)
	}
	return &conn{net: c, reader: bufio.NewReader(c)}, nil
}

func (c *conn) close() { _ = c.net.Close() }

func (c *conn) do(args []string) (any, error) {
	var request strings.Builder
	fmt.Fprintf(&request, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(c.net, request.String()); err != nil {
		return nil, err
	}
	reply, err := readReply(c.reader)
	if err != nil {
		return nil, err
	}
	if refused, ok := reply.(Error); ok {
		return nil, refused
	}
	return reply, nil
}

// readReply returns a string, an int64, nil, an Error, or a []any of these.
func readReply(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return nil, fmt.Errorf("the reply is an empty line")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return Error(rest), nil
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("cannot read the reply %q", line)
	}
	switch {
	case kind == ':':
		return n, nil
	case n < 0 && (kind == '$' || kind == '*'):
		return nil, nil
	case kind == '$':
		text := make([]byte, n+2)
		if _, err := io.ReadFull(r, text); err != nil {
			return nil, err
		}
		return string(text[:n]), nil
	case kind == '*':
		items := make([]any, n)
		for i := range items {
			if items[i], err = readReply(r); err != nil {
				return nil, err
			}
		}
		return items, nil
	}
	return nil, fmt.Errorf("cannot read the reply %q", line)
}

// infoField returns the value of one "field:value" line of an INFO reply, or "".
func infoField(info, field string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
