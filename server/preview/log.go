// Package preview says what rules would have done to the requests of an access log: it
// reads the log, replays it through the rules at the log's own times, and reports for
// each rule what would have been allowed and denied.
package preview

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"weir.dev/weir/server/rules"
)

// MaxLine is the longest line of a log that is read, in bytes. A longer one is skipped.
const MaxLine = 64 << 10

// shownFaults is how many of the skipped lines are kept to be shown.
const shownFaults = 5

// Log is what rules can see of the requests of access logs. Each request takes 16 bytes,
// and each distinct descriptor is kept once.
type Log struct {
	// Skipped counts the lines that could not be read, and Faults are the first of them.
	Skipped int
	Faults  []Fault

	format    Format
	templates []Template

	requests    []request
	unsorted    bool
	descriptors [][]rules.Entry
	ids         map[string]uint32 // of descriptors, by their length-prefixed values
	scratch     []byte
}

// request is one request: when, and which of the descriptors.
type request struct {
	atMicros   int64
	descriptor uint32
}

// Fault is a line that was skipped, and why.
type Fault struct {
	File string
	Line int // from 1
	Err  error
}

// String returns "file:line: error".
func (f Fault) String() string { return fmt.Sprintf("%s:%d: %v", f.File, f.Line, f.Err) }

// NewLog returns an empty log. Its requests each have one descriptor, with an entry for
// each template, in order.
func NewLog(format Format, templates ...Template) (*Log, error) {
	if len(templates) == 0 {
		return nil, fmt.Errorf("no entry of the descriptor is given: write at least one %s", example)
	}
	for _, t := range templates {
		for _, p := range t.parts {
			if format == Common && p.text == "" && p.field == Agent {
				return nil, errors.New("the common format has no {agent}: only combined and json have")
			}
		}
	}
	return &Log{format: format, templates: templates, ids: map[string]uint32{}}, nil
}

// Len returns how many requests there are.
func (l *Log) Len() int { return len(l.requests) }

// Read adds the requests of one file, plain or compressed by gzip; name is for messages.
// Lines that cannot be read are counted as skipped; blank ones are nothing. The error is
// about the file: it cannot be read, is cut short, is binary, or none of its lines is a
// request.
func (l *Log) Read(name string, r io.Reader) error {
	text, err := plainText(name, r)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	before, skipped, faults := len(l.requests), l.Skipped, len(l.Faults)
	for number := 1; ; number++ {
		line, err := readLine(text)
		if err != nil && err != io.EOF && !errors.Is(err, errLong) {
			return fmt.Errorf("%s: line %d: %w", name, number, explain(err))
		}
		if errors.Is(err, errLong) {
			l.skip(Fault{name, number, err})
		} else if len(line) > 0 {
			if err := l.add(string(line)); err != nil {
				l.skip(Fault{name, number, err})
			}
		}
		if err == io.EOF {
			break
		}
	}
	if len(l.requests) == before && l.Skipped > skipped {
		why := ""
		if len(l.Faults) > faults {
			why = ", such as " + l.Faults[faults].String()
		}
		return fmt.Errorf("%s: none of %d lines is a request%s", name, l.Skipped-skipped, why)
	}
	return nil
}

func (l *Log) skip(f Fault) {
	l.Skipped++
	if len(l.Faults) < shownFaults {
		l.Faults = append(l.Faults, f)
	}
}

// add adds the request of one line.
func (l *Log) add(line string) error {
	r, err := l.format.Parse(line)
	if err != nil {
		return err
	}
	l.scratch = l.scratch[:0]
	values := make([]string, len(l.templates))
	for i, t := range l.templates {
		if values[i], err = t.Value(&r); err != nil {
			return err
		}
		l.scratch = append(binary.AppendUvarint(l.scratch, uint64(len(values[i]))), values[i]...)
	}
	id, known := l.ids[string(l.scratch)]
	if !known {
		id = uint32(len(l.descriptors))
		l.ids[string(l.scratch)] = id
		l.descriptors = append(l.descriptors, l.descriptor(values))
	}
	if n := len(l.requests); n > 0 && r.AtMicros < l.requests[n-1].atMicros {
		l.unsorted = true
	}
	l.requests = append(l.requests, request{r.AtMicros, id})
	return nil
}

// descriptor copies the values, so that they do not keep their line alive.
func (l *Log) descriptor(values []string) []rules.Entry {
	entries := make([]rules.Entry, len(values))
	for i, t := range l.templates {
		entries[i] = rules.Entry{Key: t.Key, Value: strings.Clone(values[i])}
	}
	return entries
}

// sort puts the requests in the order of time; those of one time stay as they were read.
func (l *Log) sort() {
	if l.unsorted {
		slices.SortStableFunc(l.requests, func(a, b request) int { return cmp.Compare(a.atMicros, b.atMicros) })
		l.unsorted = false
	}
}

// span returns the times of the first and the last request of a sorted log.
func (l *Log) span() (first, last time.Time) {
	if len(l.requests) == 0 {
		return first, last
	}
	return timeOf(l.requests[0].atMicros), timeOf(l.requests[len(l.requests)-1].atMicros)
}

func timeOf(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

// plainText returns a reader of the text in r, and refuses what is not text.
func plainText(name string, r io.Reader) (*bufio.Reader, error) {
	raw := bufio.NewReaderSize(r, MaxLine)
	magic, _ := raw.Peek(2)
	switch {
	case string(magic) == "\x1f\x8b":
		unzipped, err := gzip.NewReader(raw)
		if err != nil {
			return nil, explain(err)
		}
		raw = bufio.NewReaderSize(unzipped, MaxLine)
	case strings.HasSuffix(name, ".gz"):
		return nil, errors.New("is named .gz and is not compressed by gzip")
	}
	start, err := raw.Peek(1024)
	if err != nil && err != io.EOF {
		return nil, explain(err)
	}
	if bytes.IndexByte(start, 0) >= 0 {
		return nil, errors.New("is binary: want the text of an access log, plain or compressed by gzip")
	}
	if bytes.HasPrefix(start, byteOrderMark) { // it would be a part of the first client's name
		raw.Discard(len(byteOrderMark))
	}
	return raw, nil
}

var byteOrderMark = []byte("\ufeff")

// explain says what an error of a file's reader means.
func explain(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the compressed file is cut short: %w", err)
	}
	return err
}

var errLong = fmt.Errorf("the line is longer than %d bytes", MaxLine)

// readLine returns the next line without its end, valid until the next call; with
// io.EOF the last one. Of a line that is too long it returns errLong, and reads past it.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return bytes.TrimRight(line, "\r\n"), err
	}
	for err == bufio.ErrBufferFull {
		_, err = r.ReadSlice('\n')
	}
	if err != nil && err != io.EOF {
		return nil, err
	}
	return nil, errLong // at the end of the file the next call says io.EOF
}
