package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// redisServer is a server of this program's own.
type redisServer struct {
	addr    string
	version string
	process *exec.Cmd
}

// startRedis starts the server that WEIR_REDIS7 names, else the one in PATH, else the one
// that the tests installed. It ends with ctx.
func startRedis(ctx context.Context) (*redisServer, error) {
	path := os.Getenv("WEIR_REDIS7")
	if path == "" {
		path, _ = exec.LookPath("redis-server")
	}
	if path == "" {
		path = filepath.Join("..", ".tools", "servers", "redis7")
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.CommandContext(ctx, path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("no Redis to measure: %w: run make servers, or let WEIR_REDIS7 name one", err)
	}
	s := &redisServer{addr: addr, process: cmd}
	for range 500 {
		var info any
		if info, err = s.do("INFO", "server"); err == nil {
			_, rest, _ := strings.Cut(fmt.Sprint(info), "redis_version:")
			s.version, _, _ = strings.Cut(rest, "\r")
			return s, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, fmt.Errorf("%s does not answer on %s: %w", path, addr, err)
}

// freeAddr returns a loopback address that nobody listens on.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// cpu returns the CPU time of the server since it started.
func (s *redisServer) cpu() (time.Duration, error) { return cpuOf(s.process.Process.Pid) }

// do sends one command on a connection of its own.
func (s *redisServer) do(args ...string) (any, error) {
	c, err := dial(s.addr)
	if err != nil {
		return nil, err
	}
	defer c.close()
	return c.do(args...)
}

// info returns a number of INFO: info("memory", "used_memory:").
func (s *redisServer) info(section, field string) (int64, error) {
	reply, err := s.do("INFO", section)
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(fmt.Sprint(reply), field)
	if !found {
		return 0, nil // a command not called yet has no line
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	return strconv.ParseInt(rest[:end], 10, 64)
}

// capture returns the commands that do makes clients send, as the server sees them.
func (s *redisServer) capture(do func() error) ([][]string, error) {
	monitor, err := dial(s.addr)
	if err != nil {
		return nil, err
	}
	defer monitor.close()
	if _, err := monitor.do("MONITOR"); err != nil {
		return nil, err
	}
	if err := do(); err != nil {
		return nil, err
	}
	const end = "end of capture"
	if _, err := s.do("PING", end); err != nil {
		return nil, err
	}
	var commands [][]string
	for {
		line, err := monitor.read()
		if err != nil {
			return nil, err
		}
		source, rest, _ := strings.Cut(fmt.Sprint(line), "] ")
		args, err := unquote(rest)
		if err != nil {
			return nil, fmt.Errorf("MONITOR said %q: %w", line, err)
		}
		if args[len(args)-1] == end {
			return commands, nil
		}
		if !strings.HasSuffix(source, " lua") {
			commands = append(commands, args)
		}
	}
}

// unquote reads the arguments of a line of MONITOR.
func unquote(line string) ([]string, error) {
	var args []string
	for line != "" {
		quoted, err := strconv.QuotedPrefix(line)
		if err != nil {
			return nil, err
		}
		arg, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, err
		}
		args = append(args, arg)
		line = strings.TrimPrefix(line[len(quoted):], " ")
	}
	if len(args) == 0 {
		return nil, errors.New("no command")
	}
	return args, nil
}

// conn is a connection that speaks RESP2 and no more than is needed here.
type conn struct {
	net.Conn
	in *bufio.Reader
}

func dial(addr string) (*conn, error) {
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	return &conn{c, bufio.NewReaderSize(c, 64<<10)}, nil
}

func (c *conn) close() { c.Conn.Close() }

func (c *conn) do(args ...string) (any, error) {
	if _, err := c.Write(appendCommand(nil, args)); err != nil {
		return nil, err
	}
	return c.read()
}

// pipeline sends n commands at once and reads their replies; the first that is an error
// is returned.
func (c *conn) pipeline(commands []byte, n int) error {
	sent := make(chan error, 1)
	go func() { _, err := c.Write(commands); sent <- err }()
	var first error
	for range n {
		if _, err := c.read(); err != nil && first == nil {
			first = err
		}
	}
	return errors.Join(<-sent, first)
}

func appendCommand(b []byte, args []string) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

// read returns one reply: a string, an int64, nil or a []any.
func (c *conn) read() (any, error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 {
		return nil, fmt.Errorf("a reply %q", line)
	}
	kind, text := line[0], string(line[1:len(line)-2])
	switch kind {
	case '+':
		return text, nil
	case '-':
		return nil, errors.New(text)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || kind == ':' {
		return n, err
	}
	if n < 0 {
		return nil, nil
	}
	if kind == '$' {
		body := make([]byte, n+2)
		_, err := io.ReadFull(c.in, body)
		return string(body[:n]), err
	}
	values := make([]any, n)
	for i := range values {
		if values[i], err = c.read(); err != nil {
			return nil, err
		}
	}
	return values, nil
}
