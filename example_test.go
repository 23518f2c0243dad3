package weir_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/memstore"
)

// Ten lines, one process.
func Example() {
	store, _ := memstore.New(memstore.Options{})
	login, err := weir.New(store, "login", weir.PerMinute(5), weir.Options{})
	if err != nil {
		panic(err) // the limit or an option is wrong: say so at start
	}
	d, _ := login.Take(context.Background(), weir.Text("alice"), 1)
	if !d.Allowed {
		fmt.Println("try again in", d.RetryAfter)
	}
	fmt.Println(d.Allowed, d.Remaining)
	// Output: true 4
}

// newLimiter is for examples that start with a limiter.
func newLimiter(name string, limit weir.Limit) *weir.Limiter {
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		panic(err)
	}
	l, err := weir.New(store, name, limit, weir.Options{})
	if err != nil {
		panic(err)
	}
	return l
}

// A limiter keyed by address allocates nothing.
func ExampleAddr() {
	store, _ := memstore.New(memstore.Options{})
	perIP, _ := weir.New(store, "ip", weir.PerSecond(10), weir.Options{})
	d, _ := perIP.Take(context.Background(), weir.Addr(netip.MustParseAddr("203.0.113.9")), 1)
	fmt.Println(d.Allowed)
	// Output: true
}

// Two limits on one request, all or nothing.
func ExampleTakeAll() {
	store, _ := memstore.New(memstore.Options{})
	perUser, _ := weir.New(store, "user", weir.PerMinute(10), weir.Options{})
	perTenant, _ := weir.New(store, "tenant", weir.PerMinute(1), weir.Options{})
	user, tenant := weir.Parts("acme", "alice"), weir.Text("acme")

	for range 2 {
		d, each, err := weir.TakeAll(context.Background(), perUser.For(user, 1), perTenant.For(tenant, 1))
		switch {
		case err != nil:
			fmt.Println("nobody could decide:", err)
		case !d.Allowed:
			fmt.Println("neither was charged; the user still has", each[0].Remaining)
		default:
			fmt.Println(each[0].Remaining, each[1].Remaining)
		}
	}
	// Output:
	// 9 0
	// neither was charged; the user still has 9
}

// A candidate limit is a limiter in shadow beside the one in force.
func ExampleTakeAll_candidate() {
	store, _ := memstore.New(memstore.Options{})
	now, _ := weir.New(store, "api", weir.PerMinute(100), weir.Options{})
	next, _ := weir.New(store, "api-next", weir.PerMinute(2), weir.Options{Shadow: true})

	key := weir.Text("acme")
	for range 3 {
		d, each, _ := weir.TakeAll(context.Background(), now.For(key, 1), next.For(key, 1))
		fmt.Println(d.Allowed, "would have been denied:", each[1].Shadow)
	}
	// Output:
	// true would have been denied: false
	// true would have been denied: false
	// true would have been denied: true
}

// Wait blocks until the units may be used, at most as long as ctx lives.
func ExampleLimiter_Wait() {
	mailer := newLimiter("mail", weir.PerMinute(2).By(weir.LeakyBucket)) // one each 30 s
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for range 2 {
		_, err := mailer.Wait(ctx, weir.Text("smtp"), 1)
		fmt.Println("not in five seconds:", errors.Is(err, weir.ErrTooLong))
	}
	// Output:
	// not in five seconds: false
	// not in five seconds: true
}

// Reserve is for callers that schedule: take now, start later, or give it back.
func ExampleLimiter_Reserve() {
	mailer := newLimiter("mail", weir.PerMinute(60).By(weir.LeakyBucket))
	ctx, key := context.Background(), weir.Text("smtp")
	mailer.Take(ctx, key, 1)
	d, err := mailer.Reserve(ctx, key, 1, 5*time.Second)
	if err != nil || !d.Allowed {
		return
	}
	fmt.Println("starts in", d.Delay.Round(time.Second))
	timer := time.AfterFunc(d.Delay, func() { fmt.Println("sent") })
	if changedMyMind := true; changedMyMind && timer.Stop() {
		back, _ := mailer.Refund(ctx, key, d, d.Taken)
		fmt.Println("given back:", back)
	}
	// Output:
	// starts in 1s
	// given back: 1
}

// Post-paid cost: take the most it can cost, do it, give back the rest.
func ExampleLimiter_Refund() {
	tokens := newLimiter("tokens", weir.PerHour(100_000).By(weir.FixedWindow))
	ctx, key := context.Background(), weir.Text("acme")
	const most, used = 4096, 1000
	d, err := tokens.Take(ctx, key, most)
	if err != nil || !d.Allowed {
		return
	}
	for range 2 {
		back, _ := tokens.Refund(ctx, key, d, most-used) // a second refund of d changes nothing
		fmt.Println("given back:", back)
	}
	// Output:
	// given back: 3096
	// given back: 0
}

// Plans: one limiter, one name, a limit for each customer. A customer who changes
// plan keeps what was used.
func ExampleLimiter_With() {
	plans := map[string]weir.Limit{
		"free": weir.PerMinute(60),
		"gold": weir.PerMinute(6000).Burst(500),
		"ours": weir.Unlimited(),
	}
	store, _ := memstore.New(memstore.Options{})
	api, _ := weir.New(store, "api", plans["free"], weir.Options{})

	d, _ := api.With(plans["gold"]).Take(context.Background(), weir.Text("acme"), 1)
	fmt.Println(d.Allowed)
	// Output: true
}

// While the store cannot decide, each of 12 processes serves a twelfth of the limit
// from its own memory.
func ExampleOptions_fallback() {
	local, _ := memstore.New(memstore.Options{})
	api, err := weir.New(broken{}, "api", weir.PerSecond(1000), weir.Options{
		Fallback:  local,
		Instances: 12,
	})
	if err != nil {
		panic(err)
	}
	d, _ := api.Take(context.Background(), weir.Text("acme"), 1)
	fmt.Println(d.Allowed, d.Source, d.Cause)
	// Output: true fallback no route to host
}

// broken is a store whose server is away.
type broken struct{ weir.Store }

func (broken) Take(context.Context, weir.Ask) (weir.Decision, error) {
	return weir.Decision{}, errors.New("no route to host")
}

// Limits of one meaning are equal, whichever way they were made.
func ExampleLimit() {
	l := weir.PerMinute(100).Burst(20)
	fmt.Println(l, l == weir.Per(100, time.Minute).Burst(20))
	fmt.Println(weir.PerSecond(10).By(weir.FixedWindow).Burst(3).Validate())
	// Output:
	// 100 per 1m0s burst 20 by gcra true
	// a burst of 3 by fixed_window: only gcra, token_bucket and leaky_bucket have a burst; leave it out
}
