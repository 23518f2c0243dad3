// Command overload measures what the limiter of package concurrency does for a real
// HTTP server: goodput and latency at 0.7, 1.2 and 3 times the capacity, with the
// limiter and without, for a handler bound by the processor and for one bound by a
// pool. The server is a process of its own with one processor. Capacity is measured
// first, by as many clients as keep the server busy and no more. It prints a
// Markdown table; figures depend on the machine.
package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"weir.dev/weir/concurrency"
)

const (
	deadline  = time.Second // an answer later than this is worth nothing
	hashings  = 500         // of SHA-256 over 4 KiB: some milliseconds of processor time
	poolSize  = 10
	poolHold  = 20 * time.Millisecond
	warmUp    = 3 * time.Second
	measured  = 5 * time.Second
	rounds    = 3
	maxOpened = 4000 // requests in flight at the generator
)

func main() {
	serving := flag.String("serve", "", "be the server: on or off, for the limiter")
	flag.Parse()
	if *serving != "" {
		serve(*serving == "on")
		return
	}
	fmt.Printf("%s, %d processors, one for the server; %v; deadline %v; median of %d interleaved rounds, each %v after %v.\n\n",
		runtime.GOARCH, runtime.NumCPU(), runtime.Version(), deadline, rounds, measured, warmUp)
	fmt.Println("| handler | capacity | load | limiter | in time, of capacity or load | least and most | p50 | p99 | refused |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	for _, path := range []string{"processor", "pool"} {
		outcomes := map[string][]outcome{}
		for range rounds {
			capacity := withServer("off", func(url string) *report { return closedLoop(url+path, 10) }).perSecond()
			for _, load := range loads {
				for _, limiter := range []string{"off", "on"} {
					r := withServer(limiter, func(url string) *report { return openLoop(url+path, load*capacity) })
					name := fmt.Sprintf("%.1f x | %s", load, limiter)
					outcomes[name] = append(outcomes[name], outcome{capacity, r.perSecond() / (capacity * min(load, 1)), r})
				}
			}
		}
		for _, load := range loads {
			for _, limiter := range []string{"off", "on"} {
				name := fmt.Sprintf("%.1f x | %s", load, limiter)
				print(path, name, outcomes[name])
			}
		}
	}
}

var loads = []float64{0.7, 1.2, 3}

// outcome is one round.
type outcome struct {
	capacity, goodput float64
	*report
}

func print(path, name string, rounds []outcome) {
	slices.SortFunc(rounds, func(a, b outcome) int { return cmp.Compare(a.goodput, b.goodput) })
	o, last := rounds[len(rounds)/2], len(rounds)-1
	fmt.Printf("| %s | %.0f/s | %s | %.2f | %.2f to %.2f | %.0f ms | %.0f ms | %.0f %% |\n", path, o.capacity, name,
		o.goodput, rounds[0].goodput, rounds[last].goodput, millis(o.quantile(0.5)), millis(o.quantile(0.99)),
		100*float64(o.refused)/float64(max(o.offered, 1)))
}

// serve listens on a free port of the loopback, prints its address, and serves until
// its standard input ends.
func serve(limited bool) {
	runtime.GOMAXPROCS(1)
	mux := http.NewServeMux()
	mux.HandleFunc("/processor", func(w http.ResponseWriter, r *http.Request) {
		var block [4096]byte
		for range hashings {
			sum := sha256.Sum256(block[:])
			copy(block[:], sum[:])
		}
		w.Write(block[:32])
	})
	pool := make(chan struct{}, poolSize)
	mux.HandleFunc("/pool", func(w http.ResponseWriter, r *http.Request) {
		pool <- struct{}{}
		time.Sleep(poolHold)
		<-pool
		io.WriteString(w, "done")
	})
	var handler http.Handler = mux
	if limited {
		l, err := concurrency.New(concurrency.Options{})
		check(err)
		limit, err := concurrency.Middleware(l, concurrency.HTTPOptions{})
		check(err)
		handler = limit(mux)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	fmt.Println(listener.Addr())
	go func() { check(http.Serve(listener, handler)) }()
	io.Copy(io.Discard, os.Stdin)
}

// withServer starts a server, measures it and ends it.
func withServer(limiter string, measure func(url string) *report) *report {
	self, err := os.Executable()
	check(err)
	server := exec.Command(self, "-serve", limiter)
	server.Stderr = os.Stderr
	in, err := server.StdinPipe()
	check(err)
	out, err := server.StdoutPipe()
	check(err)
	check(server.Start())
	address, err := bufio.NewReader(out).ReadString('\n')
	check(err)
	r := measure("http://" + strings.TrimSpace(address) + "/")
	in.Close()
	check(server.Wait())
	return r
}

// report is what the clients saw in the measured time.
type report struct {
	mu               sync.Mutex
	offered, refused int
	latencies        []time.Duration // of the answers in time
}

func (r *report) perSecond() float64 { return float64(len(r.latencies)) / measured.Seconds() }

func (r *report) quantile(q float64) time.Duration {
	if len(r.latencies) == 0 {
		return 0
	}
	slices.Sort(r.latencies)
	return r.latencies[int(q*float64(len(r.latencies)-1))]
}

// closedLoop has so many clients ask again as soon as they are answered.
func closedLoop(url string, clients int) *report {
	r := &report{}
	client, start := newClient(), time.Now()
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for time.Since(start) < warmUp+measured {
				r.ask(client, url, time.Since(start) > warmUp)
			}
		})
	}
	all.Wait()
	return r
}

// openLoop asks at a rate, at random, whatever the answers.
func openLoop(url string, perSecond float64) *report {
	r := &report{}
	client, start := newClient(), time.Now()
	var all sync.WaitGroup
	opened := make(chan struct{}, maxOpened)
	next := start
	for next.Sub(start) < warmUp+measured {
		next = next.Add(time.Duration(rand.ExpFloat64() / perSecond * float64(time.Second)))
		time.Sleep(time.Until(next))
		counted := next.Sub(start) > warmUp
		opened <- struct{}{}
		all.Go(func() {
			r.ask(client, url, counted)
			<-opened
		})
	}
	all.Wait()
	return r
}

func (r *report) ask(client *http.Client, url string, counted bool) {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	check(err)
	began := time.Now()
	answer, err := client.Do(request)
	status := 0
	if err == nil {
		_, err = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		status = answer.StatusCode
	}
	if !counted {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.offered++
	switch {
	case err == nil && status == http.StatusOK:
		r.latencies = append(r.latencies, time.Since(began))
	case status == http.StatusServiceUnavailable:
		r.refused++
	}
}

func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: maxOpened}}
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
