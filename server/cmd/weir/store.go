package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/memstore"
	"weir.dev/weir/redisstore"
	"weir.dev/weir/server/rls"
)

// storeUsage is what users write for a store.
const storeUsage = `memory:[?max_keys=N]
redis://[USER:PASSWORD@]HOST[:PORT][/DB]        one server
rediss://…                                      the same over TLS
redis+sentinel://[USER:PASSWORD@]HOST[:PORT],…/MASTER[?db=N&sentinel_user=U&sentinel_password=P]
redis+cluster://[USER:PASSWORD@]HOST[:PORT],…   Redis Cluster
with ?tls=true, ca=FILE, cert=FILE and key=FILE, server_name=NAME, resp2=true, client_name=NAME, budget=DURATION;
in the password %, and in the query @ as well, are written as %25 and %40`

// openStore is a store, and what a service does with one.
type openStore struct {
	weir.Store
	counters rls.Counters                // shared with envoyproxy/ratelimit in compat; else nil
	budget   time.Duration               // the longest that a question takes; 0 in memory
	nodes    func() []redisstore.Node    // the servers that decide; none in memory
	answers  func(context.Context) error // why the servers do not, if so; nil in memory
	close    func() error
}

// newStore returns the store that a URL names, with a budget for its questions, or 0 for
// the URL's own. A Redis server that is away is no error here. Errors never show a
// password.
func newStore(text string, budget time.Duration) (*openStore, error) {
	u, err := parseStoreURL(text)
	if err != nil {
		return nil, err
	}
	if u.scheme == "memory" {
		opts, err := u.memory()
		if err != nil {
			return nil, fmt.Errorf("memory: %w", err)
		}
		store, err := memstore.New(opts)
		if err != nil {
			return nil, err
		}
		none := func() []redisstore.Node { return nil }
		return &openStore{Store: store, nodes: none, close: func() error { return nil }}, nil
	}
	opts, err := u.redis()
	switch {
	case err != nil:
	case budget != 0 && opts.Budget != 0:
		err = fmt.Errorf("its budget of %v is given as %v too: leave one of them out", opts.Budget, budget)
	case budget != 0:
		opts.Budget = budget
	case opts.Budget == 0:
		opts.Budget = redisstore.DefaultBudget
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u, err)
	}
	store, err := redisstore.New(opts)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u, err)
	}
	answers := func(ctx context.Context) error {
		_, err := store.Take(ctx, weir.Ask{Name: "health", Key: weir.Text("start"), Limit: weir.PerMinute(1)})
		return err
	}
	return &openStore{Store: store, budget: opts.Budget, nodes: store.Nodes, answers: answers, close: store.Close}, nil
}

// storeErrorClass names the kind of a store's error, or "" where the store has no name
// for it.
func storeErrorClass(err error) string {
	if e, ok := errors.AsType[*redisstore.Error](err); ok {
		return string(e.Class)
	}
	return ""
}

// storeURL is a store's URL in its parts. net/url would refuse several hosts with ports,
// and its errors show the whole text.
type storeURL struct {
	scheme         string
	user, password string
	hosts          []string // host:port
	path           string   // without the slash
	query          url.Values
}

// String returns the URL without user, password and query.
func (u *storeURL) String() string {
	if u.scheme == "memory" {
		return "memory:"
	}
	s := u.scheme + "://" + strings.Join(u.hosts, ",")
	if u.path != "" {
		s += "/" + u.path
	}
	return s
}

const (
	redisPort    = "6379"
	sentinelPort = "26379"
)

func parseStoreURL(text string) (*storeURL, error) {
	if rest, ok := strings.CutPrefix(text, "memory:"); ok {
		_, query, _ := strings.Cut(rest, "?")
		values, err := url.ParseQuery(query)
		if err != nil || rest != "" && !strings.HasPrefix(rest, "?") {
			return nil, errors.New("memory: write memory: or memory:?max_keys=N")
		}
		return &storeURL{scheme: "memory", query: values}, nil
	}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok || !slices.Contains([]string{"redis", "rediss", "redis+sentinel", "redis+cluster"}, scheme) {
		return nil, fmt.Errorf("the store's URL begins with none of memory:, redis://, rediss://, redis+sentinel:// and redis+cluster://; write one of\n%s", storeUsage)
	}
	u := &storeURL{scheme: scheme}
	// The last @ ends the password: nothing of it may be taken for the host, for errors
	// show the host.
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, password, _ := strings.Cut(rest[:at], ":")
		var errUser, errPassword error
		u.user, errUser = url.PathUnescape(user)
		u.password, errPassword = url.PathUnescape(password)
		if errUser != nil || errPassword != nil {
			return nil, fmt.Errorf("%s: the user or the password has a %% that begins no escape: write %%25 for it", scheme)
		}
		rest = rest[at+1:]
	}
	rest, query, _ := strings.Cut(rest, "?")
	hosts, path, _ := strings.Cut(rest, "/")
	var err error
	if u.query, err = url.ParseQuery(query); err != nil {
		return nil, fmt.Errorf("%s: what is after ? is not name=value&name=value", scheme)
	}
	u.path = path
	if u.hosts, err = splitHosts(hosts, u.defaultPort()); err != nil {
		return nil, fmt.Errorf("%s: %w", scheme, err)
	}
	return u, nil
}

func (u *storeURL) defaultPort() string {
	if u.scheme == "redis+sentinel" {
		return sentinelPort
	}
	return redisPort
}

// splitHosts reads "a,b:1,[::1]:2". Its errors show no port: where the @ before the host
// was forgotten, that is the password.
func splitHosts(text, defaultPort string) ([]string, error) {
	var hosts []string
	for _, h := range strings.Split(text, ",") {
		host, port := h, defaultPort
		if bare := strings.Trim(h, "[]"); strings.HasPrefix(h, "[") && strings.HasSuffix(h, "]") {
			host = bare
		} else if strings.Contains(h, ":") {
			var err error
			if host, port, err = net.SplitHostPort(h); err != nil {
				return nil, errors.New("a host is not HOST, HOST:PORT or [ADDRESS]:PORT")
			}
		}
		if strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || strings.ContainsRune("[]{}\"\\%", r) }) {
			return nil, errors.New("a host has a character that no host has: write HOST, HOST:PORT or [ADDRESS]:PORT")
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, fmt.Errorf("the port of host %q is not a number from 1 to 65535; if it is a password, write @HOST behind it", host)
		}
		if host == "" {
			return nil, errors.New("a host is missing: write HOST or HOST:PORT, several with commas between")
		}
		hosts = append(hosts, net.JoinHostPort(host, port))
	}
	return hosts, nil
}

// memory returns the options of the store in memory.
func (u *storeURL) memory() (memstore.Options, error) {
	if err := u.only("max_keys"); err != nil {
		return memstore.Options{}, err
	}
	n, err := u.number("max_keys")
	return memstore.Options{MaxKeys: n}, err
}

// redis returns the options of a Redis store. The error names everything wrong.
func (u *storeURL) redis() (redisstore.Options, error) {
	known := []string{"tls", "ca", "cert", "key", "server_name", "resp2", "client_name", "budget"}
	opts := redisstore.Options{
		Addrs:      u.hosts,
		Username:   u.user,
		Password:   u.password,
		ClientName: u.query.Get("client_name"),
	}
	var errs []error
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	var err error
	switch u.scheme {
	case "redis+sentinel":
		known = append(known, "db", "sentinel_user", "sentinel_password")
		opts.Master, opts.SentinelUsername, opts.SentinelPassword = u.path, u.query.Get("sentinel_user"), u.query.Get("sentinel_password")
		if u.path == "" {
			note(errors.New("no master: write its name behind a slash, as in redis+sentinel://HOST/MASTER"))
		}
		opts.DB, err = u.number("db")
		note(err)
	case "redis+cluster":
		opts.Cluster = true
		if u.path != "" {
			note(fmt.Errorf("a cluster has no database %q: leave it out", u.path))
		}
	default:
		if len(u.hosts) > 1 {
			note(fmt.Errorf("%d hosts: write one, or redis+cluster:// or redis+sentinel://", len(u.hosts)))
		}
		if u.path != "" {
			if opts.DB, err = strconv.Atoi(u.path); err != nil || opts.DB < 0 {
				note(fmt.Errorf("the database %q is not a number from 0", u.path))
			}
		}
	}
	note(u.only(known...))
	opts.RESP2, err = u.yes("resp2")
	note(err)
	opts.Budget, err = u.duration("budget")
	note(err)
	opts.TLS, err = u.tls()
	note(err)
	return opts, errors.Join(errs...)
}

// tls returns what to connect with, or nil for no TLS.
func (u *storeURL) tls() (*tls.Config, error) {
	on, err := u.yes("tls")
	if err != nil {
		return nil, err
	}
	q := u.query
	if u.scheme != "rediss" && !on {
		if q.Has("ca") || q.Has("cert") || q.Has("key") || q.Has("server_name") {
			return nil, errors.New("ca, cert, key and server_name need tls=true")
		}
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: q.Get("server_name")}
	if ca := q.Get("ca"); ca != "" {
		if config.RootCAs, err = certPool(ca); err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
	}
	if cert, key := q.Get("cert"), q.Get("key"); cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("cert and key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// only returns an error that names the parameters which are not among known.
func (u *storeURL) only(known ...string) error {
	var unknown []string
	for name := range u.query {
		if !slices.Contains(known, name) {
			unknown = append(unknown, strconv.Quote(name))
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return fmt.Errorf("unknown parameter %s: known are %s", strings.Join(unknown, ", "), strings.Join(known, ", "))
}

func (u *storeURL) number(name string) (int, error) {
	text := u.query.Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s=%q is not a number from 0", name, text)
	}
	return n, nil
}

func (u *storeURL) yes(name string) (bool, error) {
	switch text := u.query.Get(name); text {
	case "true":
		return true, nil
	case "", "false":
		return false, nil
	default:
		return false, fmt.Errorf("%s=%q: write true or false", name, text)
	}
}

func (u *storeURL) duration(name string) (time.Duration, error) {
	text := u.query.Get(name)
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%s=%q is not a duration above 0 such as 50ms", name, text)
	}
	return d, nil
}
