//go:build unix

package source

import (
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

func TestPipesWithoutAWriterHoldNobodyUp(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"config/a.yaml": "a", "config/b.yaml": "b"})
	pipe := filepath.Join(root, "config.pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := read(t, pipe), []string{"config.pipe:"}; !slices.Equal(got, want) {
		t.Errorf("named itself: got %q, want %q", got, want)
	}
	got := readWith(t, Options{AnyName: true, Beside: true}, filepath.Join(root, "config"))
	if want := []string{"a.yaml:a", "b.yaml:b", "config.pipe:"}; !slices.Equal(got, want) {
		t.Errorf("beside a directory: got %q, want %q", got, want)
	}
}
