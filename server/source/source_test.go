package source

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir.dev/weir/server/rules"
)

// tree writes files below a new directory: their text, or "-> target" for a link.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, link := strings.CutPrefix(text, "-> "); link {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func read(t *testing.T, paths ...string) []string {
	t.Helper()
	files, err := Read(paths...)
	if err != nil {
		t.Fatalf("Read(%q): %v", paths, err)
	}
	return texts(files)
}

// texts are the files as "name:text".
func texts(files []rules.File) []string {
	var all []string
	for _, f := range files {
		all = append(all, filepath.Base(f.Name)+":"+string(f.Data))
	}
	return all
}

func TestADirectoryIsReadWithAllThatIsBelowIt(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"b.yaml": "b", "a.yml": "a", "sub/deep/c.yaml": "c",
		"README.md": "no", ".hidden.yaml": "no", ".git/d.yaml": "no", "yaml": "no",
	})
	got, want := read(t, root), []string{"a.yml:a", "b.yaml:b", "c.yaml:c"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAMountedConfigMapCountsOnce(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"..2026_01_01/limits.yaml": "x",
		"..data":                   "-> ..2026_01_01",
		"limits.yaml":              "-> ..data/limits.yaml",
	})
	got, want := read(t, root), []string{"limits.yaml:x"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLinksToDirectoriesAreFollowed(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"releases/7/a.yaml": "a", "current": "-> releases/7"})
	got, want := read(t, filepath.Join(root, "current")), []string{"a.yaml:a"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAFileIsReadWhateverItsName(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"limits.conf": "x"})
	got, want := read(t, filepath.Join(root, "limits.conf")), []string{"limits.conf:x"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func readWith(t *testing.T, opts Options, paths ...string) []string {
	t.Helper()
	files, err := New(opts, paths...).Read()
	if err != nil {
		t.Fatalf("New(%+v, %q).Read(): %v", opts, paths, err)
	}
	return texts(files)
}

func TestAnyNameCountsIfAskedFor(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"limits": "a", "sub/b.conf": "b", ".git/c": "no", "..2026_01_01/d": "d", "..data": "-> ..2026_01_01", "d": "-> ..data/d", "gone": "-> nowhere",
	})
	got, want := readWith(t, Options{AnyName: true}, root), []string{"d:d", "limits:a", "b.conf:b"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWhatLiesBesideAPathCountsIfAskedFor(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"both/config/a.yaml": "a", "both/config.b.yaml": "b", "both/config.d/c.yaml": "c", "both/configs/d.yaml": "no", "both/e.yaml": "no",
		"beside/config.yaml": "f",
		"empty/config/.keep": "", "empty/other.yaml": "no",
	})
	opts := Options{AnyName: true, Beside: true}
	got, want := readWith(t, opts, filepath.Join(root, "both/config"), filepath.Join(root, "beside/config")), []string{"a.yaml:a", "config.b.yaml:b", "c.yaml:c", "config.yaml:f"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, none := range []string{"empty/config", "nowhere/config"} {
		if files, err := New(opts, filepath.Join(root, none)).Read(); !errors.Is(err, ErrNoFiles) || files != nil {
			t.Errorf("%s: got %d files and the error %v, want ErrNoFiles", none, len(files), err)
		}
	}
}

func TestEveryPathThatCannotBeReadIsNamed(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"empty/x.txt": "", "loop/again": "-> ../loop", "broken/a.yaml": "-> nowhere", "good/a.yaml": "a",
	})
	in := func(name string) string { return filepath.Join(root, name) }
	files, err := Read(in("good"), in("empty"), in("loop"), in("broken"), in("missing"))
	if err == nil || files != nil {
		t.Fatalf("got %d files and the error %v, want an error alone", len(files), err)
	}
	for _, want := range []string{
		in("empty") + ": no file of rules: no *.yaml or *.yml file",
		in("loop/again") + ": links to a directory that it is in",
		in("broken/a.yaml"), in("missing"),
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
}
