package main

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"time"

	"weir.dev/weir/server/admin"
	"weir.dev/weir/server/stats"
)

// flushTimeout bounds the last message to a sink or an exporter.
const flushTimeout = time.Second

// openStats begins to count by the original's names, in compat.
func (s *server) openStats() (err error) {
	set := s.opts.compat
	if set == nil {
		return nil
	}
	opts := stats.Options{
		Statsd:        set.Stats.Statsd,
		Dogstatsd:     set.Stats.DogStatsd,
		Prometheus:    set.Stats.Prometheus,
		Disabled:      set.Stats.Disabled,
		Network:       set.Stats.Protocol,
		Host:          set.Stats.StatsdHost,
		Port:          set.Stats.StatsdPort,
		FlushInterval: set.Stats.FlushInterval,
		ExtraTags:     set.Stats.ExtraTags,
		DatadogTags:   s.opts.datadogTags,
		MapperFile:    set.Stats.PrometheusMapper,
		Milliseconds:  set.Stats.PrometheusMilliseconds,
		Log:           s.log,
	}
	for _, m := range set.Stats.Mogrifiers {
		opts.Mogrifiers = append(opts.Mogrifiers, stats.Mogrifier(m))
	}
	// The original goes on without a mapping that is not there, and its deployments rely on
	// it: they mount one that is optional.
	if _, err := os.Stat(opts.MapperFile); errors.Is(err, fs.ErrNotExist) && opts.MapperFile != "" {
		s.log.Warn("the mapping is not there, and the built-in one is in its place", "PROMETHEUS_MAPPER_YAML", opts.MapperFile)
		opts.MapperFile = ""
	}
	s.counts = stats.New()
	if s.sink, err = stats.Open(s.counts, opts); err != nil {
		return err
	}
	if c := s.sink.Collector(); c != nil {
		return s.registry.Register(c)
	}
	return nil
}

// datadogTags returns the tags that Datadog's agent is told with everything, for those who
// have set them: the original's client reads these variables by itself.
func datadogTags(lookup func(string) (string, bool)) map[string]string {
	tags := make(map[string]string)
	for variable, key := range map[string]string{
		"DD_ENTITY_ID": "dd.internal.entity_id", "DD_ENV": "env", "DD_SERVICE": "service", "DD_VERSION": "version",
	} {
		if value, _ := lookup(variable); value != "" {
			tags[key] = value
		}
	}
	return tags
}

// makeMetricsServer makes what answers where the original's Prometheus looks: with weir's
// own metrics too.
func (s *server) makeMetricsServer() {
	set := s.opts.compat
	if set == nil || !set.Stats.Prometheus || set.Stats.Disabled {
		return
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+set.Stats.PrometheusPath, admin.Metrics(s.registry))
	s.metricsServer = newHTTPServer(mux, s.log)
	s.metricsServer.Addr = set.Stats.PrometheusAddr
}

// closeStats tells the sink what it does not know yet.
func (s *server) closeStats() {
	if s.sink == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := s.sink.Close(ctx); err != nil {
		s.log.Warn("the last counts are lost", "error", err)
	}
}
