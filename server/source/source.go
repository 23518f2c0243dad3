// Package source finds the configuration: files, and directories of files.
package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"weir.dev/weir/server/rules"
)

// Read returns the configuration files that the paths name: a file as it is, a
// directory with every *.yaml and *.yml below it. Names are sorted within a directory,
// and symbolic links are followed; what begins with a dot is skipped, so a mounted
// ConfigMap, which keeps its files in ..data and links to them, counts once. The error
// names every path that cannot be read; then there are no files.
func Read(paths ...string) ([]rules.File, error) {
	var r reader
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			r.errs = append(r.errs, err)
		case info.IsDir():
			before := len(r.files) + len(r.errs)
			r.directory(path, info, nil)
			if len(r.files)+len(r.errs) == before {
				r.errs = append(r.errs, fmt.Errorf("%s: no *.yaml or *.yml file in this directory", path))
			}
		default:
			r.file(path)
		}
	}
	if len(r.errs) > 0 {
		return nil, errors.Join(r.errs...)
	}
	return r.files, nil
}

type reader struct {
	files []rules.File
	errs  []error
}

// directory reads what is below path, which lies in the directories above.
func (r *reader) directory(path string, self fs.FileInfo, above []fs.FileInfo) {
	for _, a := range above {
		if os.SameFile(a, self) {
			r.errs = append(r.errs, fmt.Errorf("%s: links to a directory that it is in", path))
			return
		}
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		r.errs = append(r.errs, err)
		return
	}
	above = append(above[:len(above):len(above)], self)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		below := filepath.Join(path, e.Name())
		yaml := filepath.Ext(below) == ".yaml" || filepath.Ext(below) == ".yml"
		info, err := os.Stat(below)
		switch {
		case err != nil && !yaml:
			continue // a broken link, or gone meanwhile: none of ours
		case err != nil:
			r.errs = append(r.errs, err)
		case info.IsDir():
			r.directory(below, info, above)
		case yaml && !info.Mode().IsRegular():
			r.errs = append(r.errs, fmt.Errorf("%s: is not a regular file", below))
		case yaml:
			r.file(below)
		}
	}
}

// file reads one file, but no more of it than rules.Parse needs to refuse it.
func (r *reader) file(path string) {
	f, err := os.Open(path)
	if err != nil {
		r.errs = append(r.errs, err)
		return
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, rules.MaxFileBytes+1))
	if err != nil {
		r.errs = append(r.errs, err)
		return
	}
	r.files = append(r.files, rules.File{Name: path, Data: data})
}
