package settings_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"weir.dev/weir/server/settings"
)

// environment is a lookup in what a test sets; the default backend and its sink are fine
// as they are.
func environment(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

// Every setting: its default, a value and what it becomes, and a value that is refused.
// A text can be anything, so nothing is refused there.
var all = []struct {
	name  string
	field string // of Settings, by path; "" where it has none
	def   string // as %v shows it
	value string
	want  string // as %v shows it
	bad   string
	note  string // a part of it, where the setting has no effect
}{
	{"HOST", "Listen.Host", "0.0.0.0", "127.0.0.1", "127.0.0.1", "", ""},
	{"PORT", "Listen.Port", "8080", "0x50", "80", "65536", ""},
	{"GRPC_HOST", "Listen.GRPCHost", "0.0.0.0", "::1", "::1", "", ""},
	{"GRPC_PORT", "Listen.GRPCPort", "8081", "9", "9", "-1", ""},
	{"GRPC_UDS", "Listen.UDS", "", "/run/rl.sock", "/run/rl.sock", "", ""},
	{"DEBUG_HOST", "Listen.DebugHost", "0.0.0.0", "", "", "", ""},
	{"DEBUG_PORT", "Listen.DebugPort", "6070", "6071", "6071", "", ""},

	{"GRPC_MAX_CONNECTION_AGE", "GRPC.MaxAge", "24h0m0s", "1h30m", "1h30m0s", "24", ""},
	{"GRPC_MAX_CONNECTION_AGE_GRACE", "GRPC.MaxAgeGrace", "1h0m0s", "0", "0s", "-1s", ""},
	{"GRPC_SERVER_USE_TLS", "GRPC.UseTLS", "false", "f", "false", "yes", ""},
	{"GRPC_SERVER_TLS_CERT", "GRPC.Cert", "", "/c", "/c", "", ""},
	{"GRPC_SERVER_TLS_KEY", "GRPC.Key", "", "/k", "/k", "", ""},
	{"GRPC_CLIENT_TLS_CACERT", "GRPC.ClientCA", "", "/ca", "/ca", "", ""},
	{"GRPC_CLIENT_TLS_SAN", "GRPC.ClientSAN", "", "envoy", "envoy", "", ""},
	{"GRPC_SERVER_TLS_CA_CERT", "", "", "/ca", "", "", "GRPC_CLIENT_TLS_CACERT"},

	{"LOG_LEVEL", "Log.Level", "warn", "Warning", "warn", "verbose", ""},
	{"LOG_FORMAT", "Log.JSON", "false", "JSON", "true", "", ""}, // what is not json is text

	{"CONFIG_TYPE", "Config.XDS", "false", "GRPC_XDS_SOTW", "true", "file", ""},
	{"FORCE_START_WITHOUT_INITIAL_CONFIG", "Config.StartWithout", "false", "TRUE", "true", "", ""},
	{"MERGE_DOMAIN_CONFIG", "Config.MergeDomains", "false", "1", "true", "2", ""},
	{"RUNTIME_ROOT", "Config.Root", "/srv/runtime_data/current", "/data", "/data", "", ""},
	{"RUNTIME_SUBDIRECTORY", "Config.Subdirectory", "", "ratelimit", "ratelimit", "", ""},
	{"RUNTIME_APPDIRECTORY", "Config.AppDirectory", "config", "rules", "rules", "", ""},
	{"RUNTIME_IGNOREDOTFILES", "", "", "true", "", "?", "never read"},
	{"RUNTIME_WATCH_ROOT", "Config.WatchRoot", "true", "false", "false", "", ""},
	{"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "Config.HealthyOnceOneLoaded", "false", "true", "true", "", ""},

	{"CONFIG_GRPC_XDS_NODE_ID", "XDS.NodeID", "default", "rl", "rl", "", ""},
	{"CONFIG_GRPC_XDS_NODE_METADATA", "XDS.NodeMetadata", "map[]", "a=b,c=d=e", "map[a:b c:d=e]", "a", ""},
	{"CONFIG_GRPC_XDS_SERVER_URL", "XDS.URL", "localhost:18000", "eg:18001", "eg:18001", "", ""},
	{"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "XDS.RetryInterval", "3s", "5s", "5s", "5", ""},
	{"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "XDS.Headers", "map[]", "x-a:b,x-c:d", "map[x-a:b x-c:d]", "x-a=b", ""},
	{"CONFIG_GRPC_XDS_SERVER_USE_TLS", "XDS.UseTLS", "false", "true", "true", "", ""},
	{"CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "XDS.Cert", "", "/c", "/c", "", ""},
	{"CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "XDS.Key", "", "/k", "/k", "", ""},
	{"CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "XDS.CA", "", "/ca", "/ca", "", ""},
	{"CONFIG_GRPC_XDS_SERVER_TLS_SAN", "XDS.ServerName", "", "eg", "eg", "", ""},
	{"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "XDS.BackoffInitial", "10s", "1s", "1s", "", ""},
	{"XDS_CLIENT_BACKOFF_MAX_INTERVAL", "XDS.BackoffMax", "1m0s", "2m", "2m0s", "", ""},
	{"XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "XDS.BackoffRandom", "0.5", "0.25", "0.25", "NaN", ""},
	{"XDS_CLIENT_BACKOFF_JITTER", "XDS.BackoffJitter", "true", "false", "false", "", ""},
	{"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "XDS.MaxMessageBytes", "0", "1048576", "1048576", "1MB", ""},

	{"USE_STATSD", "Stats.Statsd", "true", "F", "false", "", ""},
	{"STATSD_HOST", "Stats.StatsdHost", "localhost", "sink", "sink", "", ""},
	{"STATSD_PORT", "Stats.StatsdPort", "8125", "9125", "9125", "x", ""},
	{"STATSD_PROTOCOL", "Stats.Protocol", "", "UDP", "udp", "sctp", ""},
	{"USE_DOG_STATSD", "Stats.DogStatsd", "false", "false", "false", "no", ""},
	{"USE_DOG_STATSD_MOGRIFIERS", "Stats.Mogrifiers", "[]", "A,B", "[{A   map[]} {B   map[]}]", "", ""},
	{"USE_PROMETHEUS", "Stats.Prometheus", "false", "0", "false", "", ""},
	{"PROMETHEUS_ADDR", "Stats.PrometheusAddr", ":9090", "127.0.0.1:19001", "127.0.0.1:19001", "9090", ""},
	{"PROMETHEUS_PATH", "Stats.PrometheusPath", "/metrics", "/prom", "/prom", "prom", ""},
	{"PROMETHEUS_MAPPER_YAML", "Stats.PrometheusMapper", "", "/etc/m.yaml", "/etc/m.yaml", "", ""},
	{"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", "Stats.PrometheusMilliseconds", "false", "true", "true", "", ""},
	{"EXTRA_TAGS", "Stats.ExtraTags", "map[]", "env:dev,az:1", "map[az:1 env:dev]", "env", ""},
	{"STATS_FLUSH_INTERVAL", "Stats.FlushInterval", "10s", "1s", "1s", "0", ""},
	{"DISABLE_STATS", "Stats.Disabled", "false", "true", "true", "", ""},

	{"BACKEND_TYPE", "Limiter.Backend", "redis", "memory", "memory", "memcache", ""},
	{"EXPIRATION_JITTER_MAX_SECONDS", "Limiter.ExpirationJitter", "5m0s", "0", "0s", "5m", ""},
	{"LOCAL_CACHE_SIZE_IN_BYTES", "Limiter.LocalCacheBytes", "0", "1048576", "1048576", "1.5", ""},
	{"NEAR_LIMIT_RATIO", "Limiter.NearLimitRatio", "0.8", "0.9", "0.9", "80%", ""},
	{"CACHE_KEY_PREFIX", "Limiter.KeyPrefix", "", "rl:", "rl:", "", ""},
	{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "Limiter.StopWhenOverLimit", "false", "true", "true", "", ""},
	{"SHADOW_MODE", "Limiter.Shadow", "false", "true", "true", "", ""},
	{"QUOTA_MODE", "Limiter.Quota", "false", "true", "true", "", ""},
	{"RESPONSE_DYNAMIC_METADATA", "Limiter.DynamicMetadata", "false", "true", "true", "", ""},
	{"USE_CALENDAR_MONTH_RATE_LIMIT", "Limiter.CalendarMonths", "false", "true", "true", "", ""},

	{"LIMIT_RESPONSE_HEADERS_ENABLED", "Headers.Enabled", "false", "true", "true", "", ""},
	{"LIMIT_LIMIT_HEADER", "Headers.Limit", "RateLimit-Limit", "X-Limit", "X-Limit", "X Limit", ""},
	{"LIMIT_REMAINING_HEADER", "Headers.Remaining", "RateLimit-Remaining", "X-Left", "X-Left", "", ""},
	{"LIMIT_RESET_HEADER", "Headers.Reset", "RateLimit-Reset", "", "RateLimit-Reset", "x\r\ny", ""},

	{"REDIS_SOCKET_TYPE", "Redis.Network", "unix", "unix", "unix", "udp", ""},
	{"REDIS_TYPE", "Redis.Type", "SINGLE", "single", "SINGLE", "RING", ""},
	{"REDIS_URL", "Redis.URL", "/var/run/nutcracker/ratelimit.sock", "/r.sock", "/r.sock", "", ""},
	{"REDIS_POOL_SIZE", "", "", "5", "", "?", "one connection"},
	{"REDIS_AUTH", "Redis.Auth", "", "u:p", "u:p", "", ""},
	{"REDIS_TLS", "Redis.TLS", "false", "true", "true", "", ""},
	{"REDIS_SENTINEL_AUTH", "Redis.SentinelAuth", "", "p", "p", "", ""},
	{"REDIS_PIPELINE_WINDOW", "", "", "150us", "", "150", "one connection"},
	{"REDIS_PIPELINE_LIMIT", "", "", "8", "", "?", "nor has it"},
	{"REDIS_CLUSTER_PIPELINE_PARALLELISM", "", "", "4", "", "?", "one connection"},
	{"REDIS_TIMEOUT", "Redis.Timeout", "10s", "250ms", "250ms", "250", ""},
	{"REDIS_POOL_ON_EMPTY_BEHAVIOR", "", "", "CREATE", "", "PANIC", "one connection"},

	{"REDIS_PERSECOND", "RedisUse.PerSecond", "false", "true", "true", "", ""},
	{"REDIS_PERSECOND_SOCKET_TYPE", "PerSecond.Network", "unix", "tcp", "tcp", "udp", ""},
	{"REDIS_PERSECOND_TYPE", "PerSecond.Type", "SINGLE", "CLUSTER", "CLUSTER", "RING", ""},
	{"REDIS_PERSECOND_URL", "PerSecond.URL", "/var/run/nutcracker/ratelimitpersecond.sock", "/s.sock", "/s.sock", "", ""},
	{"REDIS_PERSECOND_POOL_SIZE", "", "", "5", "", "?", "one connection"},
	{"REDIS_PERSECOND_AUTH", "PerSecond.Auth", "", "p", "p", "", ""},
	{"REDIS_PERSECOND_TLS", "PerSecond.TLS", "false", "true", "true", "", ""},
	{"REDIS_PERSECOND_SENTINEL_AUTH", "PerSecond.SentinelAuth", "", "p", "p", "", ""},
	{"REDIS_PERSECOND_PIPELINE_WINDOW", "", "", "1ms", "", "?", "one connection"},
	{"REDIS_PERSECOND_PIPELINE_LIMIT", "", "", "8", "", "?", "nor has it"},
	{"REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", "", "", "0", "", "?", "one connection"},
	{"REDIS_PERSECOND_TIMEOUT", "PerSecond.Timeout", "10s", "1s", "1s", "", ""},
	{"REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", "", "", "ERROR", "", "?", "one connection"},

	{"REDIS_TLS_CLIENT_CERT", "RedisUse.Cert", "", "/c", "/c", "", ""},
	{"REDIS_TLS_CLIENT_KEY", "RedisUse.Key", "", "/k", "/k", "", ""},
	{"REDIS_TLS_CACERT", "RedisUse.CA", "", "/ca", "/ca", "", ""},
	{"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "RedisUse.SkipHostname", "false", "true", "true", "", ""},
	{"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "RedisUse.HealthNeedsConnection", "false", "true", "true", "", ""},
	{"REDIS_STARTUP_INITIAL_INTERVAL", "", "", "2s", "", "?", "without Redis"},
	{"REDIS_STARTUP_MAX_INTERVAL", "", "", "1m", "", "?", "without Redis"},
	{"REDIS_STARTUP_MAX_ELAPSED_TIME", "", "", "1h", "", "?", "without Redis"},
	{"REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR", "", "", "true", "", "?", "replica"},

	{"MEMCACHE_HOST_PORT", "", "", "a:1,b:2", "", "", "not supported"},
	{"MEMCACHE_SRV", "", "", "_m._tcp.x", "", "", "not supported"},
	{"MEMCACHE_SRV_REFRESH", "", "", "1m", "", "60", "not supported"},
	{"MEMCACHE_MAX_IDLE_CONNS", "", "", "4", "", "?", "not supported"},
	{"MEMCACHE_TLS", "", "", "true", "", "?", "not supported"},
	{"MEMCACHE_TLS_CLIENT_CERT", "", "", "/c", "", "", "not supported"},
	{"MEMCACHE_TLS_CLIENT_KEY", "", "", "/k", "", "", "not supported"},
	{"MEMCACHE_TLS_CACERT", "", "", "/ca", "", "", "not supported"},
	{"MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", "", "", "true", "", "?", "not supported"},

	{"TRACING_ENABLED", "Tracing.Enabled", "false", "true", "true", "", ""},
	{"TRACING_EXPORTER_PROTOCOL", "Tracing.Protocol", "http", "grpc", "grpc", "udp", ""},
	{"TRACING_SERVICE_NAME", "Tracing.ServiceName", "RateLimit", "rl", "rl", "", ""},
	{"TRACING_SERVICE_NAMESPACE", "Tracing.ServiceNamespace", "", "ns", "ns", "", ""},
	{"TRACING_SERVICE_INSTANCE_ID", "Tracing.InstanceID", "", "i", "i", "", ""},
	{"TRACING_SAMPLING_RATE", "Tracing.SamplingRate", "1", "0.1", "0.1", "2", ""},
}

// refuses reports whether there are values that the field cannot have.
func refuses(field string) bool {
	if field == "" || field == "Log.JSON" {
		return false
	}
	kind := fieldOf(settings.Settings{}, field).Kind()
	return kind != reflect.String && kind != reflect.Slice
}

// of returns the field with the path, as %v shows it.
func of(s settings.Settings, path string) string { return fmt.Sprint(fieldOf(s, path).Interface()) }

func fieldOf(s settings.Settings, path string) reflect.Value {
	v := reflect.ValueOf(s)
	for name := range strings.SplitSeq(path, ".") {
		v = v.FieldByName(name)
	}
	return v
}

func TestEverySettingHasItsDefaultItsEffectOrNoteAndItsError(t *testing.T) {
	t.Parallel()
	defaults, notes, err := settings.Load(environment())
	if err != nil || len(notes) != 0 {
		t.Fatalf("an empty environment: %v, %v, want neither notes nor an error", notes, err)
	}
	for _, tt := range all {
		if tt.field != "" {
			if got := of(defaults, tt.field); got != tt.def {
				t.Errorf("%s: default %q, want %q", tt.name, got, tt.def)
			}
		}
		// These make no sense by themselves.
		rest := []string{
			"GRPC_SERVER_TLS_CERT", "/c", "GRPC_SERVER_TLS_KEY", "/k", "REDIS_PERSECOND_URL", "h:1", "REDIS_TLS_CLIENT_CERT", "/c",
			"REDIS_TLS_CLIENT_KEY", "/k", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "/c", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "/k",
		}
		got, notes, err := settings.Load(environment(append([]string{tt.name, tt.value}, rest...)...))
		if err != nil {
			t.Errorf("%s=%s: %v", tt.name, tt.value, err)
		}
		if tt.field != "" {
			if value := of(got, tt.field); value != tt.want {
				t.Errorf("%s=%s: %q, want %q", tt.name, tt.value, value, tt.want)
			}
		}
		noted := len(notes) == 1 && notes[0].Name == tt.name && strings.Contains(notes[0].Why, tt.note)
		if (tt.note != "") != noted || tt.note == "" && len(notes) > 0 {
			t.Errorf("%s=%s: notes %v, want one with %q, or none for an empty one", tt.name, tt.value, notes, tt.note)
		}
		if tt.bad == "" && refuses(tt.field) {
			tt.bad = "?"
		}
		if tt.bad != "" {
			_, _, err := settings.Load(environment(tt.name, tt.bad))
			if err == nil || !strings.Contains(err.Error(), tt.name) || !strings.Contains(err.Error(), "write ") {
				t.Errorf("%s=%s: error %v, want one that names the setting and says what to write", tt.name, tt.bad, err)
			}
		}
	}
}

func TestTheSettingsAreThoseOfTheOriginal(t *testing.T) {
	t.Parallel()
	newer := []string{"USE_CALENDAR_MONTH_RATE_LIMIT", "REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR"}
	foreign := []string{"STATSD_PROTOCOL", "GRPC_SERVER_TLS_CA_CERT"}
	var asked []string
	settings.Load(func(name string) (string, bool) {
		asked = append(asked, name)
		return "", false
	})
	if got, want := len(asked), 114+len(newer)+len(foreign); got != want {
		t.Errorf("%d settings are read, want %d", got, want)
	}
	var tested []string
	for _, tt := range all {
		tested = append(tested, tt.name)
	}
	slices.Sort(asked)
	slices.Sort(tested)
	if !slices.Equal(asked, tested) {
		t.Errorf("read are %v\ntested are %v", asked, tested)
	}
}

func TestAllFaultsAreNamedAtOnce(t *testing.T) {
	t.Parallel()
	_, _, err := settings.Load(environment("PORT", "http", "REDIS_TLS", "maybe", "STATS_FLUSH_INTERVAL", "10"))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`PORT: "http" is not a whole number from 0 to 65535`, `REDIS_TLS: "maybe" is neither true nor false`, `STATS_FLUSH_INTERVAL: "10" is not a time`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
}

func TestSettingsThatDoNotGoTogetherAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		want string
		set  []string
	}{
		{"USE_STATSD and USE_PROMETHEUS are both on", []string{"USE_PROMETHEUS", "true"}},
		{"", []string{"USE_PROMETHEUS", "true", "USE_STATSD", "false"}},
		{"", []string{"USE_PROMETHEUS", "true", "DISABLE_STATS", "true"}},
		{"", []string{"USE_STATSD", "false"}},
		{"GRPC_SERVER_TLS_CERT", []string{"GRPC_SERVER_USE_TLS", "true", "GRPC_SERVER_TLS_CERT", "/c"}},
		{"GRPC_CLIENT_TLS_CACERT", []string{"GRPC_SERVER_USE_TLS", "true", "GRPC_SERVER_TLS_CERT", "/c", "GRPC_SERVER_TLS_KEY", "/k", "GRPC_CLIENT_TLS_SAN", "x"}},
		{"", []string{"GRPC_SERVER_TLS_CERT", "/c"}},
		{"REDIS_TLS_CLIENT_KEY", []string{"REDIS_TLS", "true", "REDIS_TLS_CLIENT_CERT", "/c"}},
		{"REDIS_URL", []string{"REDIS_URL", ""}},
		{"REDIS_URL", []string{"REDIS_SOCKET_TYPE", "tcp"}},
		{"REDIS_URL", []string{"REDIS_SOCKET_TYPE", "tcp", "REDIS_URL", "a:1,b:2"}},
		{"REDIS_URL", []string{"REDIS_SOCKET_TYPE", "tcp", "REDIS_URL", "a:b"}},
		{"", []string{"REDIS_SOCKET_TYPE", "tcp", "REDIS_URL", "a:1"}},
		{"", []string{"REDIS_SOCKET_TYPE", "tcp", "REDIS_URL", "redis://u:p@a:1/2"}},
		{"MASTER,HOST:PORT", []string{"REDIS_TYPE", "SENTINEL", "REDIS_URL", "a:1"}},
		{"", []string{"REDIS_TYPE", "SENTINEL", "REDIS_URL", "main,a:1,b:2"}},
		{"REDIS_URL", []string{"REDIS_TYPE", "CLUSTER", "REDIS_URL", "a:1, b:2:3"}},
		{"", []string{"REDIS_TYPE", "CLUSTER", "REDIS_URL", "a:1,b:2"}},
		{"REDIS_PERSECOND_URL", []string{"REDIS_PERSECOND", "true", "REDIS_PERSECOND_SOCKET_TYPE", "tcp"}},
		{"", []string{"REDIS_PERSECOND_SOCKET_TYPE", "tcp"}},
		{"CONFIG_GRPC_XDS_SERVER_URL", []string{"CONFIG_TYPE", "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL", ""}},
		{"CONFIG_GRPC_XDS_CLIENT_TLS_KEY", []string{"CONFIG_TYPE", "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_USE_TLS", "true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "/c"}},
		{"memcached is not supported", []string{"BACKEND_TYPE", "memcache"}},
		{"", []string{"REDIS_URL", "/secret", "GRPC_UDS", "/x"}},
	} {
		_, _, err := settings.Load(environment(tt.set...))
		if got := fmt.Sprint(err); tt.want == "" && err != nil || !strings.Contains(got, tt.want) {
			t.Errorf("%v: error %v, want one with %q, or none for an empty one", tt.set, got, tt.want)
		}
	}
}

func TestErrorsNeverShowThePassword(t *testing.T) {
	t.Parallel()
	_, _, err := settings.Load(environment("REDIS_SOCKET_TYPE", "tcp", "REDIS_URL", "rediss://u:hunter2@h:1", "REDIS_AUTH", "u:hunter2"))
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error %v, want one without the password", err)
	}
}

func TestMogrifiersAreReadByTheirNames(t *testing.T) {
	t.Parallel()
	got, _, err := settings.Load(environment(
		"USE_DOG_STATSD_MOGRIFIERS", "RULE,CALL",
		"DOG_STATSD_MOGRIFIER_RULE_PATTERN", `^ratelimit\.(.*)\.(.*)$`,
		"DOG_STATSD_MOGRIFIER_RULE_NAME", "ratelimit.$2",
		"DOG_STATSD_MOGRIFIER_RULE_TAGS", "domain:$1",
		"DOG_STATSD_MOGRIFIER_CALL_PATTERN", `^call$`,
		"DOG_STATSD_MOGRIFIER_CALL_NAME", "call",
	))
	if err != nil || len(got.Stats.Mogrifiers) != 2 {
		t.Fatalf("%v, %v, want two mogrifiers", got.Stats.Mogrifiers, err)
	}
	m := got.Stats.Mogrifiers[0]
	if m.Label != "RULE" || m.Pattern != `^ratelimit\.(.*)\.(.*)$` || m.Name != "ratelimit.$2" || m.Tags["domain"] != "$1" {
		t.Errorf("got %+v", m)
	}
	_, _, err = settings.Load(environment("USE_DOG_STATSD_MOGRIFIERS", "A", "DOG_STATSD_MOGRIFIER_A_TAGS", "x"))
	if want := `DOG_STATSD_MOGRIFIER_A_TAGS: "x" is not KEY:VALUE`; !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("error %v, want %q in it", err, want)
	}
}
