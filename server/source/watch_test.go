package source

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"

	"weir.dev/weir/server/rules"
)

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// watched is a Watch on real files, and what it has told.
type watched struct {
	t    *testing.T
	news chan string
}

// follow begins to watch paths, whose files were read before.
func follow(t *testing.T, opts Options, paths ...string) *watched {
	t.Helper()
	w := &watched{t, make(chan string, 100)}
	f := New(opts, paths...)
	f.Read()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Watch(ctx, nil, func(files []rules.File, err error) { w.news <- said(files, err) })
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return w
}

// said is a reading as a text.
func said(files []rules.File, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	return strings.Join(texts(files), " ")
}

// tells waits until Watch tells of want. What it tells of before must be among also: states
// on the way, which Watch may or may not see.
func (w *watched) tells(want string, also ...string) {
	w.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case got := <-w.news:
			if strings.HasPrefix(got, want) && (want != "" || got == "") {
				return
			}
			if !slices.ContainsFunc(also, func(a string) bool { return strings.HasPrefix(got, a) }) {
				w.t.Fatalf("Watch told of %q, want %q", got, want)
			}
		case <-deadline:
			w.t.Fatalf("Watch did not tell of %q", want)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// place puts a file, or with a text of "-> target" a link, at the path at once.
func place(t *testing.T, path, text string) {
	t.Helper()
	temporary := path + "_tmp"
	if target, link := strings.CutPrefix(text, "-> "); link {
		if err := os.Symlink(target, temporary); err != nil {
			t.Fatal(err)
		}
	} else {
		write(t, temporary, text)
	}
	if err := os.Rename(temporary, path); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func TestAWrittenFileIsNoticed(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"a.yaml": "1", "b.yaml": "1"})
	w := follow(t, Options{}, root)
	write(t, filepath.Join(root, "a.yaml"), "2")
	w.tells("a.yaml:2 b.yaml:1", "a.yaml: b.yaml:1") // a write begins with an empty file
	remove(t, filepath.Join(root, "b.yaml"))
	w.tells("a.yaml:2")
}

func TestAReplacedFileIsNoticed(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"a.yaml": "1"})
	directory, file := follow(t, Options{}, root), follow(t, Options{}, filepath.Join(root, "a.yaml"))
	for _, text := range []string{"2", "3"} { // the second time another file is there
		place(t, filepath.Join(root, "a.yaml"), text)
		directory.tells("a.yaml:" + text)
		file.tells("a.yaml:" + text)
	}
}

func TestAnUpdatedConfigMapIsNoticed(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"..1/a.yaml": "1",
		"..data":     "-> ..1",
		"a.yaml":     "-> ..data/a.yaml",
	})
	w := follow(t, Options{}, root)
	for _, n := range []string{"2", "3"} {
		old, err := os.Readlink(filepath.Join(root, "..data"))
		if err != nil {
			t.Fatal(err)
		}
		mkdir(t, filepath.Join(root, ".."+n))
		write(t, filepath.Join(root, ".."+n, "a.yaml"), n)
		place(t, filepath.Join(root, "..data"), "-> .."+n)
		remove(t, filepath.Join(root, old))
		w.tells("a.yaml:" + n)
	}
}

func TestALinkedRootThatLeadsElsewhereIsNoticed(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"releases/1/app/config/a.yaml": "1", "releases/2/app/config/a.yaml": "2", "releases/3/app/config/a.yaml": "3",
		"runtime/current": "-> ../releases/1",
	})
	w := follow(t, Options{AnyName: true, Beside: true}, filepath.Join(root, "runtime/current/app/config"))
	for _, n := range []string{"2", "3"} {
		place(t, filepath.Join(root, "runtime/current"), "-> ../releases/"+n)
		w.tells("a.yaml:" + n)
	}
	write(t, filepath.Join(root, "releases/1/app/config/a.yaml"), "no")
	place(t, filepath.Join(root, "releases/3/app/config/a.yaml"), "4") // the new folders are watched
	w.tells("a.yaml:4")
	write(t, filepath.Join(root, "releases/3/app/config.yaml"), "5")
	w.tells("a.yaml:4 config.yaml:5", "a.yaml:4 config.yaml:")
}

func TestALinkInsideThatLeadsElsewhereIsNoticed(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"elsewhere/1": "1", "elsewhere/2": "2", "elsewhere/current": "-> 1", "elsewhere/rules/b.yaml": "1",
		"conf/a.yaml": "-> ../elsewhere/current", "conf/sub": "-> ../elsewhere/rules",
	})
	w := follow(t, Options{}, filepath.Join(root, "conf"))
	place(t, filepath.Join(root, "elsewhere/current"), "-> 2")
	w.tells("a.yaml:2 b.yaml:1")
	place(t, filepath.Join(root, "elsewhere/rules/b.yaml"), "2")
	w.tells("a.yaml:2 b.yaml:2")
}

func TestNewDirectoriesAreWatched(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"a.yaml": "1"})
	w := follow(t, Options{}, root)
	deep := filepath.Join(root, "x/y/z")
	mkdir(t, deep)
	place(t, filepath.Join(deep, "b.yaml"), "1")
	w.tells("a.yaml:1 b.yaml:1")
	place(t, filepath.Join(deep, "b.yaml"), "2")
	w.tells("a.yaml:1 b.yaml:2")
}

func TestADirectoryThatIsMadeAnewIsWatchedAgain(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"x/conf/a.yaml": "1"})
	conf := filepath.Join(root, "x/conf")
	w := follow(t, Options{}, conf)
	for _, gone := range []string{conf, filepath.Dir(conf)} {
		remove(t, gone)
		w.tells("error: ")
		mkdir(t, conf)
		write(t, filepath.Join(conf, "a.yaml"), "2")
		w.tells("a.yaml:2", "error: ", "a.yaml:")
		place(t, filepath.Join(conf, "a.yaml"), "3")
		w.tells("a.yaml:3")
	}
	if err := os.Rename(filepath.Dir(conf), filepath.Join(root, "old")); err != nil {
		t.Fatal(err)
	}
	w.tells("error: ")
	if err := os.Rename(filepath.Join(root, "old"), filepath.Dir(conf)); err != nil {
		t.Fatal(err)
	}
	w.tells("a.yaml:3")
	place(t, filepath.Join(conf, "a.yaml"), "4")
	w.tells("a.yaml:4")
}

func TestAPathThatIsMissingAtFirstIsNoticed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	conf := filepath.Join(root, "later/conf")
	w := follow(t, Options{}, conf)
	mkdir(t, conf)
	place(t, filepath.Join(conf, "a.yaml"), "1")
	w.tells("a.yaml:1", "error: ")
}

func TestWhatChangedBeforeTheWatchIsNoticed(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"a.yaml": "1"})
	f := New(Options{}, root)
	f.Read()
	write(t, filepath.Join(root, "a.yaml"), "2")
	ctx, stop := context.WithTimeout(context.Background(), patience)
	var got string
	f.Watch(ctx, nil, func(files []rules.File, err error) {
		got = said(files, err)
		stop()
	})
	if want := "a.yaml:2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMoreFoldersThanCanBeWatchedAreSaidAndRead(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for i := range maxFolders + 5 {
		mkdir(t, filepath.Join(root, fmt.Sprint(i)))
	}
	place(t, filepath.Join(root, "a.yaml"), "1")
	var log bytes.Buffer
	f := New(Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, root)
	ctx, stop := context.WithTimeout(context.Background(), patience)
	f.Watch(ctx, nil, func(files []rules.File, err error) { stop() })
	if got, want := strings.Count(log.String(), "a folder cannot be watched"), 1; got != want {
		t.Errorf("said %d times, want %d: %s", got, want, &log)
	}
}

// faked runs a watch in fake time, of a file whose changes only its events and time tell.
type faked struct {
	path    string
	events  chan fsnotify.Event
	signals chan os.Signal

	mu   sync.Mutex
	news []string
}

func fake(t *testing.T, test func(*faked)) {
	t.Helper()
	root := tree(t, map[string]string{"a.yaml": "0"})
	synctest.Test(t, func(t *testing.T) {
		k := &faked{path: filepath.Join(root, "a.yaml"), events: make(chan fsnotify.Event), signals: make(chan os.Signal)}
		f := New(Options{}, root)
		f.Read()
		w := watch{files: f, changed: k.hear}
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer stop()
		go w.run(ctx, k.events, nil, k.signals)
		k.pass(time.Nanosecond)
		test(k)
	})
}

func (k *faked) hear(files []rules.File, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.news = append(k.news, said(files, err))
}

// pass lets time pass.
func (k *faked) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// change writes the file and tells of it.
func (k *faked) change(t *testing.T, text string) {
	t.Helper()
	write(t, k.path, text)
	k.events <- fsnotify.Event{Name: k.path, Op: fsnotify.Write}
	synctest.Wait()
}

func (k *faked) check(t *testing.T, when string, want ...string) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !slices.EqualFunc(k.news, want, strings.HasPrefix) {
		t.Errorf("%s: told of %q, want %q", when, k.news, want)
	}
}

func TestABurstOfChangesIsOneChange(t *testing.T) {
	t.Parallel()
	fake(t, func(k *faked) {
		for i := range 6 {
			k.change(t, fmt.Sprint(i))
			k.pass(settle - time.Millisecond)
		}
		k.check(t, "while it changes")
		k.pass(time.Millisecond)
		k.check(t, "once it has settled", "a.yaml:5")
		k.pass(10 * pollInterval)
		k.check(t, "later", "a.yaml:5")
	})
}

func TestAFileThatChangesAllTheTimeIsReadEverySecond(t *testing.T) {
	t.Parallel()
	fake(t, func(k *faked) {
		for i := range 35 {
			k.change(t, fmt.Sprint(i))
			k.pass(60 * time.Millisecond)
		}
		k.check(t, "after 2.1 s", "a.yaml:16", "a.yaml:33")
	})
}

func TestTheSameTextWrittenAgainIsNoChange(t *testing.T) {
	t.Parallel()
	fake(t, func(k *faked) {
		k.change(t, "0")
		k.pass(settle)
		k.check(t, "after the write")
	})
}

func TestWhatNothingTellsOfIsNoticedByLooking(t *testing.T) {
	t.Parallel()
	fake(t, func(k *faked) {
		write(t, k.path, "1")
		k.pass(pollInterval - time.Second)
		k.check(t, "before")
		k.pass(time.Second + settle)
		k.check(t, "after 30 s", "a.yaml:1")
	})
}

func TestWhereEventsEndTheFilesAreStillLookedAt(t *testing.T) {
	t.Parallel()
	fake(t, func(k *faked) {
		close(k.events)
		k.pass(time.Nanosecond)
		write(t, k.path, "1")
		k.pass(pollInterval + settle)
		k.check(t, "after 30 s", "a.yaml:1")
	})
}

func TestAnEventOfAnotherNameIsNone(t *testing.T) {
	t.Parallel()
	fake(t, func(k *faked) {
		write(t, k.path, "1")
		k.events <- fsnotify.Event{Name: filepath.Join(filepath.Dir(filepath.Dir(k.path)), "other"), Op: fsnotify.Write}
		k.pass(time.Second)
		k.check(t, "after the event")
	})
}

func TestASignalReadsAtOnceWhateverHasChanged(t *testing.T) {
	t.Parallel()
	fake(t, func(k *faked) {
		k.signals <- syscall.SIGHUP
		synctest.Wait()
		k.check(t, "at the signal", "a.yaml:0")
	})
}

func TestAnErrorIsToldOnceAndItsEndToo(t *testing.T) {
	t.Parallel()
	fake(t, func(k *faked) {
		remove(t, k.path)
		k.pass(5 * pollInterval)
		k.check(t, "after some looks", "error: ")
		k.change(t, "0")
		k.pass(settle)
		k.check(t, "when it is there again", "error: ", "a.yaml:0")
	})
}
