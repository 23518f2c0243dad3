package settings

import "time"

// row is one setting: its name in the environment, its default as one would write it
// there, and the field it sets. A note says why it has no effect here: then its value must be
// one that the original takes, and is forgotten.
type row struct {
	name, value string
	set         setter
	note        string
}

// Why settings have no effect.
const (
	noteDead       = "nor has it with envoyproxy/ratelimit: leave it out"
	noteOneLink    = "one connection to each Redis node carries all questions, which are pipelined as they come"
	noteNoWait     = "the service starts without Redis, and connects when it answers"
	noteNoMemcache = "memcached is not supported"
	noteDotFiles   = "files and directories whose names begin with a dot are never read"
	noteReadOnly   = "a node that has become a replica is noticed by its answer, and its master asked"
	noteUnknown    = "it is no setting of envoyproxy/ratelimit, and client certificates are checked with GRPC_CLIENT_TLS_CACERT alone"
)

// table returns every setting, with the fields of s.
func (s *Settings) table() []row {
	var rows []row
	for _, group := range [][]row{
		s.Listen.rows(), s.GRPC.rows(), s.Log.rows(), s.Config.rows(), s.XDS.rows(), s.Stats.rows(), s.Limiter.rows(), s.Headers.rows(),
		s.Redis.rows("REDIS_", "/var/run/nutcracker/ratelimit.sock"),
		s.PerSecond.rows("REDIS_PERSECOND_", "/var/run/nutcracker/ratelimitpersecond.sock"),
		s.RedisUse.rows(), memcacheRows(), s.Tracing.rows(),
	} {
		rows = append(rows, group...)
	}
	return rows
}

func (l *Listen) rows() []row {
	return []row{
		{"HOST", "0.0.0.0", text(&l.Host), ""},
		{"PORT", "8080", port(&l.Port), ""},
		{"GRPC_HOST", "0.0.0.0", text(&l.GRPCHost), ""},
		{"GRPC_PORT", "8081", port(&l.GRPCPort), ""},
		{"GRPC_UDS", "", text(&l.UDS), ""},
		{"DEBUG_HOST", "0.0.0.0", text(&l.DebugHost), ""},
		{"DEBUG_PORT", "6070", port(&l.DebugPort), ""},
	}
}

func (g *GRPC) rows() []row {
	return []row{
		{"GRPC_MAX_CONNECTION_AGE", "24h", duration(&g.MaxAge), ""},
		{"GRPC_MAX_CONNECTION_AGE_GRACE", "1h", duration(&g.MaxAgeGrace), ""},
		{"GRPC_SERVER_USE_TLS", "false", yes(&g.UseTLS), ""},
		{"GRPC_SERVER_TLS_CERT", "", text(&g.Cert), ""},
		{"GRPC_SERVER_TLS_KEY", "", text(&g.Key), ""},
		{"GRPC_CLIENT_TLS_CACERT", "", text(&g.ClientCA), ""},
		{"GRPC_CLIENT_TLS_SAN", "", text(&g.ClientSAN), ""},
		{"GRPC_SERVER_TLS_CA_CERT", "", text(new(string)), noteUnknown}, // Envoy Gateway sets it
	}
}

func (l *Log) rows() []row {
	return []row{
		{"LOG_LEVEL", "WARN", level(&l.Level), ""},
		{"LOG_FORMAT", "text", isWord(&l.JSON, "json"), ""},
	}
}

func (c *Config) rows() []row {
	return []row{
		{"CONFIG_TYPE", "FILE", either(&c.XDS, "GRPC_XDS_SOTW", "FILE"), ""},
		{"FORCE_START_WITHOUT_INITIAL_CONFIG", "false", yes(&c.StartWithout), ""},
		{"MERGE_DOMAIN_CONFIG", "false", yes(&c.MergeDomains), ""},
		{"RUNTIME_ROOT", "/srv/runtime_data/current", text(&c.Root), ""},
		{"RUNTIME_SUBDIRECTORY", "", text(&c.Subdirectory), ""},
		{"RUNTIME_APPDIRECTORY", "config", text(&c.AppDirectory), ""},
		{"RUNTIME_IGNOREDOTFILES", "false", yes(new(bool)), noteDotFiles},
		{"RUNTIME_WATCH_ROOT", "true", yes(&c.WatchRoot), ""},
		{"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "false", yes(&c.HealthyOnceOneLoaded), ""},
	}
}

func (x *XDS) rows() []row {
	return []row{
		{"CONFIG_GRPC_XDS_NODE_ID", "default", text(&x.NodeID), ""},
		{"CONFIG_GRPC_XDS_NODE_METADATA", "", pairs(&x.NodeMetadata, "="), ""},
		{"CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000", text(&x.URL), ""},
		{"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "3s", duration(&x.RetryInterval), ""},
		{"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "", pairs(&x.Headers, ":"), ""},
		{"CONFIG_GRPC_XDS_SERVER_USE_TLS", "false", yes(&x.UseTLS), ""},
		{"CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "", text(&x.Cert), ""},
		{"CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "", text(&x.Key), ""},
		{"CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "", text(&x.CA), ""},
		{"CONFIG_GRPC_XDS_SERVER_TLS_SAN", "", text(&x.ServerName), ""},
		{"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "10s", duration(&x.BackoffInitial), ""},
		{"XDS_CLIENT_BACKOFF_MAX_INTERVAL", "60s", duration(&x.BackoffMax), ""},
		{"XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "0.5", share(&x.BackoffRandom), ""},
		{"XDS_CLIENT_BACKOFF_JITTER", "true", yes(&x.BackoffJitter), ""},
		{"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "", count(&x.MaxMessageBytes), ""},
	}
}

func (t *Stats) rows() []row {
	return []row{
		{"USE_STATSD", "true", yes(&t.Statsd), ""},
		{"STATSD_HOST", "localhost", text(&t.StatsdHost), ""},
		{"STATSD_PORT", "8125", port(&t.StatsdPort), ""},
		{"STATSD_PROTOCOL", "", oneOf(&t.Protocol, "tcp", "udp"), ""}, // of the original's statsd library
		{"USE_DOG_STATSD", "false", yes(&t.DogStatsd), ""},
		{"USE_DOG_STATSD_MOGRIFIERS", "", list(&t.mogrifierLabels), ""},
		{"USE_PROMETHEUS", "false", yes(&t.Prometheus), ""},
		{"PROMETHEUS_ADDR", ":9090", blank(":9090", address(&t.PrometheusAddr)), ""},
		{"PROMETHEUS_PATH", "/metrics", blank("/metrics", path(&t.PrometheusPath)), ""},
		{"PROMETHEUS_MAPPER_YAML", "", text(&t.PrometheusMapper), ""},
		{"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", "false", yes(&t.PrometheusMilliseconds), ""},
		{"EXTRA_TAGS", "", pairs(&t.ExtraTags, ":"), ""},
		{"STATS_FLUSH_INTERVAL", "10s", duration(&t.FlushInterval), ""},
		{"DISABLE_STATS", "false", yes(&t.Disabled), ""},
	}
}

func (l *Limiter) rows() []row {
	return []row{
		{"BACKEND_TYPE", "redis", blank("redis", backend(&l.Backend)), ""},
		{"EXPIRATION_JITTER_MAX_SECONDS", "300", seconds(&l.ExpirationJitter), ""},
		{"LOCAL_CACHE_SIZE_IN_BYTES", "0", number(&l.LocalCacheBytes, 0, 1<<30), ""},
		{"NEAR_LIMIT_RATIO", "0.8", share(&l.NearLimitRatio), ""},
		{"CACHE_KEY_PREFIX", "", text(&l.KeyPrefix), ""},
		{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "false", yes(&l.StopWhenOverLimit), ""},
		{"SHADOW_MODE", "false", yes(&l.Shadow), ""},
		{"QUOTA_MODE", "false", yes(&l.Quota), ""},
		{"RESPONSE_DYNAMIC_METADATA", "false", yes(&l.DynamicMetadata), ""},
		{"USE_CALENDAR_MONTH_RATE_LIMIT", "false", yes(&l.CalendarMonths), ""},
	}
}

func (h *Headers) rows() []row {
	return []row{
		{"LIMIT_RESPONSE_HEADERS_ENABLED", "false", yes(&h.Enabled), ""},
		{"LIMIT_LIMIT_HEADER", "RateLimit-Limit", blank("RateLimit-Limit", header(&h.Limit)), ""},
		{"LIMIT_REMAINING_HEADER", "RateLimit-Remaining", blank("RateLimit-Remaining", header(&h.Remaining)), ""},
		{"LIMIT_RESET_HEADER", "RateLimit-Reset", blank("RateLimit-Reset", header(&h.Reset)), ""},
	}
}

// rows returns the settings of one pool, whose names begin with prefix.
func (p *Pool) rows(prefix, url string) []row {
	return []row{
		{prefix + "SOCKET_TYPE", "unix", oneOf(&p.Network, "tcp", "unix"), ""},
		{prefix + "TYPE", "SINGLE", oneOf(&p.Type, "SINGLE", "SENTINEL", "CLUSTER"), ""},
		{prefix + "URL", url, text(&p.URL), ""},
		{prefix + "POOL_SIZE", "10", count(new(int)), noteOneLink},
		{prefix + "AUTH", "", text(&p.Auth), ""},
		{prefix + "TLS", "false", yes(&p.TLS), ""},
		{prefix + "SENTINEL_AUTH", "", text(&p.SentinelAuth), ""},
		{prefix + "PIPELINE_WINDOW", "0", duration(new(time.Duration)), noteOneLink},
		{prefix + "PIPELINE_LIMIT", "0", count(new(int)), noteDead},
		{prefix + "CLUSTER_PIPELINE_PARALLELISM", "1", count(new(int)), noteOneLink},
		{prefix + "TIMEOUT", "10s", duration(&p.Timeout), ""},
		{prefix + "POOL_ON_EMPTY_BEHAVIOR", "WAIT", oneOf(new(string), "WAIT", "CREATE", "ERROR"), noteOneLink},
	}
}

func (u *RedisUse) rows() []row {
	return []row{
		{"REDIS_PERSECOND", "false", yes(&u.PerSecond), ""},
		{"REDIS_TLS_CLIENT_CERT", "", text(&u.Cert), ""},
		{"REDIS_TLS_CLIENT_KEY", "", text(&u.Key), ""},
		{"REDIS_TLS_CACERT", "", text(&u.CA), ""},
		{"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "false", yes(&u.SkipHostname), ""},
		{"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "false", yes(&u.HealthNeedsConnection), ""},
		{"REDIS_STARTUP_INITIAL_INTERVAL", "1s", duration(new(time.Duration)), noteNoWait},
		{"REDIS_STARTUP_MAX_INTERVAL", "30s", duration(new(time.Duration)), noteNoWait},
		{"REDIS_STARTUP_MAX_ELAPSED_TIME", "0", duration(new(time.Duration)), noteNoWait},
		{"REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR", "false", yes(new(bool)), noteReadOnly},
	}
}

// memcacheRows are the settings of a backend that weir does not have.
func memcacheRows() []row {
	return []row{
		{"MEMCACHE_HOST_PORT", "", list(new([]string)), noteNoMemcache},
		{"MEMCACHE_SRV", "", text(new(string)), noteNoMemcache},
		{"MEMCACHE_SRV_REFRESH", "0", duration(new(time.Duration)), noteNoMemcache},
		{"MEMCACHE_MAX_IDLE_CONNS", "2", count(new(int)), noteNoMemcache},
		{"MEMCACHE_TLS", "false", yes(new(bool)), noteNoMemcache},
		{"MEMCACHE_TLS_CLIENT_CERT", "", text(new(string)), noteNoMemcache},
		{"MEMCACHE_TLS_CLIENT_KEY", "", text(new(string)), noteNoMemcache},
		{"MEMCACHE_TLS_CACERT", "", text(new(string)), noteNoMemcache},
		{"MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", "false", yes(new(bool)), noteNoMemcache},
	}
}

func (t *Tracing) rows() []row {
	return []row{
		{"TRACING_ENABLED", "false", yes(&t.Enabled), ""},
		{"TRACING_EXPORTER_PROTOCOL", "http", blank("http", oneOf(&t.Protocol, "http", "grpc")), ""},
		{"TRACING_SERVICE_NAME", "RateLimit", text(&t.ServiceName), ""},
		{"TRACING_SERVICE_NAMESPACE", "", text(&t.ServiceNamespace), ""},
		{"TRACING_SERVICE_INSTANCE_ID", "", text(&t.InstanceID), ""},
		{"TRACING_SAMPLING_RATE", "1", share(&t.SamplingRate), ""},
	}
}
