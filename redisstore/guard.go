package redisstore

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/redis/rueidis"
)

// Bounds of what a server may answer: far above what any command of ours is answered,
// the largest being the map of a Cluster.
const (
	mostLine  = 64 << 10
	mostText  = 4 << 20
	mostItems = 1 << 20 // in one answer altogether, and in one question
	mostDepth = 8       // of lists in lists
)

// guarded is a connection whose answers are checked before the client sees them. The
// client believes every length, and ends the process, in a goroutine where nobody can
// recover, at an answer to no question. So this one counts them, and takes no length that
// no server sends.
type guarded struct {
	net.Conn
	sent, received frames
	owed           atomic.Int64 // questions without an answer yet
	order          *order       // in place of it where Sentinels may speak unasked, else nil
}

// Write notes the questions before they leave.
func (g *guarded) Write(b []byte) (int, error) {
	if err := g.sent.read(b, g.asked); err != nil {
		return 0, err
	}
	return g.Conn.Write(b)
}

func (g *guarded) asked(bool) error {
	if g.order != nil {
		g.order.asked(&g.sent)
	} else {
		g.owed.Add(1)
	}
	return nil
}

// Read gives only answers that have been checked.
func (g *guarded) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if bad := g.received.read(b[:n], g.answered); bad != nil {
		g.Conn.Close()
		return 0, bad
	}
	return n, err
}

func (g *guarded) answered(push bool) error {
	switch {
	case g.order != nil:
		return g.order.answered(&g.received)
	case push:
		return fmt.Errorf("%w: it speaks unasked", errGarbage)
	case g.owed.Add(-1) < 0:
		return fmt.Errorf("%w: it answers more than it was asked", errGarbage)
	}
	return nil
}

// frames follows a stream in Redis' protocol (RESP2 and RESP3) and finds where each
// answer ends. It takes the forms that servers use, in the client's own reading of them; an
// error in a text (RESP3's "!") is none of them.
type frames struct {
	line  []byte // the beginning of a line whose end has not come
	text  int64  // bytes of a text, with its line end, still to come
	left  [mostDepth]int64
	depth int // how many lists are open; left says how many items of each are to come
	items int64
	push  bool // the answer is a push

	// Of the answer: its kind; if it is a list, how many items it has; and, if they are kept,
	// its text or the texts of its first items, up to a length.
	kind  byte
	size  int64
	keeps bool
	words [3][]byte
	at    int     // the next item's place among the words
	word  *[]byte // that the text to come is of, or nil
}

// mostWord is how much of a text is kept.
const mostWord = 1 << 10

// read takes the next bytes, and calls done at the end of each answer.
func (f *frames) read(b []byte, done func(push bool) error) error {
	for len(b) > 0 {
		if f.text > 0 {
			n := min(f.text, int64(len(b)))
			f.keep(b[:min(n, max(f.text-2, 0))])
			f.text, b = f.text-n, b[n:]
			if f.text > 0 {
				return nil
			}
			if err := f.end(done); err != nil {
				return err
			}
			continue
		}
		end := bytes.IndexByte(b, '\n') + 1
		if end == 0 || len(f.line) > 0 {
			n := end
			if end == 0 {
				n = len(b)
			}
			if f.line = append(f.line, b[:n]...); len(f.line) > mostLine {
				return fmt.Errorf("%w: a line of more than %d bytes", errGarbage, mostLine)
			}
			if b = b[n:]; end == 0 {
				return nil
			}
		}
		line := f.line
		if len(line) == 0 {
			line, b = b[:end], b[end:]
		}
		if err := f.begin(line, done); err != nil {
			return err
		}
		f.line = f.line[:0]
	}
	return nil
}

// begin takes the line with which a value begins.
func (f *frames) begin(line []byte, done func(bool) error) error {
	if len(line) < 3 || len(line) > mostLine || line[len(line)-2] != '\r' {
		return fmt.Errorf("%w: a line %.40q", errGarbage, line)
	}
	kind, word := line[0], line[1:len(line)-2]
	if f.depth == 0 {
		f.items, f.push = 0, kind == '>'
		f.kind, f.size = kind, 0
		if f.keeps {
			f.at, f.words = 0, [3][]byte{f.words[0][:0], f.words[1][:0], f.words[2][:0]}
		}
	}
	f.next()
	switch kind {
	case '-':
		if redirect(word) && bytes.Count(word, []byte(" ")) < 2 {
			return fmt.Errorf("%w: a redirect %.40q", errGarbage, line)
		}
		f.keep(word)
		return f.end(done)
	case '+', ':', ',', '(':
		f.keep(word)
		return f.end(done)
	case '_', '#':
		if kind == '_' && len(word) == 0 || kind == '#' && len(word) == 1 {
			return f.end(done)
		}
	case '$', '=', '*', '~', '%', '>':
		if string(word) == "-1" && (kind == '$' || kind == '*') {
			return f.end(done)
		}
		n := length(word)
		switch {
		case n < 0 || kind == '>' && f.depth > 0:
		case kind == '$' || kind == '=':
			f.text = n + 2
			return nil
		default:
			if kind == '%' {
				n *= 2
			}
			return f.open(n, done)
		}
	}
	return fmt.Errorf("%w: a value that begins %.40q", errGarbage, line)
}

// next makes the value that begins the next of the words, if it is one to keep.
func (f *frames) next() {
	f.word = nil
	if f.keeps && f.depth < 2 && f.at < len(f.words) {
		f.word = &f.words[f.at]
		f.at++
	}
}

// keep keeps a piece of a text.
func (f *frames) keep(piece []byte) {
	if f.word != nil {
		*f.word = append(*f.word, piece[:min(len(piece), mostWord-len(*f.word))]...)
	}
}

// redirect reports whether the client takes an error for one that names a slot and an
// address. It looks for these without asking whether they are there.
func redirect(text []byte) bool {
	return bytes.HasPrefix(text, []byte("MOVED")) || bytes.HasPrefix(text, []byte("ASK"))
}

// open begins a list of n items.
func (f *frames) open(n int64, done func(bool) error) error {
	if f.depth == 0 {
		f.size, f.at = n, 0
	}
	f.word = nil
	if n == 0 {
		return f.end(done)
	}
	if f.items += n; f.items > mostItems || f.depth == mostDepth {
		return fmt.Errorf("%w: more than %d items, or lists more than %d deep", errGarbage, mostItems, mostDepth)
	}
	f.left[f.depth] = n
	f.depth++
	return nil
}

// end closes a value, and every list of which it was the last.
func (f *frames) end(done func(bool) error) error {
	for f.depth > 0 {
		if f.left[f.depth-1]--; f.left[f.depth-1] > 0 {
			return nil
		}
		f.depth--
	}
	return done(f.push)
}

// length returns the number that digits say, or -1 if it is none up to mostText.
func length(digits []byte) (n int64) {
	for _, c := range digits {
		if c < '0' || c > '9' {
			return -1
		}
		if n = 10*n + int64(c-'0'); n > mostText {
			return -1
		}
	}
	if len(digits) == 0 {
		return -1
	}
	return n
}

// guard makes every connection of a client a guarded one and, where RESP2 is spoken, one
// without HELLO.
func guard(opt *rueidis.ClientOption) {
	dial := opt.DialCtxFn
	if dial == nil {
		dial = func(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
			if config == nil {
				return d.DialContext(ctx, "tcp", addr)
			}
			secure := tls.Dialer{NetDialer: d, Config: config}
			return secure.DialContext(ctx, "tcp", addr)
		}
	}
	opt.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
		conn, err := dial(ctx, addr, d, config)
		if err != nil {
			return nil, err
		}
		if opt.AlwaysRESP2 {
			conn = &silent{Conn: conn}
		}
		g := &guarded{Conn: conn}
		if opt.Sentinel.MasterSet != "" {
			g.order, g.sent.keeps, g.received.keeps = &order{}, true, true
		}
		return g, nil
	}
}
