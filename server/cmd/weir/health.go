package main

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"weir.dev/weir"
	"weir.dev/weir/redisstore"
	"weir.dev/weir/server/rls"
)

// healthNames are the names under which proxies are told to check the service. A check of
// a name that is not known takes it out of use for ever.
var healthNames = []string{"", "ratelimit", rls.ServiceName}

// What must be well for the service to be healthy.
const (
	rulesLoaded  = "rules"
	storeReached = "store"
	notDraining  = "draining"
)

// checks answers health checks, over gRPC and HTTP alike: healthy while nothing that must
// be well is ill.
type checks struct {
	grpc    *health.Server
	illCode int // of HTTP
	mu      sync.Mutex
	ill     map[string]bool
}

// newChecks returns checks for which the parts are ill until they are set well.
func newChecks(illCode int, parts ...string) *checks {
	c := &checks{grpc: health.NewServer(), illCode: illCode, ill: make(map[string]bool)}
	for _, part := range parts {
		c.ill[part] = true
	}
	c.tell()
	return c
}

// newChecks returns the checks of a service that runs as the options say. Rules that are
// waited for must be loaded first; in weir's own mode they always are. Redis that is away
// is an illness only where the original's setting says so.
func (o *serveOptions) newChecks() *checks {
	set := o.compat
	if set == nil {
		return newChecks(http.StatusServiceUnavailable, rulesLoaded)
	}
	var parts []string
	if set.Config.HealthyOnceOneLoaded || set.Config.XDS && !set.Config.StartWithout {
		parts = append(parts, rulesLoaded)
	}
	if set.RedisUse.HealthNeedsConnection {
		parts = append(parts, storeReached)
	}
	return newChecks(http.StatusInternalServerError, parts...)
}

// set says whether a part is well.
func (c *checks) set(part string, well bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := len(c.ill)
	if well {
		delete(c.ill, part)
	} else {
		c.ill[part] = true
	}
	if len(c.ill) != before {
		c.tell()
	}
}

// tell brings what gRPC answers up to date.
func (c *checks) tell() {
	status := healthpb.HealthCheckResponse_SERVING
	if len(c.ill) > 0 {
		status = healthpb.HealthCheckResponse_NOT_SERVING
	}
	for _, name := range healthNames {
		c.grpc.SetServingStatus(name, status)
	}
}

// drain makes the service ill for good.
func (c *checks) drain() {
	c.set(notDraining, false)
	c.grpc.Shutdown()
}

// ServeHTTP answers 200 and "OK", or the code for ill.
func (c *checks) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	ill := len(c.ill) > 0
	c.mu.Unlock()
	if ill {
		http.Error(w, "not serving", c.illCode)
		return
	}
	w.Write([]byte("OK"))
}

// watchStore makes the service ill while Redis does not answer, where the original's
// setting says so. By default it does not: the service answers without a store too, and a
// blip of the store would have all its instances restarted at once.
func (s *server) watchStore(ctx context.Context) {
	if set := s.opts.compat; set == nil || !set.RedisUse.HealthNeedsConnection {
		return
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		switch {
		case s.storeAnswers(ctx):
			s.checks.set(storeReached, true)
		case !slices.ContainsFunc(s.store.nodes(), func(n redisstore.Node) bool { return !fails(n) }):
			s.checks.set(storeReached, false) // one node of a cluster that fails is not enough
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// storeAnswers asks about a counter of its own, of which nothing is taken. Without it a
// service that gets no calls, because it is ill, would never notice that Redis is back.
func (s *server) storeAnswers(ctx context.Context) bool {
	_, err := s.store.counters.Take(ctx, weir.Ask{Name: "health", Key: weir.Text("weir_health_"), Limit: weir.PerMinute(1).By(weir.FixedWindow)})
	return err == nil
}

// triesAtStart is how often the store is asked, a second apart, before it is said to be
// away: the first connection may take longer than a question.
const triesAtStart = 3

// warnOfAbsentStore logs that the store has not answered since the start, and why: else a
// wrong address or password would be noticed no sooner than by the first requests.
func (s *server) warnOfAbsentStore(ctx context.Context) {
	for try := 1; s.store.answers != nil; try++ {
		err := s.store.answers(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
			return
		case try == triesAtStart:
			s.log.Warn("the store has not answered since the start: until it does, limits do what on_store_error says", "error", err)
			return
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
	}
}
