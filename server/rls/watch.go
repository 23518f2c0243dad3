package rls

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"weir.dev/weir"
)

// watchedStore measures the questions to a store.
type watchedStore struct {
	weir.Store
	metrics *metrics
	log     *slog.Logger
	classOf func(error) string
	faults  spells
}

func (s *Service) watch(store weir.Store) *watchedStore {
	return &watchedStore{Store: store, metrics: s.metrics, log: s.log, classOf: s.classOf}
}

func (w *watchedStore) Take(ctx context.Context, ask weir.Ask) (weir.Decision, error) {
	start := time.Now()
	d, err := w.Store.Take(ctx, ask)
	w.metrics.commands.Observe(time.Since(start).Seconds())
	if err != nil || d.Cause != nil {
		w.note(ctx, errors.Join(err, d.Cause))
	}
	return d, err
}

func (w *watchedStore) TakeAll(ctx context.Context, asks []weir.Ask, decisions []weir.Decision) error {
	start := time.Now()
	err := w.Store.TakeAll(ctx, asks, decisions)
	w.metrics.commands.Observe(time.Since(start).Seconds())
	if fault := firstFault(decisions, err); fault != nil {
		w.note(ctx, fault)
	}
	return err
}

// firstFault returns why a question to the store had no answer, or a part of it none.
func firstFault(decisions []weir.Decision, err error) error {
	for i := 0; i < len(decisions) && err == nil; i++ {
		err = decisions[i].Cause
	}
	return err
}

// note counts a question without an answer; that its caller has left is no fault of the
// store. Clients can make as many as they like while a store is away, so the log has the
// first of a spell.
func (w *watchedStore) note(ctx context.Context, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	class := w.classOf(err)
	w.metrics.storeErrors.WithLabelValues(class).Inc()
	if w.faults.begins(class, time.Now()) {
		w.log.Error("the store could not decide; more of this class are only counted", "class", class, "error", err)
	}
}

// classOf returns the store's own name for the kind of an error, where it has one.
func classOf(err error, own func(error) string) string {
	if own != nil {
		if class := own(err); class != "" {
			return class
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return "other"
}

// quiet is how long nothing of a class must have happened before it is news again.
const quiet = 10 * time.Second

// spells tells the first event of each class after a time of quiet.
type spells struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// begins reports whether an event of the class is the first of a spell.
func (s *spells) begins(class string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		s.last = make(map[string]time.Time)
	}
	last, known := s.last[class]
	s.last[class] = now
	return !known || now.Sub(last) >= quiet
}

// sampler lets one event a second through.
type sampler struct{ next atomic.Int64 } // nanoseconds since 1970

func (s *sampler) ready(now time.Time) bool {
	next := s.next.Load()
	return now.UnixNano() >= next && s.next.CompareAndSwap(next, now.Add(time.Second).UnixNano())
}
