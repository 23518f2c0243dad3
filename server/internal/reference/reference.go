// Package reference finds the files that tests compare with and that are not of this
// repository: what the original was configured with and answered, and public logs. They lie
// in the folder "shared" beside the repository. Where they are absent a test is skipped, and
// says so.
package reference

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Folder returns the folder of that name, such as "rls/golden".
func Folder(t *testing.T, name string) string {
	t.Helper()
	at, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(at, "go.work")); err == nil {
			break
		}
		if at == filepath.Dir(at) {
			t.Skip("no go.work above this package, so no folder of reference files beside it")
		}
		at = filepath.Dir(at)
	}
	folder := filepath.Join(filepath.Dir(at), "shared", filepath.FromSlash(name))
	if _, err := os.Stat(folder); err != nil {
		t.Skip("the reference files are absent: ", err)
	}
	return folder
}

// File is a file of the original's configuration.
type File struct {
	Name string
	Data []byte
}

// Configurations returns the original's configurations, by the name of their folder with
// "_" between its parts.
func Configurations(t *testing.T) map[string][]File {
	t.Helper()
	root := Folder(t, "rls/configs")
	found := map[string][]File{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		folder, _ := filepath.Rel(root, filepath.Dir(path))
		name := strings.ReplaceAll(filepath.ToSlash(folder), "/", "_")
		found[name] = append(found[name], File{filepath.Base(path), data})
		return err
	})
	if err != nil || len(found) == 0 {
		t.Fatalf("%d configurations, %v", len(found), err)
	}
	return found
}
