package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"weir.dev/weir/server/settings"
	"weir.dev/weir/server/xds"
)

const xdsUsage = "management server that has the rules, in place of --config, a `URL`: see above"

// xdsURLUsage is what users write for a management server.
const xdsURLUsage = `grpc://HOST:PORT[?node=ID]        state of the world, by ADS
grpcs://HOST:PORT[?node=ID]       the same over TLS, with ca=FILE, cert=FILE and key=FILE, server_name=NAME`

// newManagement returns the client of the management server that has the rules.
func (s *server) newManagement() (*xds.Client, error) {
	target, opts, what := "", xds.Options{}, "--xds"
	var err error
	if s.opts.compat != nil {
		what = "CONFIG_GRPC_XDS_*"
		target, opts = s.opts.compat.XDS.URL, compatXDS(&s.opts.compat.XDS)
	} else {
		target, opts, err = parseXDSURL(s.opts.xds)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	opts.Log = s.log
	client, err := xds.New(target, opts)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return client, s.registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rate_limit_xds_connected",
		Help: "1 while there is a call to the management server that has the rules, else 0.",
	}, func() float64 {
		if client.Connected() {
			return 1
		}
		return 0
	}))
}

// compatXDS translates the original's settings.
func compatXDS(set *settings.XDS) xds.Options {
	opts := xds.Options{
		NodeID:          set.NodeID,
		Metadata:        set.NodeMetadata,
		Headers:         set.Headers,
		ConnectRetry:    set.RetryInterval,
		BackoffInitial:  set.BackoffInitial,
		BackoffMax:      set.BackoffMax,
		Jitter:          set.BackoffRandom,
		NoJitter:        !set.BackoffJitter || set.BackoffRandom == 0,
		MaxMessageBytes: set.MaxMessageBytes,
	}
	if set.UseTLS {
		opts.TLS = &xds.TLS{CA: set.CA, Cert: set.Cert, Key: set.Key, Name: set.ServerName}
	}
	return opts
}

// parseXDSURL reads the URL of a management server.
func parseXDSURL(text string) (target string, opts xds.Options, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "grpc" && u.Scheme != "grpcs" || u.User != nil || u.Path != "" || u.Fragment != "" {
		return "", opts, fmt.Errorf("%q is no URL of a management server; write one of\n%s", text, xdsURLUsage)
	}
	if host, port, err := net.SplitHostPort(u.Host); err != nil || host == "" || port == "" {
		return "", opts, fmt.Errorf("%q: the host or the port is missing: write HOST:PORT", text)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", opts, fmt.Errorf("%q: %w", text, err)
	}
	known := []string{"node"}
	if u.Scheme == "grpcs" {
		known = append(known, "ca", "cert", "key", "server_name")
		opts.TLS = &xds.TLS{CA: query.Get("ca"), Cert: query.Get("cert"), Key: query.Get("key"), Name: query.Get("server_name")}
	}
	opts.NodeID = query.Get("node")
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(known, name) {
			errs = append(errs, fmt.Errorf("%q: unknown parameter %q: %s:// knows %q", text, name, u.Scheme, known))
		}
	}
	return u.Host, opts, errors.Join(errs...)
}
