//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// How long a pipe is is not known; how long a file behind it is, is.
func TestPreviewReadsAPipe(t *testing.T) {
	t.Parallel()
	lines := strings.SplitAfter(golden(t, "common.log"), "\n")
	for _, piped := range []int{len(lines), 15} {
		folder := t.TempDir()
		file, pipe := filepath.Join(folder, "access.log"), filepath.Join(folder, "pipe")
		if err := os.WriteFile(file, []byte(strings.Join(lines[piped:], "")), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		written := make(chan error, 1)
		go func() { written <- os.WriteFile(pipe, []byte(strings.Join(lines[:piped], "")), 0) }() // waits for a reader
		out, _, err := previewSite(t, pipe, file)
		if want := golden(t, "report.txt"); err != nil || out != want {
			t.Errorf("%d lines piped: got %v and\n%s\nwant\n%s", piped, err, out, want)
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
	}
}
