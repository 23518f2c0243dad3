//go:build unix

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"weir.dev/weir/internal/redistest"
)

// TestMain lets this binary be the program: the arguments are then the program's.
func TestMain(m *testing.M) {
	if os.Getenv("WEIR_TEST_AS_PROGRAM") != "" {
		main()
		return
	}
	os.Exit(redistest.Run(m))
}

func TestSignalEndsACommandThatWaitsForAFile(t *testing.T) {
	t.Parallel()
	rules := writeRules(t, shopRules)
	for name, args := range map[string][]string{
		"check":   {"check"},
		"explain": {"explain", "--domain", "shop", "a=b", "--config"},
		"serve":   {"serve", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--debug", "127.0.0.1:0", "--config"},
		"preview": {"preview", "--config", rules, "--domain", "shop", "--as", "user={addr}"},
		"verify":  {"verify"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pipe := filepath.Join(t.TempDir(), "pipe")
			if err := syscall.Mkfifo(pipe, 0o600); err != nil {
				t.Fatal(err)
			}
			writer, err := os.OpenFile(pipe, os.O_RDWR|syscall.O_NONBLOCK, 0) // to write alone would want a reader first
			if err != nil {
				t.Fatal(err)
			}
			defer writer.Close()
			program := exec.CommandContext(t.Context(), os.Args[0], append(args, pipe)...)
			program.Env = append(os.Environ(), "WEIR_TEST_AS_PROGRAM=1")
			if err := program.Start(); err != nil {
				t.Fatal(err)
			}
			readFrom(t, writer)
			program.Process.Signal(syscall.SIGTERM)
			err = program.Wait()
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
				t.Errorf("ended with %v, want by the signal", err)
			}
		})
	}
}

// readFrom returns once somebody reads from a pipe: it writes twice what one holds.
func readFrom(t *testing.T, pipe *os.File) {
	t.Helper()
	pipe.SetWriteDeadline(time.Now().Add(30 * time.Second))
	if _, err := pipe.Write(bytes.Repeat([]byte("\n"), 128<<10)); err != nil {
		t.Fatalf("nobody reads from the pipe: %v", err)
	}
}
