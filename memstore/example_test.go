package memstore_test

import (
	"context"
	"fmt"

	"weir.dev/weir"
	"weir.dev/weir/memstore"
)

func Example() {
	store, err := memstore.New(memstore.Options{MaxKeys: 100_000}) // at most 4.5 MB
	if err != nil {
		panic(err)
	}
	perUser, err := weir.New(store, "user", weir.PerMinute(2), weir.Options{})
	if err != nil {
		panic(err)
	}
	for range 3 {
		d, _ := perUser.Take(context.Background(), weir.Text("alice"), 1)
		fmt.Println(d.Allowed, d.Remaining)
	}
	// Output:
	// true 1
	// true 0
	// false 0
}

// Replaying what was recorded: the time of each question is the caller's.
func ExampleStore_TakeAt() {
	store, _ := memstore.New(memstore.Options{})
	ask := []weir.Ask{{Name: "api", Key: weir.Text("acme"), Limit: weir.PerSecond(1), Cost: 1}}
	answer := make([]weir.Decision, 1)
	for _, at := range []int64{1_700_000_000_000_000, 1_700_000_000_400_000, 1_700_000_001_000_000} {
		if err := store.TakeAt(context.Background(), at, ask, answer); err != nil {
			panic(err)
		}
		fmt.Println(answer[0].Allowed, answer[0].RetryAfter)
	}
	// Output:
	// true 0s
	// false 600ms
	// true 0s
}

func ExampleStore_Stats() {
	store, _ := memstore.New(memstore.Options{MaxKeys: 2})
	perUser, _ := weir.New(store, "user", weir.PerHour(10), weir.Options{})
	for _, name := range []string{"alice", "bob", "carol", "dave"} {
		d, _ := perUser.Take(context.Background(), weir.Text(name), 1)
		fmt.Println(name, d.Remaining)
	}
	fmt.Printf("%+v\n", store.Stats())
	// Output:
	// alice 9
	// bob 9
	// carol 9
	// dave 8
	// {Keys:2 Room:0 Shared:2}
}

// A denial is charged there: what would have passed afterwards does not.
func ExampleCounters() {
	counters, _ := memstore.NewCounters(memstore.CountersOptions{})
	limit := weir.PerMinute(5).By(weir.FixedWindow)
	at := int64(1_700_000_000_000_000) // 20 s into a minute
	answer := make([]weir.Decision, 1)
	for _, cost := range []int64{4, 3, 1} {
		ask := []weir.Ask{{Name: "user", Key: weir.Text("shop_user_alice_"), Limit: limit, Cost: cost}}
		if err := counters.TakeAt(context.Background(), at, ask, answer); err != nil {
			panic(err)
		}
		fmt.Println(answer[0].Allowed, answer[0].Remaining, answer[0].ResetAfter)
	}
	// Output:
	// true 1 40s
	// false 0 40s
	// false 0 40s
}
