package redisstore

import (
	"bytes"
	"fmt"
	"sync"
)

// order is what a connection of a Sentinel group is owed. There the client subscribes to
// what the Sentinels tell, asks them for the master, and a server for its role. It ends the
// process, in a goroutine where nobody can recover, at an answer out of turn and at one
// that has fewer parts than it looks at. So those are refused here.
type order struct {
	mu         sync.Mutex
	owed       []debt // the next first
	resp2      bool   // pushes are lists
	subscribes bool
	doubt      bool // UNSUBSCRIBE was refused, so the client takes nothing but PONG
}

// debt is what one command is owed.
type debt struct {
	verb     verb
	confirms int64 // by SUBSCRIBE: channels not confirmed yet
	begun    bool  // one was
}

type verb uint8

const (
	other verb = iota
	subscribe
	unsubscribe // the client sends a PING behind it and takes both answers as one
	role        // of at least one part
	master      // of at least two
)

// asked notes a command.
func (o *order) asked(f *frames) {
	o.mu.Lock()
	defer o.mu.Unlock()
	d := debt{}
	switch string(f.words[0]) {
	case "HELLO":
		o.resp2 = string(f.words[1]) == "2"
	case "SUBSCRIBE":
		o.subscribes, d = true, debt{verb: subscribe, confirms: f.size - 1}
	case "UNSUBSCRIBE":
		o.subscribes, d.verb = true, unsubscribe
	case "ROLE":
		d.verb = role
	case "SENTINEL":
		if bytes.EqualFold(f.words[1], []byte("GET-MASTER-ADDR-BY-NAME")) {
			d.verb = master
		}
	}
	o.owed = append(o.owed, d)
}

// answered returns an error at an answer that the client would not survive.
func (o *order) answered(f *frames) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	isList := f.kind == '*' || f.kind == '~'
	word := string(f.words[0])
	if f.kind == '>' || o.resp2 && o.subscribes && isList && f.size > 0 && word != "pong" {
		return o.pushed(word, f)
	}
	if len(o.owed) == 0 {
		return fmt.Errorf("%w: it answers more than it was asked", errGarbage)
	}
	next, isPong := o.owed[0], pong(f)
	o.owed = o.owed[1:]
	ok := true
	switch {
	case o.doubt:
		o.doubt, ok = false, isPong
	case next.verb == subscribe:
		ok = f.kind == '-' && !next.begun
	case next.verb == unsubscribe && isPong:
		if ok = len(o.owed) > 0; ok {
			o.owed = o.owed[1:]
		}
	case next.verb == unsubscribe:
		o.doubt, ok = true, word != "QUEUED"
	case next.verb == role:
		ok = !isList || f.size >= 1
	case next.verb == master:
		ok = !isList || f.size >= 2
	}
	if !ok {
		return fmt.Errorf("%w: %.40q is no answer to what was asked", errGarbage, word)
	}
	return nil
}

// pushed returns an error at a push that the client would not survive.
func (o *order) pushed(word string, f *frames) error {
	if f.size < 2 {
		return nil // the client passes over it
	}
	confirms := len(o.owed) > 0 && o.owed[0].verb == subscribe
	switch word {
	case "subscribe", "psubscribe", "ssubscribe":
		if !confirms {
			return fmt.Errorf("%w: a subscription never asked for", errGarbage)
		}
	case "unsubscribe", "punsubscribe", "sunsubscribe":
		if !confirms || !o.owed[0].begun {
			return nil
		}
	case "message":
		return event(string(f.words[1]), f.words[2])
	default:
		return nil
	}
	d := &o.owed[0]
	d.begun = true
	if d.confirms--; d.confirms < 1 {
		o.owed = o.owed[1:]
	}
	return nil
}

// events are how many words the client looks at in what Sentinels tell, by its channel.
var events = map[string]int{"+sentinel": 4, "+switch-master": 5, "+reboot": 4}

func event(channel string, text []byte) error {
	if bytes.Count(text, []byte(" ")) < events[channel]-1 {
		return fmt.Errorf("%w: %s %.80q, want %d words", errGarbage, channel, text, events[channel])
	}
	return nil
}

// pong reports whether the client takes an answer for that to the PING behind UNSUBSCRIBE.
func pong(f *frames) bool {
	word := f.words[0]
	if f.kind == '-' {
		return bytes.HasPrefix(word, []byte("LOADING")) || bytes.HasPrefix(word, []byte("BUSY")) || bytes.Contains(word, []byte("'ping'"))
	}
	return string(word) == "PONG" && f.size == 0 || string(word) == "pong" && f.size > 0
}
