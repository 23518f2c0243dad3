package lease_test

import (
	"context"
	"fmt"

	"weir.dev/weir"
	"weir.dev/weir/lease"
	"weir.dev/weir/memstore"
)

// In front of a redisstore in earnest; memstore stands in for it here.
func Example() {
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		panic(err)
	}
	tier, err := lease.New(store, lease.Options{Block: 50, Instances: 12})
	if err != nil {
		panic(err)
	}
	defer tier.Close()
	api, err := weir.New(tier, "api", weir.PerHour(3), weir.Options{})
	if err != nil {
		panic(err)
	}
	for range 5 {
		d, _ := api.Take(context.Background(), weir.Text("acme"), 1)
		fmt.Println(d.Allowed, d.Source)
	}
	// Output:
	// true store
	// true store
	// true store
	// false store
	// false cache
}

// What may pass beyond the limits, for a page that operators read.
func ExampleBound() {
	opts := lease.Options{Block: 50, Instances: 12}
	for _, limit := range []weir.Limit{
		weir.PerSecond(1000).Burst(2000),
		weir.PerMinute(60_000).By(weir.FixedWindow),
		weir.PerSecond(100),
	} {
		fmt.Println(limit, "+", lease.Bound(limit, opts))
	}
	// Output:
	// 1000 per 1s burst 2000 by gcra + 87
	// 60000 per 1m0s by fixed_window + 0
	// 100 per 1s by gcra + 0
}
