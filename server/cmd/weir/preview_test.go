package main

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir.dev/weir/internal/redistest"
)

// run runs weir with the arguments.
func run(t *testing.T, args ...string) (out, errs string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	err = root.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

func previewSite(t *testing.T, more ...string) (out, errs string, err error) {
	t.Helper()
	args := []string{"preview", "--config", "testdata/preview/rules.yaml", "--domain", "site", "--as", "method={method}", "--as", "client={addr}"}
	return run(t, append(args, more...)...)
}

func golden(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "preview", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestPreviewReportsTheSameFromEveryFormatOfALog(t *testing.T) {
	t.Parallel()
	want := golden(t, "report.txt")
	for name, format := range map[string]string{"common.log": "common", "combined.log": "combined", "caddy.json": "json"} {
		path := filepath.Join("testdata", "preview", name)
		for _, args := range [][]string{{path}, {"--format", format, path}} {
			out, errs, err := previewSite(t, args...)
			if err != nil || out != want {
				t.Errorf("%q: got %v and\n%s\nwant\n%s", args, err, out, want)
			}
			if want := "skipped " + path + ":20: "; !strings.HasPrefix(errs, want) || strings.Count(errs, "\n") != 1 {
				t.Errorf("%q: got %q on standard error, want one line that begins with %q", args, errs, want)
			}
		}
	}
}

func TestPreviewPrintsJSONForPrograms(t *testing.T) {
	t.Parallel()
	out, _, err := previewSite(t, "--json", "testdata/preview/combined.log")
	if want := golden(t, "report.json"); err != nil || out != want {
		t.Errorf("got %v and\n%s\nwant\n%s", err, out, want)
	}
}

func TestPreviewReadsSeveralLogsAsOne(t *testing.T) {
	t.Parallel()
	lines := strings.SplitAfter(golden(t, "common.log"), "\n")
	folder := t.TempDir()
	older, newer := filepath.Join(folder, "access.log.1.gz"), filepath.Join(folder, "access.log")
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(strings.Join(lines[:12], ""))); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(older, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(newer, []byte(strings.Join(lines[12:], "")), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, err := previewSite(t, newer, older)
	if want := golden(t, "report.txt"); err != nil || out != want {
		t.Errorf("got %v and\n%s\nwant\n%s", err, out, want)
	}
}

func TestPreviewOnAServerReportsWhatItReportsInMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Redis7, redistest.Options{})
	out, _, err := previewSite(t, "--store", "redis://"+server.Addr, "testdata/preview/combined.log")
	if want := golden(t, "report.txt"); err != nil || out != want {
		t.Errorf("got %v and\n%s\nwant\n%s", err, out, want)
	}
	if left := server.Do("DBSIZE"); left != int64(0) {
		t.Errorf("%v keys are left on the server; want none", left)
	}
}

func TestPreviewNamesEverythingWrongAtOnce(t *testing.T) {
	t.Parallel()
	_, errs, err := run(t, "preview", "--as", "client={ip}", "--format", "clf")
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{
		"no log: name one or more access logs",
		"no rules: write --config and a file or a directory",
		`--format: unknown format "clf": write common, combined or json`,
		"no domain: write --domain and one of the configuration's domains",
		"--as: \"client={ip}\": unknown field {ip}: the fields are {addr} {user}",
	} {
		if !strings.Contains(errs, want) {
			t.Errorf("got\n%s\nwant %q", errs, want)
		}
	}
}

func TestPreviewRefusesWhatItCannotReplay(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	empty, prose := filepath.Join(folder, "empty.log"), filepath.Join(folder, "prose.log")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(prose, []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{empty}, "the logs are empty"},
		{[]string{prose}, "none of 1 lines is a request, such as "},
		{[]string{folder}, "is a directory"},
		{[]string{filepath.Join(folder, "absent")}, "no such file"},
		{[]string{"--domain", "sit", "testdata/preview/common.log"}, `no rules for --domain "sit": the configuration has ["site"]`},
		{[]string{"--as", "agent={agent}", "--format", "common", "testdata/preview/common.log"}, "the common format has no {agent}"},
		{[]string{"--as", "agent={agent}", "testdata/preview/common.log"}, "the line has no {agent}"},
		{[]string{"--store", "file:", "testdata/preview/common.log"}, "--store: "},
	} {
		out, errs, err := previewSite(t, c.args...)
		if err == nil || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%q: got %q, %q, %v; want an error with %q", c.args, out, errs, err, c.want)
		}
	}
}
