package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/redis/rueidis"
)

// Class says what kind of failure kept a server from deciding. It is a closed set, fit
// for a metric's label.
type Class string

// The classes.
const (
	Unreachable Class = "unreachable" // no connection: nothing was sent
	Timeout     Class = "timeout"     // no answer within the budget: it may have been decided
	Broken      Class = "broken"      // the connection broke before the answer: it may have been decided
	Loading     Class = "loading"     // the server is starting
	Down        Class = "down"        // CLUSTERDOWN, MASTERDOWN, NOREPLICAS: the cluster refuses writes
	Moving      Class = "moving"      // MOVED, ASK, TRYAGAIN beyond the budget: slots on the move
	ReadOnly    Class = "readonly"    // the server has become a replica
	Busy        Class = "busy"        // another script holds the server
	OutOfMemory Class = "oom"         // maxmemory reached, or the disk is full (MISCONF)
	Config      Class = "config"      // credentials, ACL, a server without scripts: somebody must mend it
	Corrupt     Class = "corrupt"     // the key holds something else, or what it holds cannot be read
	Garbage     Class = "garbage"     // an answer that no script of weir gives
	Closed      Class = "closed"      // the store was closed
)

// Error is why a server did not decide.
type Error struct {
	Class Class
	// Executed is false where the question certainly changed nothing; true means that
	// it may have.
	Executed bool
	Err      error
}

// Error names the class and the cause.
func (e *Error) Error() string { return fmt.Sprintf("redis: %s: %v", e.Class, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// replyClasses are the errors that servers answer, by how they begin. None of them ran
// the script, but for those behind a write of it: our scripts check before they write.
var replyClasses = []struct {
	prefix string
	class  Class
}{
	{"MOVED", Moving}, {"ASK", Moving}, {"TRYAGAIN", Moving}, {"CROSSSLOT", Moving},
	{"CLUSTERDOWN", Down}, {"MASTERDOWN", Down}, {"NOREPLICAS", Down},
	{"LOADING", Loading}, {"READONLY", ReadOnly}, {"BUSY", Busy}, {"UNKILLABLE", Busy},
	{"OOM", OutOfMemory}, {"MISCONF", OutOfMemory},
	{"NOAUTH", Config}, {"WRONGPASS", Config}, {"NOPERM", Config}, {"NOSCRIPT", Config}, {"DENIED", Config},
	{"WRONGTYPE", Corrupt},
}

// classify returns err as an *Error.
func classify(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	if reply, ok := rueidis.IsRedisErr(err); ok {
		return classifyText(reply.Error(), reply)
	}
	var dial *net.OpError
	switch {
	case errors.Is(err, errGarbage):
		return &Error{Garbage, true, err}
	case errors.Is(err, rueidis.ErrClosing):
		return &Error{Closed, true, err}
	case errors.Is(err, rueidis.ErrNoSlot):
		return &Error{Down, false, err}
	case errors.As(err, &dial) && dial.Op == "dial", errors.Is(err, syscall.ECONNREFUSED):
		return &Error{Unreachable, false, err}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return &Error{Timeout, true, err}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.As(err, &dial):
		return &Error{Broken, true, err}
	case rueidis.IsParseErr(err):
		return &Error{Garbage, true, err}
	}
	return &Error{Garbage, true, err}
}

// classifyText classes an error that a server answered.
func classifyText(text string, reply error) *Error {
	for _, c := range replyClasses {
		if strings.HasPrefix(text, c.prefix) {
			// Behind a write of the same script, memory may run out halfway.
			return &Error{c.class, c.class == OutOfMemory && strings.Contains(text, "script:"), reply}
		}
	}
	// Within a script an error of a command comes wrapped in words of the version.
	switch {
	case strings.Contains(text, "WEIRSTATE"), strings.Contains(text, "WRONGTYPE"), strings.Contains(text, "not an integer"):
		return &Error{Corrupt, false, reply}
	case strings.Contains(text, "OOM command not allowed"), strings.Contains(text, "MISCONF"):
		return &Error{OutOfMemory, true, reply}
	case strings.Contains(text, "can't run this command"), strings.Contains(text, "NOPERM"), strings.Contains(text, "No permissions"),
		strings.Contains(text, "unknown command"), strings.Contains(text, "invalid password"), strings.Contains(text, "no such user"):
		return &Error{Config, false, reply}
	case strings.Contains(text, "READONLY"), strings.Contains(text, "read only"):
		return &Error{ReadOnly, false, reply}
	case strings.Contains(text, "NOREPLICAS"):
		return &Error{Down, false, reply}
	case strings.Contains(text, "Connection refused"), strings.Contains(text, "no upstream host"): // proxies, of the server
		return &Error{Unreachable, false, reply}
	case strings.Contains(text, "timed out"), strings.Contains(text, "upstream failure"):
		return &Error{Timeout, true, reply}
	}
	return &Error{Garbage, true, reply}
}

// again reports whether the question may be sent once more within its budget: it
// certainly did not run, and a moment may help.
func (e *Error) again() bool {
	if e.Executed {
		return false
	}
	switch e.Class {
	case Moving, ReadOnly, Unreachable, Loading, Down:
		return true
	}
	return false
}

// after returns the error of an attempt that followed one which certainly did not run.
// If it ran out of time, what took the time is why there had to be another attempt.
func (e *Error) after(before *Error) *Error {
	var late net.Error
	if before == nil || e.Class != Timeout && !(e.Class == Unreachable && errors.As(e.Err, &late) && late.Timeout()) {
		return e
	}
	return &Error{before.Class, e.Executed, fmt.Errorf("no time to ask again: %w", before.Err)}
}
