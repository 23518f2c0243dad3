package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"weir.dev/weir/memstore"
	"weir.dev/weir/redisstore"
	"weir.dev/weir/server/settings"
	"weir.dev/weir/server/stats"
)

// mostCompatBudget bounds REDIS_TIMEOUT. A caller with a deadline gets its answer before
// it in any case; this is for those who would wait for ever.
const mostCompatBudget = time.Second

// newCompatStore returns the original's counters, and beside them weir's own store in the
// same place, for rules that name an algorithm.
func newCompatStore(set *settings.Settings, counts *stats.Registry) (*openStore, error) {
	if set.Limiter.Backend == "memory" {
		return newCompatMemory(&set.Limiter)
	}
	redis, err := redisOptions(&set.Redis, &set.RedisUse)
	if err != nil {
		return nil, err
	}
	redis = countConns(redis, counts, "ratelimit.redis_pool")
	opts := redisstore.CountersOptions{
		Options:          redis,
		KeyPrefix:        set.Limiter.KeyPrefix,
		ExpirationJitter: set.Limiter.ExpirationJitter,
		CalendarMonths:   set.Limiter.CalendarMonths,
		StopWhenOver:     set.Limiter.StopWhenOverLimit,
		LocalCacheBytes:  int64(set.Limiter.LocalCacheBytes),
	}
	if set.RedisUse.PerSecond {
		perSecond, err := redisOptions(&set.PerSecond, &set.RedisUse)
		if err != nil {
			return nil, fmt.Errorf("REDIS_PERSECOND: %w", err)
		}
		opts.Budget = max(opts.Budget, perSecond.Budget)
		perSecond.Budget = 0
		perSecond = countConns(perSecond, counts, "ratelimit.redis_per_second_pool")
		opts.PerSecond = &perSecond
	}
	counters, err := redisstore.NewCounters(opts)
	if err != nil {
		return nil, err
	}
	store, err := redisstore.New(redis)
	if err != nil {
		counters.Close()
		return nil, err
	}
	if opts.LocalCacheBytes > 0 {
		showLocalCache(counters.LocalCache, counts)
	}
	return &openStore{
		Store:    store,
		counters: counters,
		budget:   opts.Budget,
		nodes:    func() []redisstore.Node { return once(counters.Nodes()) },
		answers:  counters.Answers,
		close:    func() error { return errors.Join(counters.Close(), store.Close()) },
	}, nil
}

// newCompatMemory counts in this process alone, for those who try out rules or run one
// instance.
func newCompatMemory(l *settings.Limiter) (*openStore, error) {
	counters, err := memstore.NewCounters(memstore.CountersOptions{CalendarMonths: l.CalendarMonths, StopWhenOver: l.StopWhenOverLimit})
	if err != nil {
		return nil, err
	}
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		return nil, err
	}
	return &openStore{
		Store:    store,
		counters: counters,
		nodes:    func() []redisstore.Node { return nil },
		close:    func() error { return nil },
	}, nil
}

// compatStoreNames are what the log says of where the counters are: never a password.
func compatStoreNames(set *settings.Settings) []any {
	if set.Limiter.Backend == "memory" {
		return []any{"counters", "memory"}
	}
	names := []any{"redis", poolName(&set.Redis)}
	if set.RedisUse.PerSecond {
		names = append(names, "redis_persecond", poolName(&set.PerSecond))
	}
	return names
}

func poolName(p *settings.Pool) string {
	if strings.HasPrefix(p.URL, settings.RedisScheme) {
		return storeName(p.URL)
	}
	return p.URL
}

// once leaves out nodes that are there already: both pools may be on one server.
func once(nodes []redisstore.Node) []redisstore.Node {
	var list []redisstore.Node
	for _, n := range nodes {
		if !slices.ContainsFunc(list, func(m redisstore.Node) bool { return m.Addr == n.Addr }) {
			list = append(list, n)
		}
	}
	return list
}

// redisOptions translates the settings of one pool, which have been checked.
func redisOptions(p *settings.Pool, use *settings.RedisUse) (redisstore.Options, error) {
	opts := redisstore.Options{
		Addrs:  strings.Split(p.URL, ","),
		RESP2:  true, // as there: proxies in front of Redis may know nothing newer
		Budget: mostCompatBudget,
	}
	if p.Timeout > 0 {
		opts.Budget = min(p.Timeout, mostCompatBudget)
	}
	opts.Username, opts.Password = splitAuth(p.Auth)
	switch p.Type {
	case "SENTINEL":
		opts.Master, opts.Addrs = opts.Addrs[0], opts.Addrs[1:]
		opts.SentinelUsername, opts.SentinelPassword = splitAuth(p.SentinelAuth)
	case "CLUSTER":
		opts.Cluster = true
	case "SINGLE":
		switch {
		case p.Network == "unix":
			opts.Addrs = []string{net.JoinHostPort(p.URL, "0")} // so metrics name the socket
			opts.Dial = func(ctx context.Context, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "unix", p.URL)
			}
		case strings.HasPrefix(p.URL, settings.RedisScheme):
			if err := single(&opts, p.URL); err != nil {
				return opts, fmt.Errorf("the URL of Redis: %w", err)
			}
		}
	}
	if p.TLS {
		var err error
		if opts.TLS, err = redisTLS(use); err != nil {
			return opts, err
		}
	}
	return opts, nil
}

// single makes a single server of a redis:// URL, in which the password may be, and the
// number of the database.
func single(opts *redisstore.Options, text string) error {
	u, err := parseStoreURL(text)
	if err != nil {
		return err
	}
	said, err := u.redis()
	if err != nil {
		return err
	}
	opts.Addrs, opts.DB = said.Addrs, said.DB
	if said.Password != "" {
		opts.Username, opts.Password = said.Username, said.Password
	}
	return nil
}

// splitAuth reads PASSWORD or USER:PASSWORD.
func splitAuth(auth string) (user, password string) {
	user, password, both := strings.Cut(auth, ":")
	if !both {
		return "", auth
	}
	return user, password
}

// redisTLS returns how both pools speak TLS.
func redisTLS(use *settings.RedisUse) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if use.CA != "" {
		pool, err := certPool(use.CA)
		if err != nil {
			return nil, fmt.Errorf("REDIS_TLS_CACERT: %w", err)
		}
		config.RootCAs = pool
	}
	if use.Cert != "" {
		pair, err := tls.LoadX509KeyPair(use.Cert, use.Key)
		if err != nil {
			return nil, fmt.Errorf("REDIS_TLS_CLIENT_CERT and REDIS_TLS_CLIENT_KEY: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if use.SkipHostname {
		config.InsecureSkipVerify = true // VerifyConnection checks all but the name
		config.VerifyConnection = func(state tls.ConnectionState) error { return verifyChain(state, config.RootCAs) }
	}
	return config, nil
}

// verifyChain checks that one of the roots has signed for a server, whatever its name.
func verifyChain(state tls.ConnectionState, roots *x509.CertPool) error {
	opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, c := range state.PeerCertificates[1:] {
		opts.Intermediates.AddCert(c)
	}
	_, err := state.PeerCertificates[0].Verify(opts)
	return err
}
