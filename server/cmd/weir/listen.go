package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
)

// unixPrefix begins an address that is the path of a unix socket.
const unixPrefix = "unix:"

// listen opens a TCP address, or a unix socket where the address begins with "unix:". A
// port that another process has is an error: shared, a stale process would keep a part of
// the calls.
func listen(address string) (net.Listener, error) {
	path, unix := strings.CutPrefix(address, unixPrefix)
	switch {
	case address == "":
		return nil, errors.New("the address is empty: write HOST:PORT or :PORT")
	case !unix:
		return net.Listen("tcp", address)
	case path == "":
		return nil, errors.New("the path of the unix socket is empty: write unix:PATH")
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	return net.Listen("unix", path)
}

// removeStale removes a unix socket on which nobody listens any more: a process that was
// killed leaves it behind, and its successor could not start.
func removeStale(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there and is no socket: name another path, or remove it", path)
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		conn.Close()
		return fmt.Errorf("another process listens on %s", path)
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return os.Remove(path)
	}
	return err
}
