package stats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Options say where a Registry's counts go. In the comments is the setting of
// envoyproxy/ratelimit that says the same.
type Options struct {
	// Which sink there is: one, or none.
	Statsd     bool // USE_STATSD
	Dogstatsd  bool // USE_DOG_STATSD
	Prometheus bool // USE_PROMETHEUS
	Disabled   bool // DISABLE_STATS: no sink, whatever the others say

	// Where statsd or dogstatsd listens.
	Network string // STATSD_PROTOCOL: tcp or udp; "" is tcp for statsd and udp for dogstatsd, which is UDP alone
	Host    string // STATSD_HOST; "" is localhost
	Port    int    // STATSD_PORT; 0 is 8125

	// FlushInterval is how often statsd and dogstatsd are told what was counted, 0 is 10 s.
	// Prometheus asks when it wants to know. STATS_FLUSH_INTERVAL
	FlushInterval time.Duration
	// ExtraTags are on every value: as part of the name for statsd, as a tag for dogstatsd, as
	// a label for Prometheus. One without a key or a value is left out. EXTRA_TAGS
	ExtraTags map[string]string
	// DatadogTags are tags for dogstatsd as they are, beside those: what DD_ENV, DD_SERVICE,
	// DD_VERSION and, as dd.internal.entity_id, DD_ENTITY_ID say.
	DatadogTags map[string]string
	// Mogrifiers make names and tags of the names for dogstatsd. The first that matches
	// counts. USE_DOG_STATSD_MOGRIFIERS names them in their order.
	Mogrifiers []Mogrifier

	// MapperFile is a mapping of statsd_exporter, which says how names become metrics and
	// labels; "" is the mapping that the original has built in. PROMETHEUS_MAPPER_YAML
	MapperFile string
	// Milliseconds makes Prometheus see durations in milliseconds instead of seconds, also
	// under names that end in _seconds. PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS
	Milliseconds bool

	Log *slog.Logger // is told when a sink goes away and returns; nil is nowhere
}

// Sink hands on what a Registry counts, until it is closed.
type Sink struct {
	pusher    *pusher
	collector *collector
}

// Open starts handing on what r counts to the sink that the options name. A Registry has
// one sink in its life, and a second is an error. So is all that is wrong with the options;
// that the sink cannot be reached is none.
func Open(r *Registry, opts Options) (*Sink, error) {
	if err := opts.check(); err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if r == nil || opts.Disabled || !opts.Prometheus && !opts.Statsd && !opts.Dogstatsd {
		return &Sink{}, nil
	}
	if !r.hasSink.CompareAndSwap(false, true) {
		return nil, errors.New("stats: the registry has a sink already: open one for each")
	}
	if opts.Prometheus {
		c, err := newCollector(r, opts)
		if err != nil {
			return nil, fmt.Errorf("stats: %w", err)
		}
		return &Sink{collector: c}, nil
	}
	p, err := newPusher(r, opts)
	if err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	go p.run(cmp.Or(opts.FlushInterval, 10*time.Second))
	return &Sink{pusher: p}, nil
}

func (o *Options) check() error {
	var errs []error
	if !o.Disabled {
		errs = append(errs, o.checkSinks())
	}
	switch {
	case o.Network != "" && o.Network != "tcp" && o.Network != "udp":
		errs = append(errs, fmt.Errorf("protocol %q: write tcp or udp (STATSD_PROTOCOL)", o.Network))
	case o.Network == "tcp" && o.Dogstatsd:
		errs = append(errs, errors.New("protocol tcp: dogstatsd has UDP alone: write udp (STATSD_PROTOCOL)"))
	}
	if o.Port < 0 || o.Port > 65535 {
		errs = append(errs, fmt.Errorf("port %d: write a port from 1 to 65535 (STATSD_PORT)", o.Port))
	}
	if o.FlushInterval < 0 {
		errs = append(errs, fmt.Errorf("flush interval %v: write a time above zero, such as 10s (STATS_FLUSH_INTERVAL)", o.FlushInterval))
	}
	return errors.Join(errs...)
}

func (o *Options) checkSinks() error {
	var on []string
	for _, s := range []struct {
		name string
		on   bool
	}{{"USE_STATSD", o.Statsd}, {"USE_DOG_STATSD", o.Dogstatsd}, {"USE_PROMETHEUS", o.Prometheus}} {
		if s.on {
			on = append(on, s.name)
		}
	}
	if len(on) < 2 {
		return nil
	}
	return fmt.Errorf("%s are on: there is one sink, so set all but one to false (USE_STATSD may be on because nothing sets it)",
		strings.Join(on, " and "))
}

// address returns where statsd or dogstatsd listens.
func (o *Options) address() (network, addr string) {
	network, host, port := o.Network, o.Host, o.Port
	if network == "" {
		network = "tcp"
		if o.Dogstatsd {
			network = "udp"
		}
	}
	if host == "" {
		host = "localhost"
	}
	if port == 0 {
		port = 8125
	}
	return network, net.JoinHostPort(host, strconv.Itoa(port))
}

// mapping returns the text of the mapping, and the name under which errors speak of it.
func (o *Options) mapping() (name, text string, err error) {
	if o.MapperFile == "" {
		return "the built-in mapping", defaultMapping, nil
	}
	data, err := os.ReadFile(o.MapperFile)
	if err != nil {
		return "", "", fmt.Errorf("mapping (PROMETHEUS_MAPPER_YAML): %w", err)
	}
	return o.MapperFile, string(data), nil
}

// Collector returns the metrics for Prometheus, to be registered beside others. It returns
// nil if Prometheus is not the sink.
func (s *Sink) Collector() prometheus.Collector {
	if s.collector == nil {
		return nil
	}
	return s.collector
}

// Close hands on what was counted since the last time, and ends. It takes no longer than
// ctx. The error says that the sink has not got the last counts.
func (s *Sink) Close(ctx context.Context) error {
	if s.pusher == nil {
		return nil
	}
	return s.pusher.close(ctx)
}
