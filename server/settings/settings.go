// Package settings reads the environment settings of envoyproxy/ratelimit: its names, its
// defaults and its way to write values, so that its deployments start weir unchanged.
package settings

import (
	"errors"
	"fmt"
	"time"
)

// Settings are what an environment says, as far as it has an effect. Load makes them.
type Settings struct {
	Listen    Listen
	GRPC      GRPC
	Log       Log
	Config    Config
	XDS       XDS
	Stats     Stats
	Limiter   Limiter
	Headers   Headers
	Redis     Pool
	PerSecond Pool // for limits per second, if RedisUse.PerSecond
	RedisUse  RedisUse
	Tracing   Tracing
}

// Listen is where the service listens. A UDS is the path of a unix socket, which then is
// in place of the gRPC port.
type Listen struct {
	Host, GRPCHost, DebugHost string
	Port, GRPCPort, DebugPort int
	UDS                       string
}

// GRPC is how the gRPC listener treats connections. Without a ClientCA anybody may
// connect; with a ClientSAN too, a client's certificate must have that name.
type GRPC struct {
	MaxAge, MaxAgeGrace time.Duration // 0: for ever
	UseTLS              bool
	Cert, Key           string // files
	ClientCA            string // file
	ClientSAN           string
}

// Log is how the log looks. Level is one of panic, fatal, error, warn, info, debug and
// trace.
type Log struct {
	Level string
	JSON  bool
}

// Config is where the rules come from, and what the service does without them.
type Config struct {
	XDS                  bool // from a management server, else from files
	StartWithout         bool // do not wait for the management server
	MergeDomains         bool
	Root                 string
	Subdirectory         string
	AppDirectory         string
	WatchRoot            bool
	HealthyOnceOneLoaded bool
}

// XDS is how to reach the management server.
type XDS struct {
	NodeID          string
	NodeMetadata    map[string]string
	URL             string
	RetryInterval   time.Duration
	Headers         map[string]string // sent with each call
	UseTLS          bool
	Cert, Key       string // files; shown to the server
	CA              string // file; empty: the system's
	ServerName      string // empty: the URL's host
	BackoffInitial  time.Duration
	BackoffMax      time.Duration
	BackoffRandom   float64 // how much of an interval is random, 0 to 1
	BackoffJitter   bool
	MaxMessageBytes int // 0: the client's own
}

// Stats is where counters go. At most one of the three sinks is in use, and none if
// Disabled.
type Stats struct {
	Statsd     bool
	StatsdHost string
	StatsdPort int
	Protocol   string // tcp or udp; empty: tcp for statsd, udp for dogstatsd

	DogStatsd       bool // UDP, to the host and port of statsd
	Mogrifiers      []Mogrifier
	mogrifierLabels []string

	Prometheus             bool
	PrometheusAddr         string
	PrometheusPath         string
	PrometheusMapper       string // file; empty: the original's own mapping
	PrometheusMilliseconds bool

	ExtraTags     map[string]string
	FlushInterval time.Duration
	Disabled      bool
}

// Mogrifier rewrites the names that a regular expression matches, into a name and tags in
// which $1 stands for what the first group matched. Label is what
// USE_DOG_STATSD_MOGRIFIERS calls it.
type Mogrifier struct {
	Label   string
	Pattern string
	Name    string
	Tags    map[string]string
}

// Limiter is how limits are decided and counted.
type Limiter struct {
	Backend           string // redis or memory
	ExpirationJitter  time.Duration
	LocalCacheBytes   int // 0: no local cache
	NearLimitRatio    float32
	KeyPrefix         string
	StopWhenOverLimit bool
	Shadow            bool
	Quota             bool
	DynamicMetadata   bool
	CalendarMonths    bool
}

// Headers are the response headers with the tightest limit, and their names.
type Headers struct {
	Enabled                 bool
	Limit, Remaining, Reset string
}

// Pool is one Redis deployment.
type Pool struct {
	Network      string // tcp or unix
	Type         string // SINGLE, SENTINEL or CLUSTER
	URL          string
	Auth         string // PASSWORD or USER:PASSWORD
	TLS          bool
	SentinelAuth string
	Timeout      time.Duration
}

// RedisUse is what both pools have in common.
type RedisUse struct {
	PerSecond             bool
	Cert, Key             string // files
	CA                    string // file; empty: the system's
	SkipHostname          bool
	HealthNeedsConnection bool
}

// Tracing is which spans are exported, and how.
type Tracing struct {
	Enabled          bool
	Protocol         string // http or grpc
	ServiceName      string
	ServiceNamespace string
	InstanceID       string
	SamplingRate     float64
}

// Note says why a setting that is given has no effect here.
type Note struct{ Name, Why string }

// Load reads all settings from an environment, where lookup is as os.LookupEnv. What is
// not set has the original's default. The notes are about settings that are set and have
// no effect. The error names every value that is wrong, and what to write.
func Load(lookup func(name string) (string, bool)) (Settings, []Note, error) {
	var s Settings
	var notes []Note
	var errs []error
	for _, row := range s.table() {
		value, given := lookup(row.name)
		switch {
		case given && row.note != "":
			notes = append(notes, Note{row.name, row.note})
		case !given && row.value == "":
			continue
		case !given:
			value = row.value
		}
		if err := row.set(value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", row.name, err))
		}
	}
	errs = append(errs, s.loadMogrifiers(lookup))
	if err := errors.Join(errs...); err != nil {
		return s, notes, err // what does not go together is judged once each is right
	}
	return s, notes, s.check()
}
