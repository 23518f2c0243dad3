package testserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// folder is what Dir returns.
var folder string

// Run is the TestMain of a package that uses Program or Dir: it runs the tests, then removes their files. Use it as
// os.Exit(testserver.Run(m)).
func Run(m *testing.M) int {
	var err error
	if folder, err = os.MkdirTemp("", "weirtest"); err != nil {
		fmt.Fprintln(os.Stderr, "testserver:", err)
		return 1
	}
	defer os.RemoveAll(folder)
	return m.Run()
}

// Dir returns a folder for what the tests of a package have in common. Without Run it is "".
func Dir() string { return folder }

// Program builds the service's program, once for all tests of a package, and returns its path.
var Program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(folder, "weir")
	out, err := exec.Command("go", "build", "-o", path, "weir.dev/weir/server/cmd/weir").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})
