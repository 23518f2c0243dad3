package main

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// socketDir is short: the path of a unix socket may have 104 bytes.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestGRPCAnswersOnAUnixSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "weir.sock")
	opts := localOptions(writeRules(t, shopRules))
	opts.grpc = "unix:" + path
	s, err := newServer(opts, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	runServer(t, s)
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v", err)
	}
	if _, err := listen("unix:" + path); err == nil || !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("a second listener: %v, want that another process listens", err)
	}
}

func TestASocketThatNobodyListensOnIsReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "weir.sock")
	killed, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	killed.SetUnlinkOnClose(false)
	killed.Close()
	l, err := listen("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket after Close: %v, want it gone", err)
	}
}

func TestAFileThatIsNoSocketStays(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "weir.sock")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen("unix:" + path); err == nil || !strings.Contains(err.Error(), "is no socket") {
		t.Errorf("listen: %v, want that it is no socket", err)
	}
	if data, err := os.ReadFile(path); string(data) != "precious" {
		t.Errorf("the file: %q, %v", data, err)
	}
}

func TestAddressesThatNameNothingAreRefused(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"":         "write HOST:PORT",
		"unix:":    "write unix:PATH",
		"nonsense": "missing port",
	} {
		if _, err := listen(address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("listen(%q): %v, want %q", address, err, want)
		}
	}
}
