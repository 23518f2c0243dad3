package envoytest

import (
	"fmt"
	"strings"
	"testing"

	"weir.dev/weir/internal/redistest"
)

// untilCentral waits until the service decides by its Redis server again, all of it.
func (c client) untilCentral(t *testing.T, s *service, redis *redistest.Server) {
	t.Helper()
	healthy := fmt.Sprintf("rate_limit_store_node_state{node=%q} 0\n", redis.Addr)
	wait(t, "decisions by the store", func() error {
		r := c.get(t, "/", "x-rule", "else-allow", "x-user", fresh("poll"))
		if by := r.header.Get("X-Decided-By"); by != "store" {
			return fmt.Errorf("status %d, decided by %q", r.status, by)
		}
		metrics, err := page(s.http, "/metrics")
		if err == nil && !strings.Contains(metrics, healthy) {
			err = fmt.Errorf("no %q", healthy)
		}
		return err
	})
}

// A busy machine may be late with an answer, whatever the service does. One that waited
// for Redis would be late with each, since its own budget is far beyond, so a single round
// without a timeout shows that it does not. Each round begins with a service that does not
// know yet that Redis hangs; the later ones are for machines that are very busy.
func TestAnswersMeetEnvoysDefaultTimeoutWhileRedisHangs(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Redis7, redistest.Options{})
	s := startService(t, serve("testdata/rules.yaml", "redis://"+redis.Addr+"?budget=30s", "--instances", "1"))
	e := startEnvoy(t,
		listener{Name: "default", Service: s.grpc, Filter: []string{"failure_mode_deny: true"}},
		listener{Name: "longer", Service: s.grpc, Filter: []string{"failure_mode_deny: true", "timeout: 0.2s"}},
		listener{Name: "patient", Service: s.grpc, Filter: patient})
	var rounds []string
	for round := range 20 {
		name := "default"
		if round >= 10 {
			name = "longer"
		}
		ask := func(rule, user string) int { return e.at(name).get(t, "/", "x-rule", rule, "x-user", user).status }
		timeouts := func() int { return e.stat(t, "cluster."+name+".upstream_rq_timeout") }
		e.at("patient").untilCentral(t, s, redis)
		redis.Pause()
		before, user := timeouts(), fresh("bob")
		got := fmt.Sprint(ask("else-deny", user), ask("else-allow", user), ask("two", user), ask("two", user), ask("two", user))
		late := timeouts() - before
		redis.Resume()
		rounds = append(rounds, fmt.Sprintf("%s: %s, %d late", name, got, late))
		if late == 0 {
			if want := "429 200 200 200 429"; got != want { // by deny, allow and twice of the local share
				t.Errorf("statuses %s, want %s", got, want)
			}
			return
		}
	}
	t.Errorf("an answer was late in each of %d rounds: %q", len(rounds), rounds)
}

func TestRedisThatIsAwayIsWhatTheRulesSayUntilItReturns(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Redis7, redistest.Options{})
	s := startService(t, serve("testdata/rules.yaml", "redis://"+redis.Addr+"?budget=200ms"))
	e := startEnvoy(t,
		listener{Name: "deny", Service: s.grpc, Filter: patient},
		listener{Name: "allow", Service: s.grpc, Filter: []string{"timeout: 60s"}})
	deny, allow := e.at("deny"), e.at("allow")
	for range 2 {
		deny.untilCentral(t, s, redis)
		deny.expect(t, twice, "/", "x-rule", "else-error", "x-user", fresh("bob"))

		redis.Kill()
		user := fresh("eve")
		deny.expect(t, []int{200, 200, 200}, "/", "x-rule", "else-allow", "x-user", user)
		deny.expect(t, []int{429, 429}, "/", "x-rule", "else-deny", "x-user", user)
		deny.expect(t, []int{500, 500}, "/", "x-rule", "else-error", "x-user", user) // Envoy is told to deny
		allow.expect(t, []int{200, 200, 200}, "/", "x-rule", "else-error", "x-user", user)
		redis.Restart()
	}
	deny.untilCentral(t, s, redis)
	if got := e.filterStat(t, "allow", "failure_mode_allowed"); got != 6 {
		t.Errorf("Envoy let %d pass because of errors, want 6", got)
	}
	if got := e.filterStat(t, "deny", "error"); got != 4 {
		t.Errorf("Envoy denied %d because of errors, want 4", got)
	}
}

func TestServiceThatIsAwayLeavesTheChoiceToEnvoyUntilItReturns(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Redis7, redistest.Options{})
	s := startService(t, serve("testdata/rules.yaml", "redis://"+redis.Addr+"?budget=30s", "--drain-wait", "0s"))
	e := startEnvoy(t,
		listener{Name: "deny", Service: s.grpc, Filter: patient},
		listener{Name: "allow", Service: s.grpc, Filter: []string{"timeout: 60s"}})
	bob := []string{"x-rule", "two", "x-user", fresh("bob")}
	e.at("deny").expect(t, []int{200}, "/", bob...)
	e.at("allow").expect(t, []int{200}, "/", bob...)
	for how, end := range map[string]func(){"killed": s.Kill, "terminated": s.Terminate} {
		end()
		e.at("deny").expect(t, []int{500}, "/", bob...)
		e.at("allow").expect(t, []int{200}, "/", bob...)
		s.restart(t)
		// Redis has kept the count, and the first request after the restart is counted.
		e.at("deny").expect(t, []int{429}, "/", bob...)
		e.at("allow").expect(t, []int{429}, "/", bob...)
		if t.Failed() {
			t.Fatalf("after the service was %s", how)
		}
	}
	if got := e.stat(t, "cluster.deny.upstream_rq_timeout"); got != 0 {
		t.Errorf("%d requests timed out, want 0", got)
	}
}
