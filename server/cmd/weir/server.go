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
	"os/signal"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc"

	"weir.dev/weir/memstore"
	"weir.dev/weir/server/admin"
	"weir.dev/weir/server/httpcheck"
	"weir.dev/weir/server/rls"
	"weir.dev/weir/server/source"
	"weir.dev/weir/server/stats"
	"weir.dev/weir/server/tracing"
	"weir.dev/weir/server/xds"
)

const (
	// drainTimeout bounds how long requests under way may take at the end.
	drainTimeout = 10 * time.Second
	// longestDrainWait is beyond what any proxy needs to see that health is red.
	longestDrainWait = 10 * time.Minute
)

// heapFloor is held and never touched, so it takes no memory; but garbage is collected
// only when there is as much. Else a heap of a few MB would be collected many times a
// second.
const heapFloor = 32 << 20

// server is the running service: its listeners, and what answers on each.
type server struct {
	opts     serveOptions
	log      *slog.Logger
	checks   *checks
	registry *prometheus.Registry
	counts   *stats.Registry // by the original's names, in compat; else nil, which counts nothing
	sink     *stats.Sink     // where they go; nil: nowhere
	tracer   *tracing.Tracer // in compat, if a setting says so; else nil
	store    *openStore
	service  *rls.Service
	loads    *loads

	files      *source.Files // of the rules; nil: a management server has them
	hangups    chan os.Signal
	management *xds.Client // of that server, else nil

	serving     context.Context // until the service drains
	stopServing context.CancelFunc

	grpcServer              *grpc.Server
	httpServer, debugServer *http.Server
	grpc, http, debug       net.Listener

	metricsServer *http.Server // metrics on an address of their own, in compat; else nil
	metrics       net.Listener
}

// newServer opens the store, loads the rules and listens. After an error nothing is left
// open.
func newServer(opts serveOptions, log *slog.Logger) (_ *server, err error) {
	s := &server{opts: opts, log: log, registry: prometheus.NewRegistry()}
	s.serving, s.stopServing = context.WithCancel(context.Background())
	s.catchHangups()
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if w := opts.drainWait; w < 0 || w > longestDrainWait {
		return nil, fmt.Errorf("--drain-wait %v: write a duration from 0s to %v", w, longestDrainWait)
	}
	if err := errors.Join(s.openStats(), s.openTracing()); err != nil {
		return nil, err
	}
	if s.store, err = opts.openStore(s.counts); err != nil {
		return nil, err
	}
	if s.service, err = s.newService(); err != nil {
		return nil, err
	}
	s.checks, s.loads = opts.newChecks(), newLoads(s.registry)
	if err := s.load(); err != nil {
		return nil, err
	}
	if err := s.makeServers(); err != nil {
		return nil, err
	}
	if err := s.listen(); err != nil {
		return nil, err
	}
	s.announce()
	return s, nil
}

// openStore opens where the counters are kept.
func (o *serveOptions) openStore(counts *stats.Registry) (*openStore, error) {
	if o.compat != nil {
		return newCompatStore(o.compat, counts)
	}
	store, err := newStore(o.store, o.storeBudget)
	if err != nil {
		return nil, fmt.Errorf("--store: %w", err)
	}
	return store, nil
}

// newService returns what decides, with the store in memory that stands in for a store
// which is away.
func (s *server) newService() (*rls.Service, error) {
	fallback, err := memstore.New(memstore.Options{})
	if err != nil {
		return nil, err
	}
	opts := rls.Options{
		Registry:        s.registry,
		Log:             s.log,
		StoreErrorClass: storeErrorClass,
		Budget:          s.store.budget,
		Fallback:        fallback,
		Instances:       int(s.opts.instances),
		Headers:         s.opts.headers.headers(),
	}
	if s.opts.compat != nil {
		s.compatAnswers(&opts)
	}
	return rls.New(s.store.Store, opts)
}

// announce logs that and where the service serves.
func (s *server) announce() {
	attrs := []any{"grpc", s.grpc.Addr().String(), "http", s.http.Addr().String(), "debug", s.debug.Addr().String()}
	if s.opts.compat == nil {
		attrs = append(attrs, "store", storeName(s.opts.store))
	} else {
		attrs = append(attrs, compatStoreNames(s.opts.compat)...)
	}
	if s.store.budget > 0 {
		attrs = append(attrs, "store_budget", s.store.budget)
	}
	if s.metrics != nil {
		attrs = append(attrs, "metrics", s.metrics.Addr().String())
	}
	if config := s.service.Rules(); config != nil {
		attrs = append(attrs, "domains", len(config.Domains()), "rules", len(config.Rules()))
	}
	s.log.Info("serving", attrs...)
	if tcp, ok := s.debug.Addr().(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
		s.log.Warn("the debug listener answers whoever reaches it, with profiles and the rules: bind it to the loopback, or keep others from its port",
			"debug", s.debug.Addr().String())
	}
}

// makeServers makes what answers on each listener.
func (s *server) makeServers() (err error) {
	s.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(),
		admin.Nodes(s.store.nodes),
	)
	if s.grpcServer, err = s.newGRPCServer(); err != nil {
		return err
	}
	s.httpServer = newHTTPServer(s.httpRoutes(), s.log)
	debug, err := s.debugRoutes()
	if err != nil {
		return err
	}
	s.debugServer = newHTTPServer(debug, s.log)
	s.makeMetricsServer()
	return nil
}

func buildInfo() prometheus.Collector {
	b := readBuild()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "weir_build_info",
		Help:        "1, with what is running as labels.",
		ConstLabels: prometheus.Labels{"version": b.version, "revision": b.revision, "goversion": runtime.Version()},
	}, func() float64 { return 1 })
}

func (s *server) httpRoutes() http.Handler {
	post, get := "POST ", "GET "
	if s.opts.compat != nil {
		post, get = "", "" // the original does not look at the method
	}
	mux := http.NewServeMux()
	mux.Handle(post+"/json", s.service)
	mux.Handle("/check", httpcheck.New(s.service, s.log))
	mux.Handle(get+"/healthcheck", s.checks)
	mux.Handle("GET /metrics", admin.Metrics(s.registry))
	return mux
}

func (s *server) debugRoutes() (http.Handler, error) {
	access, err := s.debugAccess()
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	if s.opts.compat != nil {
		mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "/stats: the counters\n"+admin.Index)
		})
		mux.HandleFunc("GET /rlconfig", dumpRules(s.service.Rules))
		mux.Handle("GET /stats", s.counts)
	}
	mux.Handle("/admin/", admin.API(s.service, access, s.log))
	mux.Handle("/", admin.Debug(s.service.Rules))
	return access.GuardHost(mux), nil
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

// listen opens the listeners.
func (s *server) listen() error {
	var errs []error
	open := func(listener *net.Listener, what, address string) {
		var err error
		if *listener, err = listen(address); err != nil {
			errs = append(errs, fmt.Errorf("%s %q: %w", what, address, err))
		}
	}
	names := s.opts.listenerNames()
	open(&s.grpc, names.grpc, s.opts.grpc)
	open(&s.http, names.http, s.opts.http)
	open(&s.debug, names.debug, s.opts.debug)
	if s.metricsServer != nil {
		open(&s.metrics, "PROMETHEUS_ADDR", s.metricsServer.Addr)
	}
	return errors.Join(errs...)
}

// run answers until ctx ends, then drains. The error says that a listener failed.
func (s *server) run(ctx context.Context) error {
	floor := make([]byte, heapFloor)
	defer runtime.KeepAlive(floor)
	failed := make(chan error, 4)
	go func() { failed <- s.grpcServer.Serve(s.grpc) }()
	go func() { failed <- s.httpServer.Serve(s.http) }()
	go func() { failed <- s.debugServer.Serve(s.debug) }()
	if s.metricsServer != nil {
		go func() { failed <- s.metricsServer.Serve(s.metrics) }()
	}
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	go (&nodeWatch{log: s.log}).run(watching, s.store.nodes)
	go s.warnOfAbsentStore(watching)
	go s.watchStore(watching)
	go s.reload(watching)
	var err error
	select {
	case <-ctx.Done():
		s.log.Info("draining", "answering_for", s.opts.drainWait)
		s.beginDrain()
		select {
		case <-time.After(s.opts.drainWait):
		case err = <-failed:
		}
	case err = <-failed:
	}
	if err != nil {
		s.log.Error("a listener failed", "error", err)
	}
	s.drain()
	s.log.Info("stopped")
	return err
}

// beginDrain tells health checks, so that proxies look for others. They take their time:
// the interval of their checks and, in Envoy, up to a second more until its workers know.
// What asks a service that has ended by then gets an error, or passes unlimited.
func (s *server) beginDrain() {
	s.stopServing()
	s.checks.drain()
}

// drain lets the requests under way end: for drainTimeout at most.
func (s *server) drain() {
	s.beginDrain()
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
	signal.Stop(s.hangups)
	if s.grpcServer != nil {
		s.grpcServer.Stop()
	}
	for _, h := range []*http.Server{s.httpServer, s.debugServer, s.metricsServer} {
		if h != nil {
			h.Close()
		}
	}
	for _, l := range []net.Listener{s.grpc, s.http, s.debug, s.metrics} {
		if l != nil {
			l.Close() // closed already if its server ran
		}
	}
	if s.service != nil {
		s.service.Close()
	}
	s.closeStats()
	s.closeTracing()
	if s.store == nil {
		return
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
