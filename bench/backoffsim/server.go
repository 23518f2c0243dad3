package backoffsim

import (
	"container/heap"
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// server is a queue before equal workers, as an http.RoundTripper: first come, first served, each request a constant time.
// It works out on arrival when a request will be done, and sleeps until then.
type server struct {
	scenario    Scenario
	hint        bool
	begun       time.Time
	from, until time.Duration // the fault

	mu        sync.Mutex
	free      instants        // when each worker is
	starts    []time.Duration // of the requests that wait, in order
	perSecond []int           // attempts
	refusals  [2]int          // of the current and of the last second
	second    int
	seen      int // requests while some fail
}

func newServer(s Scenario, hint bool) *server {
	v := &server{scenario: s, hint: hint, begun: time.Now()}
	if s.Fault != NoFault {
		v.from = warmUp
		v.until = warmUp + s.For
	}
	v.free = make(instants, s.Workers)
	v.perSecond = make([]int, int((v.until+s.After)/time.Second)+2)
	return v
}

func (v *server) now() time.Duration { return time.Since(v.begun) }

// capacity is requests per second.
func (v *server) capacity() float64 {
	return float64(v.scenario.Workers) / v.scenario.Service.Seconds()
}

// RoundTrip lets the request arrive in its client's next slot and answers when it is done, or when its context ends.
func (v *server) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	id := ctx.Value(idKey{}).(int)
	if err := v.align(ctx, id, 0); err != nil {
		return nil, err
	}
	now := v.now()
	answer := v.arrive(now)
	switch {
	case answer.never:
		<-ctx.Done()
		return nil, ctx.Err()
	case answer.unreachable:
		return nil, errUnreachable
	case answer.refused:
		return respond(http.StatusServiceUnavailable, answer.retryAfter), nil
	}
	if err := v.align(ctx, id, answer.done-now); err != nil {
		return nil, err
	}
	return respond(http.StatusOK, 0), nil
}

type answer struct {
	never, unreachable, refused bool
	retryAfter                  int // seconds; 0: none
	done                        time.Duration
}

// arrive decides what becomes of a request.
func (v *server) arrive(now time.Duration) answer {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.count(now)
	faulty := now >= v.from && now < v.until
	if faulty {
		switch v.scenario.Fault {
		case Refuse:
			return answer{refused: true, retryAfter: v.retryAfter(int((v.until-now)/time.Second) + 1)}
		case Unreachable:
			return answer{unreachable: true}
		case BlackHole:
			return answer{never: true}
		case TwentiethOf:
			if v.seen++; v.seen%20 == 0 {
				return answer{refused: true, retryAfter: v.retryAfter(1)}
			}
		}
	}
	for len(v.starts) > 0 && v.starts[0] <= now {
		v.starts = v.starts[1:]
	}
	if len(v.starts) >= v.scenario.Queue {
		v.refuse(now)
		return answer{refused: true, retryAfter: v.retryAfter(1 + int(float64(v.refusals[1])/v.capacity()))}
	}
	service := v.scenario.Service
	if faulty && v.scenario.Fault == HalfWorkers {
		service *= 2 // the same capacity as half the workers, and nothing to move when they come back
	}
	start := max(now, v.free[0])
	if start > now {
		v.starts = append(v.starts, start)
	}
	v.work(start + service)
	return answer{done: start + service}
}

// refuse charges a refusal to the worker that is free first. A server more than a second behind drops packets instead.
func (v *server) refuse(now time.Duration) {
	v.refusals[0]++
	if cost := v.scenario.RejectCost; cost > 0 && v.free[0] < now+time.Second {
		v.work(max(now, v.free[0]) + cost)
	}
}

// work makes the worker that is free first busy until then.
func (v *server) work(until time.Duration) {
	v.free[0] = until
	heap.Fix(&v.free, 0)
}

func (v *server) count(now time.Duration) {
	second := int(now / time.Second)
	v.perSecond[second]++
	for ; v.second < second; v.second++ {
		v.refusals = [2]int{0, v.refusals[0]}
	}
}

func (v *server) retryAfter(seconds int) int {
	if !v.hint {
		return 0
	}
	return seconds
}

// align sleeps at least d, until an instant of that client's. Whether the context's deadline comes first is worked out
// and not left to a race.
func (v *server) align(ctx context.Context, id int, d time.Duration) error {
	now := v.now()
	at := (now + d - time.Duration(id) + slot - 1) / slot * slot
	at += time.Duration(id)
	if deadline, ok := ctx.Deadline(); ok && !v.begun.Add(at).Before(deadline) {
		<-ctx.Done()
		return ctx.Err()
	}
	timer := time.NewTimer(at - now)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errUnreachable = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}

// respond makes an answer, with a Retry-After if that is not 0. Each is new, because the receiver may change it.
func respond(status, retryAfter int) *http.Response {
	header := http.Header{}
	if retryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	return &http.Response{StatusCode: status, Header: header, Body: http.NoBody}
}

// instants is a min-heap.
type instants []time.Duration

func (h instants) Len() int           { return len(h) }
func (h instants) Less(i, j int) bool { return h[i] < h[j] }
func (h instants) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *instants) Push(x any)        { *h = append(*h, x.(time.Duration)) }
func (h *instants) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
