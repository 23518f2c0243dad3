//go:build unix

package source

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Nobody writes to the pipes, so that to read one would take for ever.
func TestPipesThatAreFoundAreNotRead(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"beside/config/a.yaml": "a", "inside/config/a.yaml": "a"})
	for _, name := range []string{"beside/config.pipe", "inside/config/pipe.yaml"} {
		pipe := filepath.Join(root, name)
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Skip(err)
		}
		path := filepath.Join(root, strings.SplitN(name, "/", 2)[0], "config")
		_, err := New(Options{AnyName: true, Beside: true}, path).Read()
		if want := pipe + ": is not a regular file"; err == nil || err.Error() != want {
			t.Errorf("%s: got the error %v, want %s", name, err, want)
		}
	}
}
