package redisstore

import (
	"sync"

	"github.com/redis/rueidis"
)

// command is a command about one key, with at most one argument.
type command struct{ verb, arg string }

// plain is a few commands about one key without a script. They go out together, in order;
// the reply is that to the first.
type plain struct {
	key      string
	commands []command
	reply    rueidis.RedisMessage // of a key that is not there: nil
	err      error
	last     *Error // of the attempt before
}

// visit is what goes to one node.
type visit struct {
	node    *node
	refused *Error // by the node's breaker
	all     []*plain
}

// runPlain sends commands, one round trip a node and all nodes at once, and those again
// that certainly did not run, while the budget lasts. Each has its reply or its error. For
// the breakers what goes to a node is one question.
func (l *link) runPlain(b *budget, all []*plain) {
	visits := l.visits(b, all)
	client, err := l.get(b)
	if err == nil {
		l.nodes.refresh(client, b.started)
		l.losses.refresh(client, l.nodes, b.started)
	}
	var others sync.WaitGroup
	var ready []*plain
	for i := range visits {
		v := &visits[i]
		switch {
		case v.refused != nil:
			v.fail(v.refused)
		case err != nil:
			v.fail(err)
		case v.node.reached.Load():
			ready = append(ready, v.all...)
		default: // nobody waits for another's node
			others.Go(func() {
				if e := l.reach(b, v.node, client, v.all[0].key); e != nil {
					v.fail(e)
					return
				}
				exchangePlain(b, client, v.all)
			})
		}
	}
	exchangePlain(b, client, ready)
	others.Wait()
	for i := range visits {
		if v := &visits[i]; v.refused == nil {
			l.leave(b, v)
		}
	}
}

// visits groups commands by their nodes, and asks each breaker.
func (l *link) visits(b *budget, all []*plain) []visit {
	visits := make([]visit, 0, 1)
next:
	for _, p := range all {
		n := l.nodes.of(p.key)
		for i := range visits {
			if visits[i].node == n {
				visits[i].all = append(visits[i].all, p)
				continue next
			}
		}
		visits = append(visits, visit{n, n.enter(b.started), []*plain{p}})
	}
	return visits
}

func (v *visit) fail(err error) {
	for _, p := range v.all {
		p.err = err
	}
}

// leave tells the node's breaker how the visit ended: by its worst failure, and not by one
// that says nothing of the node where others were answered.
func (l *link) leave(b *budget, v *visit) {
	var worst *Error
	answered := false
	for _, p := range v.all {
		if p.err == nil {
			answered = true
			continue
		}
		e := classify(p.err)
		p.err = e
		if worst == nil || e.tells() && !worst.tells() {
			worst = e
		}
	}
	if worst != nil && answered && !worst.tells() {
		v.node.note(worst)
		worst = nil
	}
	if worst == nil {
		l.left(b, v.node, nil)
		return
	}
	l.left(b, v.node, worst)
}

// exchangePlain sends commands until each has its reply, or an error that no moment mends.
func exchangePlain(b *budget, client rueidis.Client, all []*plain) {
	for wait := firstWait; len(all) > 0; wait = min(2*wait, longestWait) {
		commands := make([]rueidis.Completed, 0, 2*len(all))
		for _, p := range all {
			for _, c := range p.commands {
				commands = append(commands, c.build(client, p.key))
			}
		}
		results := client.DoMulti(b, commands...)
		left := all[:0:0]
		for _, p := range all {
			n := len(p.commands)
			if p.take(results[:n]); p.err != nil && p.last.again() {
				left = append(left, p)
			}
			results = results[n:]
		}
		if all = left; len(all) > 0 && !b.sleep(wait) {
			return
		}
	}
}

func (c command) build(client rueidis.Client, key string) rueidis.Completed {
	line := client.B().Arbitrary(c.verb).Keys(key)
	if c.arg != "" {
		line = line.Args(c.arg)
	}
	return line.Build()
}

// take takes the results of the commands. If the first has run and another has not, the
// error says that something was done: then none is sent again.
func (p *plain) take(results []rueidis.RedisResult) {
	p.reply, p.err = results[0].ToMessage()
	if rueidis.IsRedisNil(p.err) {
		p.err = nil
	}
	ran := p.err == nil
	for _, r := range results[1:] {
		if err := r.Error(); p.err == nil && err != nil {
			p.err = err
		}
	}
	if p.err == nil {
		return
	}
	p.last = classify(p.err).after(p.last)
	if ran {
		p.last = &Error{p.last.Class, true, p.last.Err}
	}
	p.err = p.last
}
