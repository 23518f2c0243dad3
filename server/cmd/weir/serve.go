package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"weir.dev/weir/memstore"
	"weir.dev/weir/server/admin"
	"weir.dev/weir/server/rls"
	"weir.dev/weir/server/rules"
	"weir.dev/weir/server/source"
)

const (
	// drainTimeout bounds how long requests under way may take after SIGTERM.
	drainTimeout = 10 * time.Second
	// maxStreams is how many calls one connection may have in flight. A proxy has one
	// connection a worker.
	maxStreams = 4096
	// minPing is the shortest interval between a client's keepalive pings. A proxy
	// sends them as its operator says, and on idle connections too.
	minPing = 50 * time.Millisecond
)

// serveOptions is what the flags of serve say.
type serveOptions struct {
	config              []string
	store               string
	storeBudget         time.Duration
	instances           instances
	grpc, http, debug   string
	logLevel, logFormat string
}

func newServeCommand() *cobra.Command {
	var opts serveOptions
	cmd := &cobra.Command{
		Use:   "serve --config FILE|DIR",
		Short: "Run the rate limit service",
		Long: `Run the rate limit service until SIGTERM or SIGINT, then finish the requests under way.

gRPC:  envoy.service.ratelimit.v3.RateLimitService, grpc.health.v1.Health
HTTP:  POST /json, GET /healthcheck, GET /metrics
debug: GET /rlconfig, GET /debug/pprof/

Each flag can be given as an environment variable instead: --store as WEIR_STORE,
--log-level as WEIR_LOG_LEVEL. A password is safer there, for other users of the machine
can read command lines. Several paths in WEIR_CONFIG are separated like those in PATH.

What a limit does while the store is away is on_store_error in the rules: local serves its
share of the limit from memory, for which --instances or the rules' instances say how many
instances of the service there are; allow and deny need no number. Where the rules do not
say, it is local if the number is known, and else the answer is an error (UNAVAILABLE), on
which the proxy decides. Proxies get their answer before their timeout, whatever the store
does.

Stores:
` + storeUsage,
		Example: "  weir serve --config limits.yaml\n  weir serve --config /etc/weir --store redis://127.0.0.1:6379",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := setFromEnvironment(cmd.Flags(), os.LookupEnv); err != nil {
				return err
			}
			log, err := newLogger(cmd.ErrOrStderr(), opts.logLevel, opts.logFormat)
			if err != nil {
				return err
			}
			s, err := newServer(opts, log)
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return s.run(ctx)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&opts.config, "config", nil, configUsage)
	flags.StringVar(&opts.store, "store", "memory:", "where counters are kept, a `URL`: see above")
	flags.DurationVar(&opts.storeBudget, "store-budget", 0, "longest `TIME` that a question waits for the store's network (default 50ms)")
	flags.Var(&opts.instances, "instances", "how many instances of the service share the limits, in place of what the rules say")
	flags.StringVar(&opts.grpc, "grpc", ":8081", "`ADDRESS` for gRPC")
	flags.StringVar(&opts.http, "http", ":8080", "`ADDRESS` for HTTP")
	flags.StringVar(&opts.debug, "debug", "127.0.0.1:6070", "`ADDRESS` for debugging; it is for operators alone")
	flags.StringVar(&opts.logLevel, "log-level", "info", "least `LEVEL` to log: debug, info, warn or error")
	flags.StringVar(&opts.logFormat, "log-format", "text", "`FORMAT` of the log: text or json")
	return cmd
}

// setFromEnvironment sets each flag that the command line does not have from its
// variable, if there is one.
func setFromEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		name := "WEIR_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		text, ok := lookup(name)
		if !ok || f.Changed {
			return
		}
		values := []string{text}
		if _, list := f.Value.(pflag.SliceValue); list {
			values = filepath.SplitList(text)
		}
		for _, v := range values {
			if err := flags.Set(f.Name, v); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
		}
	})
	return errors.Join(errs...)
}

func newLogger(out io.Writer, level, format string) (*slog.Logger, error) {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: write debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: least}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(out, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(out, opts)), nil
	}
	return nil, fmt.Errorf("--log-format %q: write text or json", format)
}

// server is the running service: its listeners, and what answers on each.
type server struct {
	log     *slog.Logger
	health  *health.Server
	serving context.Context // until beginDrain
	store   *openStore
	service *rls.Service

	beginDrain context.CancelFunc

	grpcServer              *grpc.Server
	httpServer, debugServer *http.Server
	grpc, http, debug       net.Listener
}

// newServer loads the rules, opens the store and listens. After an error nothing is left
// open.
func newServer(opts serveOptions, log *slog.Logger) (_ *server, err error) {
	config, err := loadRules(opts.config, log)
	if err != nil {
		return nil, err
	}
	store, err := newStore(opts.store, opts.storeBudget)
	if err != nil {
		return nil, fmt.Errorf("--store: %w", err)
	}
	s := &server{log: log, health: health.NewServer(), store: store}
	s.serving, s.beginDrain = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(),
		admin.Nodes(store.nodes),
	)
	if s.service, err = newService(store, opts, registry, log); err != nil {
		return nil, err
	}
	if err := s.service.SetRules(config); err != nil {
		return nil, err
	}
	s.serveGRPC(s.service)
	s.httpServer = newHTTPServer(s.routes(s.service, registry), log)
	s.debugServer = newHTTPServer(admin.Debug(s.service.Rules), log)
	if err := s.listen(opts); err != nil {
		return nil, err
	}
	log.Info("serving", "grpc", s.grpc.Addr().String(), "http", s.http.Addr().String(), "debug", s.debug.Addr().String(),
		"store", storeName(opts.store), "domains", len(config.Domains()), "rules", len(config.Rules()))
	return s, nil
}

// newService returns the service, with the store in memory that stands in for a store
// which is away.
func newService(store *openStore, opts serveOptions, registry *prometheus.Registry, log *slog.Logger) (*rls.Service, error) {
	fallback, err := memstore.New(memstore.Options{})
	if err != nil {
		return nil, err
	}
	return rls.New(store.Store, rls.Options{
		Registry:        registry,
		Log:             log,
		StoreErrorClass: storeErrorClass,
		Budget:          store.budget,
		Fallback:        fallback,
		Instances:       int(opts.instances),
	})
}

// loadRules reads the rules, and logs what they surely do not mean.
func loadRules(paths []string, log *slog.Logger) (*rules.Config, error) {
	if len(paths) == 0 {
		return nil, fmt.Errorf("%w, or set WEIR_CONFIG", errNoConfig)
	}
	files, err := source.Read(paths...)
	if err != nil {
		return nil, err
	}
	config, err := rules.Parse(files...)
	if err != nil {
		return nil, fmt.Errorf("the rules have faults:\n%w", err)
	}
	for _, w := range config.Warnings {
		log.Warn("rules", "at", fmt.Sprintf("%s:%d:%d", w.File, w.Line, w.Column), "warning", w.Message)
	}
	return config, nil
}

func buildInfo() prometheus.Collector {
	b := readBuild()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "weir_build_info",
		Help:        "1, with what is running as labels.",
		ConstLabels: prometheus.Labels{"version": b.version, "revision": b.revision, "goversion": runtime.Version()},
	}, func() float64 { return 1 })
}

// serveGRPC makes the gRPC server. Health is known under each name that proxies are
// told to check.
func (s *server) serveGRPC(service *rls.Service) {
	s.grpcServer = grpc.NewServer(
		rls.ServerOption(),
		grpc.MaxRecvMsgSize(2*rls.MaxMessageBytes), // above its own bound, so that it can say what is wrong
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.StreamInterceptor(s.endWithService),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
	)
	service.Register(s.grpcServer)
	healthpb.RegisterHealthServer(s.grpcServer, s.health)
	for _, name := range []string{"", "ratelimit", rls.ServiceName} {
		s.health.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
	}
}

// endWithService ends a stream, which here is a watch of the health, when draining begins,
// with that as the last news. A watch would else be a request under way until time is up.
func (s *server) endWithService(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	ctx, end := context.WithCancel(stream.Context())
	defer end()
	defer context.AfterFunc(s.serving, end)()
	err := handle(service, &endingStream{stream, ctx})
	if s.serving.Err() == nil {
		return err
	}
	stream.SendMsg(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING}) // an error says that the watcher has left
	return status.Error(codes.Unavailable, "the service stops")
}

// endingStream is a stream with a context of its own.
type endingStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *endingStream) Context() context.Context { return s.ctx }

func (s *server) routes(service *rls.Service, registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /json", service)
	mux.Handle("GET /healthcheck", admin.Health(func() bool { return s.serving.Err() == nil }))
	mux.Handle("GET /metrics", admin.Metrics(registry))
	return mux
}

func newHTTPServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      2 * time.Minute, // a profile takes as long as it was asked to
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// listen opens the three addresses. A port that another process has is an error: shared,
// a stale process would keep a part of the calls.
func (s *server) listen(opts serveOptions) error {
	var errs []error
	for _, l := range []struct {
		flag, address string
		listener      *net.Listener
	}{{"--grpc", opts.grpc, &s.grpc}, {"--http", opts.http, &s.http}, {"--debug", opts.debug, &s.debug}} {
		if l.address == "" {
			errs = append(errs, fmt.Errorf("%s: the address is empty: write HOST:PORT or :PORT", l.flag))
			continue
		}
		var err error
		if *l.listener, err = net.Listen("tcp", l.address); err != nil {
			errs = append(errs, fmt.Errorf("%s %q: %w", l.flag, l.address, err))
		}
	}
	return errors.Join(errs...)
}

// run answers until ctx ends, then drains. The error says that a listener failed.
func (s *server) run(ctx context.Context) error {
	failed := make(chan error, 3)
	go func() { failed <- s.grpcServer.Serve(s.grpc) }()
	go func() { failed <- s.httpServer.Serve(s.http) }()
	go func() { failed <- s.debugServer.Serve(s.debug) }()
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	go (&nodeWatch{log: s.log}).run(watching, s.store.nodes)
	var err error
	select {
	case <-ctx.Done():
		s.log.Info("draining")
	case err = <-failed:
		s.log.Error("a listener failed", "error", err)
	}
	s.drain()
	s.log.Info("stopped")
	return err
}

// drain tells health checks first, so that proxies look for others, and then lets the
// requests under way end: for drainTimeout at most.
func (s *server) drain() {
	s.beginDrain()
	s.health.Shutdown()
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	stopped := make(chan struct{})
	go func() {
		s.grpcServer.GracefulStop()
		close(stopped)
	}()
	s.httpServer.Shutdown(ctx) // an error says that time is up: close ends what is left
	select {
	case <-stopped:
	case <-ctx.Done():
		s.log.Warn("requests were still under way", "after", drainTimeout)
	}
	s.close()
}

// close ends everything at once.
func (s *server) close() {
	if s.grpcServer != nil {
		s.grpcServer.Stop()
		s.httpServer.Close()
		s.debugServer.Close()
	}
	for _, l := range []net.Listener{s.grpc, s.http, s.debug} {
		if l != nil {
			l.Close() // closed already if its server ran
		}
	}
	if s.service != nil {
		s.service.Close()
	}
	if err := s.store.close(); err != nil {
		s.log.Error("closing the store", "error", err)
	}
}

// storeName is a store's URL as logs may show it.
func storeName(text string) string {
	u, err := parseStoreURL(text)
	if err != nil {
		return "unknown"
	}
	return u.String()
}
