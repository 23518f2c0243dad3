package concurrency

import (
	"container/list"
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// standing is how long a queue may have been non-empty before it serves the newest
// first: what has waited that long will likely be too late anyway, and serving it
// would make everybody late. After Nichols and Jacobson's CoDel, and Facebook's
// adaptive LIFO (Maurer, ACM Queue 2015).
const standing = 100 * time.Millisecond

// queue holds those who wait for a place: the most important class first, within a
// class the oldest first, or the newest first while the queue is standing.
type queue struct {
	length  int
	timeout time.Duration
	waiting atomic.Int64
	waited  atomic.Int64 // nanoseconds, by all together

	mu       sync.Mutex
	ranks    []rank    // as the classes, most important first
	nonEmpty time.Time // since when somebody waits
}

// rank is the part of the queue that is one class's.
type rank struct {
	class   *Class
	waiters list.List // of *waiter, oldest first
}

type waiter struct {
	element *list.Element // nil once out of the queue
	granted chan int64    // the number in flight, itself included
}

func newQueue(length int, timeout time.Duration, classes []*Class) *queue {
	q := &queue{length: length, timeout: timeout}
	for _, c := range classes {
		q.ranks = append(q.ranks, rank{class: c})
	}
	return q
}

// wait returns the number in flight once a place was found, or why none was.
func (q *queue) wait(ctx context.Context, c *Class) (int64, Reason) {
	now := time.Now()
	if deadline, ok := ctx.Deadline(); ok && now.Add(q.expected(c.limiter)).After(deadline) {
		return 0, TooLate
	}
	r := &q.ranks[c.rank]
	w, ok := q.enter(now, r)
	if !ok {
		return 0, QueueFull
	}
	q.serve() // a place may have come free between the refusal and the entry
	timer := time.NewTimer(q.timeout)
	defer timer.Stop()
	defer func() { q.waited.Add(int64(time.Since(now))) }()

	reason := Admitted
	select {
	case n := <-w.granted:
		return n, Admitted
	case <-timer.C:
		reason = QueueTimeout
	case <-ctx.Done():
		reason = Canceled
		if ctx.Err() == context.DeadlineExceeded {
			reason = TooLate
		}
	}
	if q.leave(w, r) {
		return 0, reason
	}
	return <-w.granted, Admitted // its turn came at the same moment
}

// expected is how long a newcomer waits if answers go on at the present rate.
func (q *queue) expected(l *Limiter) time.Duration {
	rate := math.Float64frombits(l.throughput.Load())
	if rate == 0 {
		return 0
	}
	return time.Duration(float64(q.waiting.Load()+1) / rate * float64(time.Second))
}

func (q *queue) enter(now time.Time, r *rank) (*waiter, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.waiting.Load()
	if n >= int64(q.length) {
		return nil, false
	}
	if n == 0 {
		q.nonEmpty = now
	}
	w := &waiter{granted: make(chan int64, 1)}
	w.element = r.waiters.PushBack(w)
	q.waiting.Store(n + 1)
	return w, true
}

// leave takes w out; false if it was served already.
func (q *queue) leave(w *waiter, r *rank) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.element == nil {
		return false
	}
	q.remove(w, r)
	return true
}

func (q *queue) remove(w *waiter, r *rank) {
	r.waiters.Remove(w.element)
	w.element = nil
	q.waiting.Add(-1)
}

// serve gives the free places to those who wait.
func (q *queue) serve() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.ranks {
		r := &q.ranks[i]
		for r.waiters.Len() > 0 {
			inFlight, ok := r.class.take()
			if !ok {
				break
			}
			next := r.waiters.Front()
			if time.Since(q.nonEmpty) > standing {
				next = r.waiters.Back()
			}
			w := next.Value.(*waiter)
			q.remove(w, r)
			w.granted <- inFlight
		}
	}
}
