package main

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// A server that ends waits for its connections to begin; nothing else ends those which
// never do, such as a port scanner's.
func TestAConnectionThatSaysNothingIsClosed(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	conn, err := net.Dial("tcp", s.grpc.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("it is still open")
	}
}
