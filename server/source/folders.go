package source

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// folders are where changes matter, by their real paths: in a folder all names, or some.
// What is watched are folders, because files and links get replaced.
type folders map[string]names

// names are those that matter in a folder; nil is all of them.
type names map[string]bool

func (f folders) addAll(folder string) { f[folder] = nil }

func (f folders) add(folder, name string) {
	if all, ok := f[folder]; ok && all == nil {
		return
	}
	if f[folder] == nil {
		f[folder] = names{}
	}
	f[folder][name] = true
}

// concerns reports whether a change to the path matters.
func (f folders) concerns(path string) bool {
	if _, ok := f[path]; ok {
		return true
	}
	some, ok := f[filepath.Dir(path)]
	return ok && (some == nil || some[filepath.Base(path)])
}

// maxLinks is how many links a path may lead through, as in Linux.
const maxLinks = 40

// trace returns the real path that a path leads to, and false if it leads nowhere. It adds
// the folders where a change can make it lead elsewhere: those of the links on the way, of
// the path's end, and of the first thing that is missing. It does not add every folder
// above, so a change there shows only when the files are looked at anyway.
func (f folders) trace(path string) (real string, ok bool) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", false
	}
	const separator = string(filepath.Separator)
	root := filepath.VolumeName(path) + separator
	real = root
	ahead := strings.Split(strings.TrimPrefix(path, root), separator)
	for links := 0; len(ahead) > 0; {
		name := ahead[0]
		ahead = ahead[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			real = filepath.Dir(real)
			continue
		}
		next := filepath.Join(real, name)
		info, err := os.Lstat(next)
		link := err == nil && info.Mode()&fs.ModeSymlink != 0
		if err != nil || link || len(ahead) == 0 {
			f.add(real, name)
		}
		if err != nil {
			return "", false
		}
		if !link {
			real = next
			continue
		}
		target, err := os.Readlink(next)
		if links++; err != nil || links > maxLinks {
			return "", false
		}
		if filepath.IsAbs(target) {
			real = root
			target = strings.TrimPrefix(target, root)
		}
		ahead = append(strings.Split(target, separator), ahead...)
	}
	return real, true
}
