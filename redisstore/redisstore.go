// Package redisstore keeps counters in Redis or Valkey, so that many processes share
// them: one server, a Sentinel group, or a Cluster, of Redis 6.2 and Valkey 7.2 or later.
//
// Each question is one call of an atomic script that reads the server's clock, decides
// as memstore does, and writes only when it charges. Several questions about one client
// are one call too. A question waits at most Options.Budget for the network, whatever
// happens there, and what may have run is never sent twice.
//
// Keys are weir:{who}:name:s, where who is [weir.Key.String], name is the limit's, and s
// is the kind of state. The braces put everything about one client into one slot of a
// Cluster. Every key has a TTL.
//
// [Counters] are another store, on the keys and by the rules of envoyproxy/ratelimit.
package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"weir.dev/weir"
	"weir.dev/weir/internal/algorithm"
)

// DefaultBudget is how long one question may wait for the network by default.
const DefaultBudget = 50 * time.Millisecond

// Options of a Store. Addrs are required; the zero value of the rest is the default.
type Options struct {
	Addrs   []string // host:port of the server; of some nodes with Cluster; of the sentinels with Master
	Cluster bool     // Addrs are nodes of a Cluster
	Master  string   // Addrs are Sentinels, which watch a master of this name

	Username, Password                 string
	SentinelUsername, SentinelPassword string
	DB                                 int         // database number, for one server or Sentinel
	TLS                                *tls.Config // nil: plain TCP; TLS 1.2 is the least
	RESP2                              bool        // for proxies such as twemproxy: neither HELLO nor CLIENT is sent, nor INFO
	ClientName                         string      // as CLIENT LIST shows it, but for RESP2; default "weir"

	// Budget is the longest that one question waits for the network, redirects, resends
	// and connecting included: at most a minute. Default 50 ms.
	Budget time.Duration
	// Dial connects in place of a net.Dialer; TLS, if any, is spoken over its connection.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// Store is a weir.Store on Redis or Valkey. It is safe for concurrent use.
type Store struct {
	opts Options
	link *link

	mu   sync.RWMutex
	args map[question][]string // see arguments
}

// New returns a store, and begins to connect in the background: a server that is away
// makes questions fail, not New. The error names every option that is wrong.
func New(opts Options) (*Store, error) {
	if err := opts.faults(); err != nil {
		return nil, fmt.Errorf("redisstore.New: %w", err)
	}
	opts = opts.withDefaults()
	s := &Store{opts: opts, args: make(map[question][]string)}
	s.link = newLink(opts)
	return s, nil
}

func (o Options) withDefaults() Options {
	if o.Budget == 0 {
		o.Budget = DefaultBudget
	}
	if o.ClientName == "" {
		o.ClientName = "weir"
	}
	return o
}

// faults returns an error that names every option that is wrong, or nil.
func (o Options) faults() error {
	var errs []error
	if len(o.Addrs) == 0 {
		errs = append(errs, errors.New("no address: write host:port"))
	}
	for _, addr := range o.Addrs {
		if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
			errs = append(errs, fmt.Errorf("address %q is not host:port", addr))
		}
	}
	if !o.Cluster && o.Master == "" && len(o.Addrs) > 1 {
		errs = append(errs, fmt.Errorf("%d addresses for one server: set Cluster, or Master for Sentinels", len(o.Addrs)))
	}
	if o.Cluster && o.Master != "" {
		errs = append(errs, fmt.Errorf("both Cluster and Master %q: choose one", o.Master))
	}
	if o.Cluster && o.DB != 0 || o.DB < 0 {
		errs = append(errs, fmt.Errorf("database %d: 0 or more, and 0 in a Cluster", o.DB))
	}
	if o.Budget < 0 || o.Budget > time.Minute {
		errs = append(errs, fmt.Errorf("a budget of %v is outside 0 (the default, %v) to 1m", o.Budget, DefaultBudget))
	}
	if strings.ContainsAny(o.ClientName, " \n\r") {
		errs = append(errs, fmt.Errorf("client name %q has spaces", o.ClientName))
	}
	if o.Master == "" && (o.SentinelUsername != "" || o.SentinelPassword != "") {
		errs = append(errs, errors.New("credentials for Sentinels without a Master"))
	}
	return errors.Join(errs...)
}

// Close ends the connections. Questions in flight and later ones fail.
func (s *Store) Close() error {
	s.link.close()
	return nil
}

// Nodes returns the servers that decide, in the order of their addresses, and how they
// fare: for metrics and for people.
func (s *Store) Nodes() []Node { return s.link.nodes.list() }

// Take answers one question in one call.
func (s *Store) Take(ctx context.Context, ask weir.Ask) (weir.Decision, error) {
	if err := ask.Validate(); err != nil {
		return weir.Decision{}, err
	}
	if ask.Limit.Units() == 0 {
		return denied(time.Now().UnixMicro()), nil
	}
	return s.take(ctx, &ask, clock{scripts: &live})
}

// denied is the answer of a limit of 0 units, which no server need be asked for.
func denied(at int64) weir.Decision { return weir.Decision{RetryAfter: weir.Never, AtMicros: at} }

// take asks one question under a clock.
func (s *Store) take(ctx context.Context, ask *weir.Ask, c clock) (weir.Decision, error) {
	q := questionOf(ask)
	kind := algorithm.KindOf(ask.Limit.Algorithm())
	sc := c.take[kind]
	if q.isPeek() {
		sc = c.peek[kind]
	}
	b, err := newBudget(ctx, s.opts.Budget)
	if err != nil {
		return weir.Decision{}, err
	}
	defer b.end()
	reply, err := s.link.run(b, sc, []string{stateKey(ask.Key, ask.Name, kind)}, c.arguments(s.arguments(q)))
	if err != nil {
		return weir.Decision{}, err
	}
	var numbers [6]int64
	row, err := integers(reply, numbers[:0])
	if err != nil {
		return weir.Decision{}, classify(err)
	}
	v, err := oneVerdict(ask, q, row)
	if err != nil {
		return weir.Decision{}, classify(err)
	}
	return v.decision(ask, q), nil
}

// Refund gives units back in one call.
func (s *Store) Refund(ctx context.Context, ask weir.Ask, d weir.Decision) (int64, error) {
	if err := validateRefund(&ask, d); err != nil {
		return 0, err
	}
	return s.refund(ctx, &ask, d, clock{scripts: &live})
}

func validateRefund(ask *weir.Ask, d weir.Decision) error {
	if err := ask.Validate(); err != nil {
		return err
	}
	if ask.Cost > d.Taken {
		return fmt.Errorf("limit %q: a refund of %d units of a decision that took %d: give back 0 to %[3]d", ask.Name, ask.Cost, d.Taken)
	}
	if d.AtMicros < 0 || d.AtMicros > 1<<53 || d.ResetAfter < 0 || d.Remaining < 0 {
		return fmt.Errorf("limit %q: a refund of a decision made at %d µs with a reset after %v: pass back the decision as it was returned", ask.Name, d.AtMicros, d.ResetAfter)
	}
	return nil
}

func (s *Store) refund(ctx context.Context, ask *weir.Ask, d weir.Decision, c clock) (int64, error) {
	if ask.Cost == 0 || ask.Limit.Units() == 0 { // nothing was ever taken of it
		return 0, nil
	}
	b, err := newBudget(ctx, s.opts.Budget)
	if err != nil {
		return 0, err
	}
	defer b.end()
	keys := []string{stateKey(ask.Key, ask.Name, algorithm.KindOf(ask.Limit.Algorithm())), stateKey(ask.Key, ask.Name, algorithm.KindRefunds)}
	reply, err := s.link.run(b, c.refund, keys, c.arguments(refundArguments(ask, d)))
	if err != nil {
		return 0, err
	}
	return refunded(ask, reply)
}

// Reset forgets the key under the named limit, in one call.
func (s *Store) Reset(ctx context.Context, name string, key weir.Key) error {
	return s.remove(ctx, name, key, call{script: live.reset})
}

// arguments returns the question's arguments, which are made once for each question.
func (s *Store) arguments(q question) []string {
	const most = 4096 // questions remembered; beyond, all are made anew
	s.mu.RLock()
	args, ok := s.args[q]
	s.mu.RUnlock()
	if ok {
		return args
	}
	args = q.arguments()
	s.mu.Lock()
	if len(s.args) >= most {
		clear(s.args)
	}
	s.args[q] = args
	s.mu.Unlock()
	return args
}

// stateKey returns the key of one kind of state: weir:{who}:name:kind.
func stateKey(who weir.Key, name string, kind algorithm.Kind) string {
	var buf [256]byte
	b := append(buf[:0], "weir:{"...)
	b = who.Append(b)
	b = append(b, "}:"...)
	b = append(b, name...)
	b = append(b, ':', byte(kind))
	return string(b)
}

// integers appends the numbers of a reply: of an array, or of a string that begins with
// the seconds and microseconds of TIME, which are one number, the store's time.
func integers(reply rueidis.RedisMessage, to []int64) ([]int64, error) {
	if reply.IsString() {
		text, err := reply.ToString()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errGarbage, err)
		}
		return timed(text, to)
	}
	values, err := reply.ToArray()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errGarbage, err)
	}
	if len(values) > 8 {
		return nil, fmt.Errorf("%w: %d numbers", errGarbage, len(values))
	}
	for i := range values {
		n, err := values[i].ToInt64()
		if err != nil {
			return nil, fmt.Errorf("%w: number %d: %w", errGarbage, i, err)
		}
		to = append(to, n)
	}
	return to, nil
}

// timed appends the numbers of a reply that is a string: the first two are one number.
func timed(text string, to []int64) ([]int64, error) {
	var seconds int64
	for n, rest, more := 0, text, true; more; n++ {
		var number string
		number, rest, more = strings.Cut(rest, " ")
		v, err := strconv.ParseInt(number, 10, 64)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: %.40q, want numbers", errGarbage, text)
		case n == 0:
			seconds = v
		case n == 1:
			if seconds < 0 || seconds > 1<<34 || v < -1<<54 || v > 1<<54 {
				return nil, fmt.Errorf("%w: a time of %d s and %d µs", errGarbage, seconds, v)
			}
			to = append(to, seconds*1_000_000+v-storeEpoch)
		default:
			to = append(to, v)
		}
	}
	return to, nil
}
