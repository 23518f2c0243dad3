package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc"

	"weir.dev/weir/memstore"
	"weir.dev/weir/server/admin"
	"weir.dev/weir/server/rls"
)

// drainTimeout bounds how long requests under way may take after SIGTERM.
const drainTimeout = 10 * time.Second

// server is the running service: its listeners, and what answers on each.
type server struct {
	opts     serveOptions
	log      *slog.Logger
	checks   *checks
	registry *prometheus.Registry
	store    *openStore
	service  *rls.Service

	serving     context.Context // until the service drains
	stopServing context.CancelFunc

	grpcServer              *grpc.Server
	httpServer, debugServer *http.Server
	grpc, http, debug       net.Listener
}

// newServer opens the store, loads the rules and listens. After an error nothing is left
// open.
func newServer(opts serveOptions, log *slog.Logger) (_ *server, err error) {
	s := &server{opts: opts, log: log, registry: prometheus.NewRegistry()}
	s.serving, s.stopServing = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.store, err = newStore(opts.store, opts.storeBudget); err != nil {
		return nil, fmt.Errorf("--store: %w", err)
	}
	if s.service, err = s.newService(); err != nil {
		return nil, err
	}
	s.checks = newChecks(http.StatusServiceUnavailable, rulesLoaded)
	if err := s.load(); err != nil {
		return nil, err
	}
	if err := s.makeServers(); err != nil {
		return nil, err
	}
	if err := s.listen(); err != nil {
		return nil, err
	}
	config := s.service.Rules()
	log.Info("serving", "grpc", s.grpc.Addr().String(), "http", s.http.Addr().String(), "debug", s.debug.Addr().String(),
		"store", storeName(opts.store), "domains", len(config.Domains()), "rules", len(config.Rules()))
	return s, nil
}

// newService returns what decides, with the store in memory that stands in for a store
// which is away.
func (s *server) newService() (*rls.Service, error) {
	fallback, err := memstore.New(memstore.Options{})
	if err != nil {
		return nil, err
	}
	return rls.New(s.store.Store, rls.Options{
		Registry:        s.registry,
		Log:             s.log,
		StoreErrorClass: storeErrorClass,
		Budget:          s.store.budget,
		Fallback:        fallback,
		Instances:       int(s.opts.instances),
	})
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
	s.debugServer = newHTTPServer(s.debugRoutes(), s.log)
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
	mux := http.NewServeMux()
	mux.Handle("POST /json", s.service)
	mux.Handle("GET /healthcheck", s.checks)
	mux.Handle("GET /metrics", admin.Metrics(s.registry))
	return mux
}

func (s *server) debugRoutes() http.Handler {
	return admin.Debug(s.service.Rules)
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

// listen opens the three listeners.
func (s *server) listen() error {
	var errs []error
	for _, l := range []struct {
		flag, address string
		listener      *net.Listener
	}{{"--grpc", s.opts.grpc, &s.grpc}, {"--http", s.opts.http, &s.http}, {"--debug", s.opts.debug, &s.debug}} {
		var err error
		if *l.listener, err = listen(l.address); err != nil {
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
	go s.reload(watching)
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

// beginDrain tells health checks, so that proxies look for others.
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
	if s.grpcServer != nil {
		s.grpcServer.Stop()
	}
	for _, h := range []*http.Server{s.httpServer, s.debugServer} {
		if h != nil {
			h.Close()
		}
	}
	for _, l := range []net.Listener{s.grpc, s.http, s.debug} {
		if l != nil {
			l.Close() // closed already if its server ran
		}
	}
	if s.service != nil {
		s.service.Close()
	}
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
