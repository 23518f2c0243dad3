package preview

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// line is a line of the Common format, at a second of one minute.
func line(addr string, second int) string {
	return fmt.Sprintf("%s - - [17/May/2015:10:05:%02d +0000] \"GET / HTTP/1.1\" 200 5\n", addr, second)
}

func newLog(t testing.TB, templates ...string) *Log {
	t.Helper()
	parsed := make([]Template, len(templates))
	for i, s := range templates {
		var err error
		if parsed[i], err = ParseTemplate(s); err != nil {
			t.Fatal(err)
		}
	}
	log, err := NewLog(Detect, parsed...)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func gzipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRequestsAreSortedByTimeAndKeepTheirOrderWithinOne(t *testing.T) {
	t.Parallel()
	log := newLog(t, "client={addr}")
	if err := log.Read("a.log", strings.NewReader(line("a", 3)+line("b", 1)+line("c", 3)+line("d", 1))); err != nil {
		t.Fatal(err)
	}
	log.sort()
	var got []string
	for _, r := range log.requests {
		got = append(got, log.descriptors[r.descriptor][0].Value)
	}
	if want := []string{"b", "d", "a", "c"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCompressedAndPlainFilesReadTheSame(t *testing.T) {
	t.Parallel()
	text := line("a", 1) + "\n" + strings.TrimSuffix(line("b", 2), "\n") // a blank line, and no last line end
	for name, data := range map[string][]byte{"a.log": []byte(text), "a.log.gz": gzipped(t, text), "crlf.log": []byte(strings.ReplaceAll(text, "\n", "\r\n"))} {
		log := newLog(t, "client={addr}")
		if err := log.Read(name, bytes.NewReader(data)); err != nil || log.Len() != 2 || log.Skipped != 0 {
			t.Errorf("%s: got %d requests, %d skipped, %v; want 2, 0, nil", name, log.Len(), log.Skipped, err)
		}
	}
}

func TestAByteOrderMarkIsNoPartOfAClient(t *testing.T) {
	t.Parallel()
	log := newLog(t, "client={addr}")
	if err := log.Read("a.log", strings.NewReader("\ufeff"+line("a", 1)+line("a", 2))); err != nil {
		t.Fatal(err)
	}
	if log.Len() != 2 || len(log.descriptors) != 1 {
		t.Errorf("got %d requests of %d clients, want 2 of 1", log.Len(), len(log.descriptors))
	}
}

func TestBadLinesAreCountedAndTheFirstAreKept(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	text := line("a", 1) + "one\n" + long + "\n" + line("a", 2) + strings.Repeat("two\n", 10) + long
	log := newLog(t, "client={addr}")
	if err := log.Read("a.log", strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	if log.Len() != 2 || log.Skipped != 13 || len(log.Faults) != shownFaults {
		t.Fatalf("got %d requests, %d skipped, %d kept; want 2, 13, %d", log.Len(), log.Skipped, len(log.Faults), shownFaults)
	}
	for i, want := range []string{"a.log:2: no [time]", "a.log:3: the line is longer than 65536 bytes", "a.log:5: no [time]"} {
		if got := log.Faults[i].String(); !strings.HasPrefix(got, want) {
			t.Errorf("fault %d: got %q, want %q", i, got, want)
		}
	}
}

func TestFilesThatAreNoLogSayWhy(t *testing.T) {
	t.Parallel()
	whole := gzipped(t, strings.Repeat(line("a", 1)+line("b", 2), 5000))
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"cut.gz", whole[:len(whole)/2], "cut short"},
		{"head.gz", whole[:5], "cut short"},
		{"plain.gz", []byte(line("a", 1)), "named .gz and is not compressed"},
		{"program", []byte("\x7fELF\x00\x00\x00"), "is binary"},
		{"inner.gz", gzipped(t, "\x00\x01"), "is binary"},
		{"prose", []byte("hello\nworld\n"), "none of 2 lines is a request, such as prose:1: no [time]"},
		{"long", bytes.Repeat([]byte("x"), 1<<20), "none of 1 lines is a request, such as long:1: the line is longer"},
		{"broken.gz", append(slices.Clone(whole[:40]), bytes.Repeat([]byte{0xff}, 40)...), "broken.gz"},
	} {
		err := newLog(t, "client={addr}").Read(c.name, bytes.NewReader(c.data))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v; want %q", c.name, err, c.want)
		}
	}
}

func TestAFileOfABadKindIsNamedThoughAnotherWasGood(t *testing.T) {
	t.Parallel()
	log := newLog(t, "client={addr}")
	if err := log.Read("good", strings.NewReader(line("a", 1)+"bad\n")); err != nil {
		t.Fatal(err)
	}
	if err := log.Read("empty", strings.NewReader("")); err != nil {
		t.Errorf("an empty file beside a good one: got %v, want nil", err)
	}
	if err := log.Read("prose", strings.NewReader("hello\n")); err == nil || !strings.Contains(err.Error(), "prose:1") {
		t.Errorf("got %v; want an error that shows prose:1", err)
	}
}

func TestDescriptorsOfOtherValuesAreOthers(t *testing.T) {
	t.Parallel()
	log := newLog(t, "user={user}", "client={addr}")
	text := `c - ab [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1` + "\n" +
		`bc - a [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1` + "\n"
	if err := log.Read("a", strings.NewReader(text+text)); err != nil {
		t.Fatal(err)
	}
	if len(log.descriptors) != 2 || log.Len() != 4 {
		t.Errorf("got %d descriptors of %d requests; want 2 of 4", len(log.descriptors), log.Len())
	}
}

func TestCommonLogHasNoAgent(t *testing.T) {
	t.Parallel()
	agent, err := ParseTemplate("agent={agent}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewLog(Common, agent); err == nil {
		t.Error("a log of the common format with {agent}: got no error")
	}
	if _, err := NewLog(Common); err == nil {
		t.Error("a log without templates: got no error")
	}
}
