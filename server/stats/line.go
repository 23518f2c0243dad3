package stats

import (
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// datagramBytes is how much is sent at once over UDP: what passes most networks in one
	// piece. A longer line goes by itself.
	datagramBytes = 1432
	// writeBytes is how much is sent at once over TCP.
	writeBytes = 64 << 10
	// maxSample is how many durations of one timer a flush sends. Of more it sends a sample,
	// and says so.
	maxSample = 1000
)

// lines writes the lines of statsd and dogstatsd: name:number|type, then the rate if it is a
// sample, then dogstatsd's tags. It remembers what it has written.
type lines struct {
	limit      int // bytes to write at once
	dogstatsd  bool
	tags       []tag // on every line
	mogrifiers mogrifiers

	counters []counterLine // in the order of the Registry's counters
	gauges   []line
	timers   []line

	buf   []byte // written and not yet sent
	marks []mark // what will have been told when it is
}

// line is what stands before and after the number and the type.
type line struct{ name, tags string }

type counterLine struct {
	line
	told uint64 // what the sink knows
}

// mark says that the lines up to end, told, make the sink know a counter's value.
type mark struct {
	end  int
	told *uint64
	is   uint64
}

func newLines(opts Options) (*lines, error) {
	network, _ := opts.address()
	l := &lines{dogstatsd: opts.Dogstatsd, limit: writeBytes}
	if network == "udp" {
		l.limit = datagramBytes
	}
	for _, key := range slices.Sorted(maps.Keys(opts.ExtraTags)) {
		if value := opts.ExtraTags[key]; key != "" && value != "" {
			l.tags = append(l.tags, tag{key, cleanTag.Replace(value)})
		}
	}
	if !opts.Dogstatsd {
		return l, nil
	}
	for _, key := range slices.Sorted(maps.Keys(opts.DatadogTags)) {
		l.tags = append(l.tags, tag{key, opts.DatadogTags[key]})
	}
	var err error
	l.mogrifiers, err = newMogrifiers(opts.Mogrifiers)
	return l, err
}

// cleanTag has what the original replaces in the values of extra tags.
var cleanTag = strings.NewReplacer(".", "_", ":", "_", "|", "_")

// line returns what stands around the numbers of a name.
func (l *lines) line(name string) line {
	if !l.dogstatsd {
		var b strings.Builder
		b.WriteString(lineName(name))
		for _, t := range l.tags {
			b.WriteString(".__" + lineName(t.key) + "=" + lineName(t.value))
		}
		return line{name: b.String()}
	}
	made, tags := l.mogrifiers.apply(name)
	var b strings.Builder
	before := "|#"
	for _, t := range append(slices.Clip(l.tags), tags...) {
		b.WriteString(before + lineTag(t.key) + ":" + lineTag(t.value))
		before = ","
	}
	return line{lineName(made), b.String()}
}

// write sends w a line for each counter that has grown, each gauge and each duration.
func (l *lines) write(w io.Writer, all values) error {
	l.buf, l.marks = l.buf[:0], l.marks[:0]
	for i, c := range all.counters { // all of them before a mark points to one
		if i == len(l.counters) {
			l.counters = append(l.counters, counterLine{line: l.line(c.name)})
		}
	}
	for i, c := range all.counters {
		known, is := &l.counters[i], c.value.Value()
		if is == known.told {
			continue
		}
		text := known.format(strconv.FormatUint(is-known.told, 10), "c", "")
		if err := l.add(w, text, mark{told: &known.told, is: is}); err != nil {
			return err
		}
	}
	for i, g := range all.gauges {
		if i == len(l.gauges) {
			l.gauges = append(l.gauges, l.line(g.name))
		}
		if err := l.add(w, l.gauges[i].gauge(g.value.Value()), mark{}); err != nil {
			return err
		}
	}
	for i, t := range all.timers {
		if i == len(l.timers) {
			l.timers = append(l.timers, l.line(t.name))
		}
		if err := l.addTimer(w, l.timers[i], t.value); err != nil {
			return err
		}
	}
	return l.send(w)
}

// format returns the line of one number. The rate is "" or begins with a bar.
func (l line) format(number, kind, rate string) string {
	return l.name + ":" + number + "|" + kind + rate + l.tags + "\n"
}

// gauge returns the line of a gauge. A number with a sign would be a change: from zero it is
// the value.
func (l line) gauge(n int64) string {
	if n >= 0 {
		return l.format(strconv.FormatInt(n, 10), "g", "")
	}
	return l.format("0", "g", "") + l.format(strconv.FormatInt(n, 10), "g", "")
}

func (l *lines) addTimer(w io.Writer, at line, t *Timer) error {
	kept, n := t.sample().take()
	rate := ""
	if n > uint64(len(kept)) {
		rate = "|@" + strconv.FormatFloat(float64(len(kept))/float64(n), 'f', -1, 64)
	}
	for _, d := range kept {
		millis := strconv.FormatFloat(float64(d.Microseconds())/1000, 'f', -1, 64)
		if err := l.add(w, at.format(millis, "ms", rate), mark{}); err != nil {
			return err
		}
	}
	return nil
}

// add puts lines beside those that wait, and sends those first if there is no room.
func (l *lines) add(w io.Writer, text string, m mark) error {
	if len(l.buf) > 0 && len(l.buf)+len(text) > l.limit {
		if err := l.send(w); err != nil {
			return err
		}
	}
	l.buf = append(l.buf, text...)
	if m.told != nil {
		m.end = len(l.buf)
		l.marks = append(l.marks, m)
	}
	return nil
}

// send writes what waits, and keeps what the sink knows now: also if only a part of it could
// be written. A line without its line break counts, for the connection's end ends it too.
func (l *lines) send(w io.Writer) error {
	if len(l.buf) == 0 {
		return nil
	}
	n, err := w.Write(l.buf)
	for _, m := range l.marks {
		if m.end <= n+1 {
			*m.told = m.is
		}
	}
	l.buf, l.marks = l.buf[:0], l.marks[:0]
	return err
}

// sample keeps durations for the next flush: all, or of more than maxSample as many as that,
// each with the same chance (Vitter, Random sampling with a reservoir, 1985, algorithm R).
type sample struct {
	mu   sync.Mutex
	kept []time.Duration
	n    uint64
}

func (s *sample) add(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	if len(s.kept) < maxSample {
		s.kept = append(s.kept, d)
	} else if i := rand.Uint64N(s.n); i < maxSample {
		s.kept[i] = d
	}
}

// take returns what was kept and of how many, and starts anew.
func (s *sample) take() ([]time.Duration, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept, n := s.kept, s.n
	s.kept, s.n = nil, 0
	return kept, n
}

// sample returns what a pusher keeps of the timer.
func (t *Timer) sample() *sample {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.to.(*sample)
}
