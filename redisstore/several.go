package redisstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"weir.dev/weir"
	"weir.dev/weir/internal/algorithm"
)

// TakeAll answers several questions in order: in one call on one server. On a Cluster
// it is one call for each client, in parallel; there, when one denies, what the others
// took is given back by a second call each, which goes on where the budget ends before its
// answer, and if that is lost a client was charged too much, never too little. Where a node fails, the decisions that it owed have a Cause.
func (s *Store) TakeAll(ctx context.Context, asks []weir.Ask, decisions []weir.Decision) error {
	if err := weir.ValidateAll(asks, decisions); err != nil {
		return err
	}
	if len(asks) == 1 {
		d, err := s.Take(ctx, asks[0])
		decisions[0] = d
		return err
	}
	return s.takeAll(ctx, asks, decisions, serverClockNow())
}

// mostMicros is the first time that TakeAt does not take: what it leads to is below 2^53
// after the store's epoch.
const mostMicros = 9_400_000_000_000_000

// TakeAt is TakeAll at a time of the caller's, in microseconds since 1970, for replaying
// what happened on keys that nobody else uses. Keys still expire by the server's clock: a
// minute after they would be as new, if that is not put off by another question.
func (s *Store) TakeAt(ctx context.Context, atMicros int64, asks []weir.Ask, decisions []weir.Decision) error {
	if err := weir.ValidateAll(asks, decisions); err != nil {
		return err
	}
	if atMicros < 0 || atMicros >= mostMicros {
		return fmt.Errorf("a time of %d µs is outside 0 to %d (1970 to 2267)", atMicros, int64(mostMicros)-1)
	}
	clock := givenClockAt(atMicros)
	if len(asks) == 1 && asks[0].Limit.Units() > 0 {
		d, err := s.take(ctx, &asks[0], clock)
		decisions[0] = d
		return err
	}
	return s.takeAll(ctx, asks, decisions, clock)
}

// RefundAt is Refund at a time of the caller's, beside TakeAt.
func (s *Store) RefundAt(ctx context.Context, atMicros int64, ask weir.Ask, d weir.Decision) (int64, error) {
	if err := validateRefund(&ask, d); err != nil {
		return 0, err
	}
	return s.refund(ctx, &ask, d, givenClockAt(atMicros))
}

// Forget removes what TakeAt wrote of a key, for the end of a replay. Unlike after Reset,
// nothing is left to tell that a decision is from before.
func (s *Store) Forget(ctx context.Context, name string, key weir.Key) error {
	return s.remove(ctx, name, key, call{script: replay.reset, args: givenClockAt(storeEpoch).arguments(nil)})
}

// remove calls a script that forgets a key, with all of its states.
func (s *Store) remove(ctx context.Context, name string, key weir.Key, c call) error {
	if name == "" || key.IsZero() {
		return fmt.Errorf("limit %q: no name or no key to reset: say which limit, and make a key with Text, Parts or Addr", name)
	}
	b, err := newBudget(ctx, s.opts.Budget)
	if err != nil {
		return err
	}
	defer b.end()
	for _, kind := range algorithm.Kinds {
		c.keys = append(c.keys, stateKey(key, name, kind))
	}
	s.link.runAll(b, []*call{&c})
	return c.err
}

// clock is whose time a question is asked at.
type clock struct {
	*scripts
	now    string // the last argument, where the time is given
	micros int64  // since 1970; of the server's clock a guess
}

func serverClockNow() clock { return clock{scripts: &live, micros: time.Now().UnixMicro()} }

func givenClockAt(atMicros int64) clock {
	return clock{scripts: &replay, now: decimal(atMicros - storeEpoch), micros: atMicros}
}

// arguments returns a script's arguments with the time behind them, if it is given.
func (c clock) arguments(args []string) []string {
	if c.now == "" {
		return args
	}
	return append(args[:len(args):len(args)], c.now)
}

// part is the asks that one call answers, by their places in the question.
type part struct {
	call
	at []int
}

func (s *Store) takeAll(ctx context.Context, asks []weir.Ask, decisions []weir.Decision, c clock) error {
	b, err := newBudget(ctx, s.opts.Budget)
	if err != nil {
		return err
	}
	defer b.end()
	clear(decisions)
	denies, zero := false, false
	for i := range asks {
		if asks[i].Limit.Units() == 0 {
			decisions[i] = denied(c.micros)
			zero, denies = true, denies || !asks[i].Alone
		}
	}
	if zero && denies { // all that is left to know is what else there is
		asks = looking(asks)
	}
	parts := s.split(asks, c)
	calls := make([]*call, len(parts))
	for i := range parts {
		calls[i] = &parts[i].call
	}
	s.link.runAll(b, calls)
	parts = s.askApart(b, parts, asks, c)
	for i := range parts {
		if err := parts[i].read(asks, decisions); err != nil {
			if len(parts) == 1 && !zero {
				return err
			}
			for _, j := range parts[i].at {
				decisions[j] = weir.Decision{Cause: err}
			}
		}
	}
	for i := range asks {
		denies = denies || !asks[i].Alone && !decisions[i].Allowed && decisions[i].Cause == nil
	}
	if denies && len(parts) > 1 {
		s.giveBack(b, asks, decisions, c)
	}
	return nil
}

// looking returns the asks of a question that is denied already: those of the group
// only look.
func looking(asks []weir.Ask) []weir.Ask {
	looks := make([]weir.Ask, len(asks))
	for i, a := range asks {
		if !a.Alone {
			a.Cost, a.Partial = 0, false
		}
		looks[i] = a
	}
	return looks
}

// split groups the asks into calls: one in all, or on a Cluster one for each client.
func (s *Store) split(asks []weir.Ask, c clock) []part {
	parts := make([]part, 0, 1)
	where := make(map[weir.Key]int, 1)
	for i := range asks {
		if asks[i].Limit.Units() == 0 {
			continue
		}
		group := weir.Key{}
		if s.opts.Cluster {
			group = asks[i].Key
		}
		p, ok := where[group]
		if !ok {
			p = len(parts)
			where[group] = p
			parts = append(parts, part{})
		}
		q := questionOf(&asks[i])
		args := s.arguments(q)
		parts[p].at = append(parts[p].at, i)
		parts[p].keys = append(parts[p].keys, stateKey(asks[i].Key, asks[i].Name, algorithm.KindOf(asks[i].Limit.Algorithm())))
		parts[p].args = append(parts[p].args, kindArgument(&asks[i], q), decimal(int64(len(args))))
		parts[p].args = append(parts[p].args, args...)
	}
	for i := range parts {
		parts[i].args = c.arguments(parts[i].args)
		about := kindsOf(asks, parts[i].at)
		parts[i].script = c.several[about]
		if usual, ok := c.straight[about]; ok && parts[i].isUsual(asks) {
			parts[i].script = usual
		}
	}
	return parts
}

// askApart asks again, each by itself, what stands alone in a call that failed for what a
// key holds: that is no fault of the others. A call that fails so has changed nothing.
func (s *Store) askApart(b *budget, parts []part, asks []weir.Ask, c clock) []part {
	var apart []part
	for i := 0; i < len(parts); i++ {
		p := &parts[i]
		isAlone := func(j int) bool { return asks[j].Alone }
		if p.err == nil || classify(p.err).Class != Corrupt || len(p.at) == 1 || !slices.ContainsFunc(p.at, isAlone) {
			continue
		}
		var group []int
		for _, j := range p.at {
			if isAlone(j) {
				apart = append(apart, s.partOf(asks, []int{j}, c))
			} else {
				group = append(group, j)
			}
		}
		if len(group) > 0 {
			apart = append(apart, s.partOf(asks, group, c))
		}
		parts = slices.Delete(parts, i, i+1)
		i--
	}
	if len(apart) == 0 {
		return parts
	}
	again := make([]*call, len(apart))
	for i := range apart {
		again[i] = &apart[i].call
	}
	s.link.runAll(b, again)
	return append(parts, apart...)
}

// partOf returns the one call that answers the asks at some places, which are of one slot.
func (s *Store) partOf(asks []weir.Ask, at []int, c clock) part {
	some := make([]weir.Ask, len(at))
	for n, i := range at {
		some[n] = asks[i]
	}
	p := s.split(some, c)[0]
	p.at = at
	return p
}

// isUsual reports whether all asks are of the group, to be charged, and about a key each.
func (p *part) isUsual(asks []weir.Ask) bool {
	if len(p.at) > mostUsual {
		return false
	}
	for n, i := range p.at {
		q := questionOf(&asks[i])
		if asks[i].Alone || q.isPeek() || slices.Contains(p.keys[:n], p.keys[n]) {
			return false
		}
	}
	return true
}

// mostUsual is up to how many asks the keys of a question are compared with each other.
const mostUsual = 32

// kindArgument tells the script the kind of an ask's state: in upper case where it
// stands alone, and with a p where it only looks, or an x where it can never pass.
func kindArgument(ask *weir.Ask, q question) string {
	kind := []byte{byte(algorithm.KindOf(ask.Limit.Algorithm()))}
	if ask.Alone {
		kind[0] -= 'a' - 'A'
	}
	if q.isPeek() {
		how := byte('p')
		if q.cost > 0 {
			how = 'x'
		}
		kind = append(kind, how)
	}
	return string(kind)
}

// kindsOf returns the set of kinds that some asks are about, as scripts are told apart.
func kindsOf(asks []weir.Ask, at []int) string {
	var asked [256]bool
	for _, i := range at {
		asked[algorithm.KindOf(asks[i].Limit.Algorithm())] = true
	}
	set := make([]algorithm.Kind, 0, len(kinds))
	for _, kind := range kinds {
		if asked[kind] {
			set = append(set, kind)
		}
	}
	return string(set)
}

// read turns a call's reply into decisions.
func (p *part) read(asks []weir.Ask, decisions []weir.Decision) error {
	if p.err != nil {
		return p.err
	}
	text, err := p.reply.ToString()
	if err != nil {
		return classify(fmt.Errorf("%w: %w", errGarbage, err))
	}
	numbers, err := timed(text, make([]int64, 0, 1+6*len(p.at)))
	if err == nil && len(numbers) != 1+6*len(p.at) {
		err = fmt.Errorf("%w: %d numbers to %d asks, want 6 for each", errGarbage, len(numbers)-1, len(p.at))
	}
	if err != nil {
		return classify(err)
	}
	for n, i := range p.at {
		q := questionOf(&asks[i])
		v, err := severalVerdict(&asks[i], q, numbers[0], numbers[1+6*n:7+6*n])
		if err != nil {
			return classify(err)
		}
		decisions[i] = v.decision(&asks[i], q)
	}
	return nil
}

// giveBack refunds what the group took, in other slots than the one that denied. It has a
// budget of its own and goes on if the caller has left; he waits for it as long as that of
// his question lasts.
func (s *Store) giveBack(question *budget, asks []weir.Ask, decisions []weir.Decision, c clock) {
	var calls []*call
	for i := range asks {
		d := &decisions[i]
		if asks[i].Alone || d.Taken == 0 {
			continue
		}
		back := asks[i]
		back.Cost = d.Taken
		kind := algorithm.KindOf(back.Limit.Algorithm())
		calls = append(calls, &call{
			script: c.refund, args: c.arguments(refundArguments(&back, *d)),
			keys: []string{stateKey(back.Key, back.Name, kind), stateKey(back.Key, back.Name, algorithm.KindRefunds)},
		})
		d.Remaining = min(d.Remaining+d.Taken, back.Limit.Capacity())
		d.Taken, d.Delay = 0, 0
	}
	if len(calls) == 0 {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if b, err := newBudget(context.Background(), s.opts.Budget); err == nil {
			defer b.end()
			s.link.runAll(b, calls)
		}
	}()
	select {
	case <-done:
	case <-question.done:
	}
}

// refunded reads the reply of the refund script: how many units of the ask came back.
func refunded(ask *weir.Ask, reply rueidis.RedisMessage) (int64, error) {
	var numbers [8]int64
	row, err := integers(reply, numbers[:0])
	if err == nil && (len(row) != 3 || row[0] < 0 || row[0] > ask.Cost || row[1] < 0 || row[2] < 0) {
		err = fmt.Errorf("%w: %v to a refund of %d units", errGarbage, row, ask.Cost)
	}
	if err != nil {
		return 0, classify(err)
	}
	if row[0] == 0 || algorithm.KindOf(ask.Limit.Algorithm()) != algorithm.KindTAT {
		return row[0], nil
	}
	return algorithm.UnitsIn(ask.Limit.Emission(), row[1], row[2], ask.Cost), nil
}
