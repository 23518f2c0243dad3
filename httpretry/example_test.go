package httpretry_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/httpretry"
)

// A client that repeats what is safe to repeat. One Transport serves the whole process.
func ExampleNew() {
	calls := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls++; calls == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()

	retrying, err := httpretry.New(http.DefaultTransport, httpretry.Options{
		Backoff: httpretry.Backoff{Base: time.Millisecond},
		Budget:  httpretry.Budget{PerSecond: 1}, // a program that makes few calls
	})
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: retrying, Timeout: 10 * time.Second}
	resp, err := client.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	fmt.Println(resp.StatusCode, "after", calls, "attempts")
	// Output: 200 after 2 attempts
}

// A limiter of the library spaces the requests of all processes that share its store, retries included.
func ExampleOptions_limiter() {
	var limiter *weir.Limiter // made by weir.New

	_, err := httpretry.New(http.DefaultTransport, httpretry.Options{
		Wait: func(ctx context.Context, r *http.Request) error {
			_, err := limiter.Wait(ctx, weir.Text(r.URL.Host), 1)
			return err
		},
	})
	if err != nil {
		log.Fatal(err)
	}
}

// Metrics: labels from closed sets only.
func ExampleOptions_metrics() {
	counts := map[string]int{}
	transport, err := httpretry.New(http.DefaultTransport, httpretry.Options{
		Observe: func(_ context.Context, o httpretry.Observation) { // called concurrently: a real one locks
			counts[string(o.Outcome)+" "+string(o.Reason)]++
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	_ = &http.Client{Transport: transport}
}

func ExampleBackoff_Draw() {
	b := httpretry.Backoff{Jitter: httpretry.EqualJitter, Base: 100 * time.Millisecond, Cap: time.Second}
	for retry := 1; retry <= 5; retry++ {
		fmt.Print(b.Draw(retry, 0, 0.5), " ") // 0.5: the middle of each interval
	}
	// Output: 75ms 150ms 300ms 600ms 750ms
}
