// Package source finds the configuration: files, and directories of files, read once or
// watched.
package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"weir.dev/weir/server/rules"
)

// ErrNoFiles is in an error that says that a directory has no file of rules.
var ErrNoFiles = errors.New("no file of rules")

// Files are the configuration files that some paths name. One goroutine may use it.
type Files struct {
	paths []string
	opts  Options
	last  digest // of what was read last
}

// Options say which files of a directory count.
type Options struct {
	// AnyName takes each file of a directory, whatever its name, as envoyproxy/ratelimit
	// does. Without it only *.yaml and *.yml count.
	AnyName bool
	// Beside takes for a path also what lies beside it under its name, a dot and more:
	// for conf also conf.yaml. One of them must be there, but not the path itself.
	Beside bool
	// Log tells what keeps changes from being noticed. Nil: no log.
	Log *slog.Logger
}

// New returns the files that the paths name. It reads nothing yet.
func New(opts Options, paths ...string) *Files {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Files{paths: paths, opts: opts}
}

// Read returns the configuration files that the paths name, with the zero Options.
func Read(paths ...string) ([]rules.File, error) { return New(Options{}, paths...).Read() }

// Read returns the configuration files that the paths name: a file as it is, a directory
// with all below it that count. Names are sorted within a directory, and symbolic links
// are followed; what begins with a dot is skipped, so a mounted ConfigMap, which keeps its
// files in ..data and links to them, counts once. The error names every path that cannot
// be read; then there are no files.
func (f *Files) Read() ([]rules.File, error) {
	files, _, err := f.read()
	f.last = digestOf(files, err)
	return files, err
}

// read also returns where a change can make the next reading a different one.
func (f *Files) read() ([]rules.File, folders, error) {
	r := reader{opts: f.opts, folders: folders{}}
	for _, path := range f.paths {
		if f.opts.Beside {
			r.beside(path)
		} else {
			r.path(path)
		}
	}
	if len(r.errs) > 0 {
		return nil, r.folders, errors.Join(r.errs...)
	}
	return r.files, r.folders, nil
}

type reader struct {
	opts    Options
	files   []rules.File
	errs    []error
	folders folders
}

// path reads a path, which must name some file.
func (r *reader) path(path string) {
	before := r.found()
	r.either(path, true)
	if r.found() > before {
		return
	}
	which := "no *.yaml or *.yml file"
	if r.opts.AnyName {
		which = "no file"
	}
	r.errs = append(r.errs, fmt.Errorf("%s: %w: %s in this directory", path, ErrNoFiles, which))
}

// beside reads a path and what lies beside it.
func (r *reader) beside(path string) {
	before := r.found()
	name, parent := filepath.Base(path), filepath.Dir(path)
	if real, ok := r.folders.trace(parent); ok {
		r.folders.addAll(real)
	}
	entries, err := os.ReadDir(parent)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.errs = append(r.errs, err)
	}
	for _, e := range entries {
		if e.Name() == name || strings.HasPrefix(e.Name(), name+".") {
			r.either(filepath.Join(parent, e.Name()), false)
		}
	}
	if r.found() == before {
		r.errs = append(r.errs, fmt.Errorf("%s: %w: no file in this directory, nor %s.* beside it", path, ErrNoFiles, name))
	}
}

// found counts what was read, files and errors.
func (r *reader) found() int { return len(r.files) + len(r.errs) }

// either reads a file, or a directory of which it may be that nothing counts. A path that is
// named itself may also be a pipe, or whatever else can be read.
func (r *reader) either(path string, named bool) {
	real, _ := r.folders.trace(path)
	info, err := os.Stat(path)
	switch {
	case err != nil:
		r.errs = append(r.errs, err)
	case info.IsDir():
		r.directory(directory{path: path, real: real, info: info})
	case !named && !info.Mode().IsRegular():
		r.errs = append(r.errs, notRegular(path))
	default:
		r.file(path)
	}
}

// directory is one on the way down.
type directory struct {
	path, real string // as messages name it, and without links
	info       fs.FileInfo
	above      *directory
}

// directory reads what is in d and below it.
func (r *reader) directory(d directory) {
	for above := d.above; above != nil; above = above.above {
		if os.SameFile(above.info, d.info) {
			r.errs = append(r.errs, fmt.Errorf("%s: links to a directory that it is in", d.path))
			return
		}
	}
	r.folders.addAll(d.real)
	entries, err := os.ReadDir(d.path)
	if err != nil {
		r.errs = append(r.errs, err)
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			r.entry(d, e)
		}
	}
}

// entry reads what is in d by a name that does not begin with a dot.
func (r *reader) entry(d directory, e fs.DirEntry) {
	path, real := filepath.Join(d.path, e.Name()), filepath.Join(d.real, e.Name())
	if e.Type()&fs.ModeSymlink != 0 {
		real, _ = r.folders.trace(real)
	}
	yaml := filepath.Ext(path) == ".yaml" || filepath.Ext(path) == ".yml"
	counts := yaml || r.opts.AnyName
	info, err := os.Stat(path)
	switch {
	case err != nil && !yaml:
		return // a broken link, or gone meanwhile: none of ours
	case err != nil:
		r.errs = append(r.errs, err)
	case info.IsDir():
		r.directory(directory{path: path, real: real, info: info, above: &d})
	case counts && !info.Mode().IsRegular():
		r.errs = append(r.errs, notRegular(path))
	case counts:
		r.file(path)
	}
}

func notRegular(path string) error { return fmt.Errorf("%s: is not a regular file", path) }

// file reads one file, but no more of it than rules.Parse needs to refuse it. Of a pipe it
// waits for whoever writes to it, so that only one that is named itself is read.
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
