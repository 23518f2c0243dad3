// Package xds gets the configuration from a server, as envoyproxy/ratelimit does: by the
// aggregated discovery service (ADS), state of the world, for
// ratelimit.config.ratelimit.v3.RateLimitConfig.
package xds

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"
)

// Client keeps asking one server for the configuration.
type Client struct {
	target    string
	opts      Options
	node      *core.Node
	headers   metadata.MD
	pauses    pauses
	connected atomic.Bool

	version string // of what was taken last
	taken   digest
	refused digest
	reason  error // why it was refused; nil: nothing was since something was taken
}

// Options of a Client. The zero value of a field is its default.
type Options struct {
	NodeID   string            // whom the server sees; default "default"
	Metadata map[string]string // of the node
	Headers  map[string]string // of the call, such as a token
	TLS      *TLS              // nil: none

	// ConnectRetry is how long to wait when the server cannot be reached; default 3 s.
	ConnectRetry time.Duration
	// BackoffInitial and BackoffMax are how long to wait when the server was reached and
	// has ended the call: at first, and at most as that happens again and again. Defaults
	// are 1 s and 30 s, or the other one where that is beyond.
	BackoffInitial, BackoffMax time.Duration
	// Jitter is by which part a wait is longer or shorter, at random: 0 to 1; default 0.5.
	Jitter   float64
	NoJitter bool

	MaxMessageBytes int // the largest response; default 16 MiB
	Log             *slog.Logger
}

// TLS says who the server must be, and who the client is. The files are read for each
// connection.
type TLS struct {
	CA        string // file of the authorities that the server's certificate is from; default: the system's
	Cert, Key string // files of the client's certificate and its key; default: none
	Name      string // the name that the server's certificate must have; default: the host that is connected to
}

const (
	defaultConnectRetry   = 3 * time.Second
	defaultBackoffInitial = time.Second
	defaultBackoffMax     = 30 * time.Second
	defaultJitter         = 0.5
	defaultMaxMessage     = 16 << 20

	// pingInterval is more than the 5 min that servers made with grpc-go allow by default.
	pingInterval = 6 * time.Minute
	pingTimeout  = 20 * time.Second
	// quietWarning is after how long a server that has sent nothing at all is told of.
	quietWarning = 15 * time.Second
	// maxReason is how much of a reason a server is sent, in bytes.
	maxReason = 4096
)

// pauses are between a response and the next: a server that answers each refusal with the
// same again would else keep both busy.
type pauses struct{ taken, refused time.Duration }

// New returns a client of the server at HOST:PORT, or any other target of gRPC. It does not
// connect yet. The error names every option that makes no sense, and a TLS file that cannot be read.
func New(target string, opts Options) (*Client, error) {
	c := &Client{target: target, opts: opts, headers: metadata.MD{}, pauses: pauses{100 * time.Millisecond, time.Second}}
	if c.opts.Log == nil {
		c.opts.Log = slog.New(slog.DiscardHandler)
	}
	var errs []error
	if target == "" {
		errs = append(errs, errors.New("the server's address is empty: write HOST:PORT"))
	}
	errs = append(errs, c.waits()...)
	switch {
	case opts.MaxMessageBytes < 0:
		errs = append(errs, fmt.Errorf("a largest message of %d bytes: write 0 for the default, or more", opts.MaxMessageBytes))
	case opts.MaxMessageBytes == 0:
		c.opts.MaxMessageBytes = defaultMaxMessage
	}
	for _, name := range slices.Sorted(maps.Keys(opts.Headers)) {
		if err := c.header(name, opts.Headers[name]); err != nil {
			errs = append(errs, err)
		}
	}
	if _, err := opts.TLS.config(); err != nil {
		errs = append(errs, err)
	}
	fields := make(map[string]*structpb.Value, len(opts.Metadata))
	for name, value := range opts.Metadata {
		fields[strings.ToValidUTF8(name, "�")] = structpb.NewStringValue(strings.ToValidUTF8(value, "�"))
	}
	if opts.NodeID == "" {
		opts.NodeID = "default"
	}
	c.node = &core.Node{
		Id:            strings.ToValidUTF8(opts.NodeID, "�"),
		Metadata:      &structpb.Struct{Fields: fields},
		UserAgentName: "weir",
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return c, nil
}

// waits checks the waits, and sets the defaults.
func (c *Client) waits() (errs []error) {
	o := &c.opts
	for _, w := range []struct {
		name string
		wait time.Duration
	}{{"connect retry interval", o.ConnectRetry}, {"initial backoff", o.BackoffInitial}, {"longest backoff", o.BackoffMax}} {
		if w.wait < 0 {
			errs = append(errs, fmt.Errorf("%s of %v: write a duration above 0", w.name, w.wait))
		}
	}
	if o.Jitter < 0 || o.Jitter > 1 || o.Jitter != o.Jitter {
		errs = append(errs, fmt.Errorf("random factor of %v: write 0 to 1", o.Jitter))
	}
	if o.BackoffInitial > o.BackoffMax && o.BackoffMax > 0 {
		errs = append(errs, fmt.Errorf("initial backoff of %v is longer than the longest of %v", o.BackoffInitial, o.BackoffMax))
	}
	if o.ConnectRetry == 0 {
		o.ConnectRetry = defaultConnectRetry
	}
	if o.BackoffMax == 0 {
		o.BackoffMax = max(defaultBackoffMax, o.BackoffInitial)
	}
	if o.BackoffInitial == 0 {
		o.BackoffInitial = min(defaultBackoffInitial, o.BackoffMax)
	}
	if o.Jitter == 0 {
		o.Jitter = defaultJitter
	}
	if o.NoJitter {
		o.Jitter = 0
	}
	return errs
}

var (
	headerName  = regexp.MustCompile(`^[a-z0-9_.-]+$`)
	headerValue = regexp.MustCompile(`^[ -~]*$`)
)

func (c *Client) header(name, value string) error {
	name = strings.ToLower(name)
	switch {
	case !headerName.MatchString(name) || strings.HasPrefix(name, "grpc-"):
		return fmt.Errorf("header name %.100q: write letters, digits, -, _ and ., not beginning with grpc-", name)
	case !headerValue.MatchString(value) && !strings.HasSuffix(name, "-bin"):
		return fmt.Errorf("header %s: the value is not printable ASCII", name)
	}
	c.headers.Set(name, value)
	return nil
}

// config returns what to connect with, or nil for no TLS.
func (t *TLS) config() (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.Name}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("the authorities of the server's certificate: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("the authorities of the server's certificate: %s has no certificate in PEM", t.CA)
		}
	}
	if t.Cert != "" || t.Key != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("the client's certificate and key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// Connected reports whether a call to the server is open.
func (c *Client) Connected() bool { return c.connected.Load() }

// Run asks the server and calls use with each configuration that differs from the last one
// that use took, or with an error where a response cannot be read. What use returns an error
// for is refused, with that as the reason. Run keeps asking, whatever the server does, until
// ctx ends. Only one Run may be under way.
func (c *Client) Run(ctx context.Context, use func(*Update, error) error) {
	failures, told := 0, ""
	for {
		end := c.call(ctx, use)
		if ctx.Err() != nil {
			return
		}
		wait := c.opts.ConnectRetry
		switch {
		case end.took:
			failures = 0
			fallthrough
		case end.opened:
			wait = backoff(c.opts.BackoffInitial, c.opts.BackoffMax, failures)
			failures++
		}
		wait = spread(wait, c.opts.Jitter, rand.Float64())
		level := slog.LevelWarn
		if end.err.Error() == told && !end.took {
			level = slog.LevelDebug
		}
		told = end.err.Error()
		c.opts.Log.Log(ctx, level, "no xDS server: the rules stay as they are", "server", c.target, "error", end.err, "retry_in", wait.Round(time.Millisecond))
		if !pause(ctx, wait) {
			return
		}
	}
}

// backoff is the wait after some failures in a row: twice as long for each.
func backoff(initial, most time.Duration, failures int) time.Duration {
	wait := initial
	for range failures {
		if wait >= most/2 {
			return most
		}
		wait *= 2
	}
	return wait
}

// spread makes a wait longer or shorter by up to a part of it; random is from 0 to 1.
func spread(wait time.Duration, part, random float64) time.Duration {
	return time.Duration(float64(wait) * (1 - part + 2*part*random))
}

// pause waits, and reports false if ctx ended first.
func pause(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// ending is how a call ended.
type ending struct {
	opened bool // the server was reached
	took   bool // a configuration was taken
	err    error
}

// call connects and stays connected as long as the server allows.
func (c *Client) call(ctx context.Context, use func(*Update, error) error) (end ending) {
	transport := insecure.NewCredentials()
	config, err := c.opts.TLS.config()
	if err != nil {
		return ending{err: err}
	}
	if config != nil {
		transport = credentials.NewTLS(config)
	}
	conn, err := grpc.NewClient(c.target,
		grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(c.opts.MaxMessageBytes)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingInterval, Timeout: pingTimeout}),
		grpc.WithContextDialer(dial),
	)
	if err != nil {
		return ending{err: err}
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, c.headers))
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return ending{err: err}
	}
	c.connected.Store(true)
	defer c.connected.Store(false)
	c.opts.Log.Info("connected to the xDS server", "server", c.target)
	took, err := c.talk(ctx, stream, use)
	return ending{opened: true, took: took, err: err}
}

// dial makes the kernel find out that the server's machine has gone.
func dial(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}}
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		return d.DialContext(ctx, "unix", path)
	}
	return d.DialContext(ctx, "tcp", address)
}

// talk subscribes, and answers each response, until the stream ends.
func (c *Client) talk(ctx context.Context, stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient, use func(*Update, error) error) (took bool, err error) {
	// Without a version: a server that has begun anew may give the one taken last to
	// another configuration.
	if err := stream.Send(c.request()); err != nil {
		return false, streamError(stream, err)
	}
	quiet := time.AfterFunc(quietWarning, func() {
		c.opts.Log.Warn("the xDS server has not sent a configuration yet", "server", c.target, "node", c.node.Id, "after", quietWarning)
	})
	defer quiet.Stop()
	for {
		response, err := stream.Recv()
		if err != nil {
			return took, err
		}
		quiet.Stop()
		if got := response.GetTypeUrl(); got != typeURL && got != "" {
			// To refuse it would be to ask for it.
			c.opts.Log.Warn("the xDS server sends what was not asked for", "server", c.target, "type", fmt.Sprintf("%.200q", got))
			if !pause(ctx, c.pauses.refused) {
				return took, ctx.Err()
			}
			continue
		}
		request, wait := c.request(), c.pauses.taken
		request.ResponseNonce = response.GetNonce()
		if err := c.take(response, use); err != nil {
			request.ErrorDetail = &statuspb.Status{Code: int32(codes.InvalidArgument), Message: shorten(err.Error())}
			wait = c.pauses.refused
		} else {
			took = true
		}
		request.VersionInfo = c.version
		if err := stream.Send(request); err != nil {
			return took, streamError(stream, err)
		}
		if !pause(ctx, wait) {
			return took, ctx.Err()
		}
	}
}

// streamError returns why a Send failed, which only the next Recv says.
func streamError(stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient, err error) error {
	for range 2 { // what was sent before the end comes first
		if _, cause := stream.Recv(); cause != nil {
			return cause
		}
	}
	return err
}

func (c *Client) request() *discovery.DiscoveryRequest {
	return &discovery.DiscoveryRequest{Node: c.node, TypeUrl: typeURL}
}

// take has a response used, if it is not what was taken or refused last. The error is why it
// is refused.
func (c *Client) take(response *discovery.DiscoveryResponse, use func(*Update, error) error) error {
	update, err := newUpdate(response)
	is := digestOf(update, err)
	switch {
	case is == c.taken:
		c.version, c.reason = update.Version, nil
		return nil
	case is == c.refused && c.reason != nil:
		return c.reason
	}
	if used := use(update, err); err == nil && used != nil {
		err = update.explain(used)
	}
	if err != nil {
		c.refused, c.reason = is, err
		return err
	}
	c.version, c.taken, c.reason = update.Version, is, nil
	return nil
}

// shorten cuts a reason down to what a server is sent.
func shorten(reason string) string {
	if len(reason) > maxReason {
		reason = reason[:maxReason] + "…"
	}
	return strings.ToValidUTF8(reason, "�")
}
