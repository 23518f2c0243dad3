package source

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"

	"weir.dev/weir/server/rules"
)

const (
	// settle is how long nothing must change before the files are read: a writer makes
	// several changes of one.
	settle = 150 * time.Millisecond
	// maxSettle bounds the wait where something changes all the time.
	maxSettle = time.Second
	// pollInterval is how often the files are read anyway. Network file systems tell
	// nothing of what other machines change, nor anybody of a folder far above.
	pollInterval = 30 * time.Second
	// maxFolders is how many folders are watched; what is in others is noticed when the
	// files are read anyway. Each costs memory of the kernel, which has a limit for all.
	maxFolders = 1000
	// maxReadings bounds how often the files are read because there were new folders.
	maxReadings = 5
)

// Watch calls changed whenever the files are others than those read last, or cannot be read
// any more, or can again, until ctx ends. What changed together is one change; the same text
// written again is none. At a signal it calls changed whatever has changed.
//
// It notices a write, a file put in place of another, a link that leads elsewhere, anywhere
// on the way to a file, and new folders; within 200 ms or so, or within 30 s where the file
// system tells nothing.
func (f *Files) Watch(ctx context.Context, signals <-chan os.Signal, changed func([]rules.File, error)) {
	w := watch{files: f, changed: changed, watched: map[string]os.FileInfo{}}
	var events chan fsnotify.Event
	var failures chan error
	notifier, err := fsnotify.NewWatcher()
	if err != nil {
		f.opts.Log.Warn("the system does not tell of changed files", "error", err, "looked at every", pollInterval)
	} else {
		defer notifier.Close()
		w.notifier, events, failures = notifier, notifier.Events, notifier.Errors
	}
	w.run(ctx, events, failures, signals)
}

// watch is a run of Watch.
type watch struct {
	files   *Files
	changed func([]rules.File, error)

	notifier *fsnotify.Watcher // nil: nothing tells of changes
	folders  folders
	watched  map[string]os.FileInfo // what had the folder's path when it was added
	warned   bool
}

func (w *watch) run(ctx context.Context, events <-chan fsnotify.Event, failures <-chan error, signals <-chan os.Signal) {
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	settled := time.NewTimer(0) // what changed before the folders were watched
	defer settled.Stop()
	var first time.Time // of the changes that are not settled
	for {
		concerned := false
		select {
		case <-ctx.Done():
			return
		case e, open := <-events:
			if !open { // the system has failed it: what is left is to look
				events, failures = nil, nil
				continue
			}
			if e.Has(fsnotify.Remove | fsnotify.Rename) {
				delete(w.watched, e.Name) // with the folder its watch has gone
			}
			concerned = w.folders.concerns(e.Name)
		case err := <-failures:
			w.files.opts.Log.Debug("watching files", "error", err)
			clear(w.watched) // what was missed may be any of the above
			concerned = true
		case <-settled.C:
			first = time.Time{}
			w.load(false)
		case <-poll.C:
			concerned = true
		case <-signals:
			w.load(true)
		}
		if !concerned {
			continue
		}
		if first.IsZero() {
			first = time.Now()
		}
		settled.Reset(min(settle, max(maxSettle-time.Since(first), 0)))
	}
}

// load reads the files and tells of a change, or always.
func (w *watch) load(always bool) {
	files, err := w.read()
	digest := digestOf(files, err)
	if digest == w.files.last && !always {
		return
	}
	w.files.last = digest
	w.changed(files, err)
}

// read reads the files, and again if it came upon folders that were not watched until then.
func (w *watch) read() (files []rules.File, err error) {
	for range maxReadings {
		files, w.folders, err = w.files.read()
		if !w.follow() {
			break
		}
	}
	return files, err
}

// follow watches the folders that matter, and no others. It reports whether there were new
// ones, in which something can have changed unnoticed.
func (w *watch) follow() (added bool) {
	if w.notifier == nil {
		return false
	}
	for folder, was := range w.watched {
		is, err := os.Stat(folder)
		if _, matters := w.folders[folder]; matters && err == nil && os.SameFile(was, is) {
			continue
		}
		w.notifier.Remove(folder) // an error says that its watch has gone already
		delete(w.watched, folder)
	}
	for folder := range w.folders {
		if w.watched[folder] == nil && w.add(folder) {
			added = true
		}
	}
	return added
}

// add watches one more folder, and reports whether it can.
func (w *watch) add(folder string) bool {
	info, err := os.Stat(folder)
	if err == nil && len(w.watched) >= maxFolders {
		err = errors.New("too many folders")
	} else if err == nil {
		err = w.notifier.Add(folder)
	}
	if err == nil {
		w.watched[folder] = info
		return true
	}
	if !errors.Is(err, os.ErrNotExist) && !w.warned {
		w.warned = true
		w.files.opts.Log.Warn("a folder cannot be watched", "folder", folder, "error", err, "looked at every", pollInterval)
	}
	return false
}

// digest tells one reading from another.
type digest [sha256.Size]byte

func digestOf(files []rules.File, err error) digest {
	h := sha256.New()
	text := func(b []byte) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
		h.Write(b)
	}
	for _, f := range files {
		text([]byte(f.Name))
		text(f.Data)
	}
	if err != nil {
		text([]byte(err.Error()))
	}
	return digest(h.Sum(nil))
}
