package concurrency_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"weir.dev/weir/concurrency"
)

func Example() {
	limiter, err := concurrency.New(concurrency.Options{})
	if err != nil {
		panic(err) // an option is wrong: say so at start
	}
	permit, ok := limiter.Acquire(context.Background())
	if !ok {
		fmt.Println("busy:", permit.Reason(), "come back in", limiter.RetryAfter())
		return
	}
	defer permit.Release(concurrency.Success)
	fmt.Println("working")
	// Output: working
}

// Payments keep three in ten of the places, however many reports are in flight.
func ExampleLimiter_Class() {
	limiter, _ := concurrency.New(concurrency.Options{
		Classes: []concurrency.ClassOptions{{Name: "payments", Share: 0.3}, {Name: "reports"}},
	})
	payments, _ := limiter.Class("payments")
	permit, ok := payments.Acquire(context.Background())
	fmt.Println(ok)
	permit.Release(concurrency.Success)
	// Output: true
}

func ExampleMiddleware() {
	limiter, _ := concurrency.New(concurrency.Options{QueueLength: 100})
	limit, err := concurrency.Middleware(limiter, concurrency.HTTPOptions{
		Bypass: func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/health") },
	})
	if err != nil {
		panic(err)
	}
	http.Handle("/", limit(http.NotFoundHandler()))
}
