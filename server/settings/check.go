package settings

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

// mogrifierPrefix begins the settings of one mogrifier, before its name and _PATTERN,
// _NAME or _TAGS.
const mogrifierPrefix = "DOG_STATSD_MOGRIFIER_"

// loadMogrifiers reads the settings of each mogrifier that USE_DOG_STATSD_MOGRIFIERS names.
func (s *Settings) loadMogrifiers(lookup func(string) (string, bool)) error {
	var errs []error
	for _, label := range s.Stats.mogrifierLabels {
		m := Mogrifier{Label: label}
		m.Pattern, _ = lookup(mogrifierPrefix + label + "_PATTERN")
		m.Name, _ = lookup(mogrifierPrefix + label + "_NAME")
		tags, _ := lookup(mogrifierPrefix + label + "_TAGS")
		if err := pairs(&m.Tags, ":")(tags); err != nil {
			errs = append(errs, fmt.Errorf("%s%s_TAGS: %w", mogrifierPrefix, label, err))
		}
		s.Stats.Mogrifiers = append(s.Stats.Mogrifiers, m)
	}
	return errors.Join(errs...)
}

// check says what does not go together.
func (s *Settings) check() error {
	errs := []error{
		s.GRPC.check(),
		s.Redis.check("REDIS_"),
		s.Stats.check(),
	}
	if s.RedisUse.PerSecond {
		errs = append(errs, s.PerSecond.check("REDIS_PERSECOND_"))
	}
	if s.Redis.TLS || s.RedisUse.PerSecond && s.PerSecond.TLS {
		errs = append(errs, bothOrNone("REDIS_TLS_CLIENT_CERT", s.RedisUse.Cert, "REDIS_TLS_CLIENT_KEY", s.RedisUse.Key))
	}
	if s.Config.XDS {
		errs = append(errs, s.XDS.check())
	}
	return errors.Join(errs...)
}

func (x *XDS) check() error {
	switch {
	case x.URL == "":
		return errors.New("CONFIG_GRPC_XDS_SERVER_URL: it is empty: write HOST:PORT of the management server")
	case !x.UseTLS:
		return nil
	}
	return bothOrNone("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", x.Cert, "CONFIG_GRPC_XDS_CLIENT_TLS_KEY", x.Key)
}

func (g *GRPC) check() error {
	switch {
	case !g.UseTLS:
		return nil
	case g.Cert == "" || g.Key == "":
		return errors.New("GRPC_SERVER_USE_TLS is true: write the files of the certificate and its key in GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY")
	case g.ClientSAN != "" && g.ClientCA == "":
		return errors.New("GRPC_CLIENT_TLS_SAN is checked only with GRPC_CLIENT_TLS_CACERT: write the file of the authority that signs clients' certificates there")
	}
	return nil
}

// RedisScheme begins a URL such as redis://USER:PASSWORD@HOST:PORT/DB, which may stand in
// place of HOST:PORT of a single server.
const RedisScheme = "redis://"

// check says what is wrong with where the pool is. It never shows the URL: a password may
// be in it.
func (p *Pool) check(prefix string) error {
	bad := func(what string) error { return fmt.Errorf("%sURL: %s", prefix, what) }
	parts := strings.Split(p.URL, ",")
	switch p.Type {
	case "SENTINEL":
		if len(parts) < 2 {
			return bad("for SENTINEL write MASTER,HOST:PORT,HOST:PORT… with the master's name and the sentinels")
		}
		parts = parts[1:]
	case "SINGLE":
		if p.Network == "unix" {
			if p.URL == "" {
				return bad("it is empty: write the path of Redis' unix socket, or HOST:PORT and tcp in " + prefix + "SOCKET_TYPE")
			}
			return nil
		}
		if strings.HasPrefix(p.URL, RedisScheme) {
			return nil
		}
		if len(parts) > 1 {
			return bad("several addresses: write one HOST:PORT, or CLUSTER or SENTINEL in " + prefix + "TYPE")
		}
	}
	for _, part := range parts {
		if err := checkAddress(part); err != nil || strings.HasPrefix(part, ":") {
			return bad("an address is not HOST:PORT; several have commas between, without spaces")
		}
	}
	return nil
}

// check leaves it to the sinks to say what is wrong with a mogrifier.
func (t *Stats) check() error {
	var on []string
	for _, sink := range []struct {
		name string
		on   bool
	}{{"USE_STATSD", t.Statsd}, {"USE_DOG_STATSD", t.DogStatsd}, {"USE_PROMETHEUS", t.Prometheus}} {
		if sink.on {
			on = append(on, sink.name)
		}
	}
	if len(on) > 1 && !t.Disabled {
		return fmt.Errorf("%s are both on: write false in all but one; USE_STATSD is on unless it is false", strings.Join(on, " and "))
	}
	if t.FlushInterval == 0 {
		return errors.New("STATS_FLUSH_INTERVAL: 0 is not a time between two flushes: write one such as 10s")
	}
	return nil
}

func bothOrNone(a, valueOfA, b, valueOfB string) error {
	if (valueOfA == "") != (valueOfB == "") {
		return fmt.Errorf("%s and %s go together: write both or none", a, b)
	}
	return nil
}

// checkAddress accepts HOST:PORT and :PORT.
func checkAddress(s string) error {
	var n int
	_, digits, err := net.SplitHostPort(s)
	if err != nil || port(&n)(digits) != nil {
		return errors.New("not an address: write HOST:PORT or :PORT, with a port from 0 to 65535")
	}
	return nil
}
