// Package admin serves what operators look at: metrics, the rules in force, what is there
// of a limit for a key, and profiles of the running program; and it resets a key.
package admin

import (
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"weir.dev/weir/server/rules"
)

// Metrics answers with everything gathered, in the format that the scraper asks for.
func Metrics(gatherer prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{})
}

// Index is what the debug listener says of itself at /.
const Index = `/rlconfig: the rules in force
/admin/rules: the same as JSON, with what was decided
/admin/explain, /admin/peek, /admin/reset: POST of a domain and entries, about one key
/debug/pprof/: profiles
`

// Debug is for a listener that only operators reach: /rlconfig, the rules in force; and
// /debug/pprof/, profiles. config returns nil while there are no rules. Nothing here
// changes anything.
func Debug(config func() *rules.Config) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, Index)
	})
	mux.HandleFunc("GET /rlconfig", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if c := config(); c != nil {
			writeRules(w, c)
		}
	})
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", http.NotFound) // a store's password may be in it
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// ahead says what a limit does besides counting, as the configuration writes it.
func ahead(l rules.Limit) (s string) {
	if l.OnStoreError != rules.Unsaid {
		s += fmt.Sprintf(", on_store_error: %v", l.OnStoreError)
	}
	if l.Instances > 0 {
		s += fmt.Sprintf(", instances: %d", l.Instances)
	}
	if l.Lease != (rules.Lease{}) {
		s += fmt.Sprintf(", lease: {max: %d, refill: %v, expiry: %v}", l.Lease.Max, l.Lease.Refill, l.Lease.Expiry)
	}
	if l.Candidate != nil {
		s += fmt.Sprintf(", candidate: %v", l.Candidate)
	}
	return s
}

// writeRules writes a line for each limit: where it is, and how much it allows.
func writeRules(w io.Writer, c *rules.Config) {
	for _, r := range c.Rules() {
		note := ""
		if r.Shadow {
			note = ", shadow"
		}
		switch {
		case r.Unlimited:
			fmt.Fprintf(w, "%s: %s: unlimited%s\n", r.Domain, r.Path, note)
		case len(r.Limits) == 0:
			fmt.Fprintf(w, "%s: %s: no limit%s\n", r.Domain, r.Path, note)
		}
		for _, l := range r.Limits {
			name := ""
			if l.Name != "" {
				name = fmt.Sprintf(", name %q", l.Name)
			}
			fmt.Fprintf(w, "%s: %s: %v%s%s%s\n", r.Domain, r.Path, l, name, note, ahead(l))
		}
	}
}
