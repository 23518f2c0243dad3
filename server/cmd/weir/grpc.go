package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"weir.dev/weir/server/rls"
)

const (
	// maxStreams is how many calls one connection may have in flight. A proxy has one
	// connection a worker.
	maxStreams = 4096
	// workers is how many goroutines wait for calls. A call needs a deep stack, which one of
	// its own would have to grow; calls beyond these have one of their own.
	workers = 256
	// minPing is the shortest interval between a client's keepalive pings. A proxy
	// sends them as its operator says, and on idle connections too.
	minPing = 50 * time.Millisecond
	// greeting is how long a new connection may take until it speaks HTTP/2, its TLS
	// included. The server does not end while one is silent, so it is well within
	// drainTimeout; gRPC's own is 2 min, after which the process would have been killed.
	greeting = 5 * time.Second
)

// newGRPCServer returns what answers on the gRPC listener: the protocol and its health.
func (s *server) newGRPCServer() (*grpc.Server, error) {
	options := []grpc.ServerOption{
		rls.ServerOption(),
		grpc.MaxRecvMsgSize(2 * rls.MaxMessageBytes), // above its own bound, so that it can say what is wrong
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(greeting),
		grpc.NumStreamWorkers(workers),
		grpc.StreamInterceptor(s.endWithService),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: s.opts.grpcAge, MaxConnectionAgeGrace: s.opts.ageGrace}),
	}
	if err := s.opts.grpcTLS.check(); err != nil {
		return nil, err
	}
	if s.opts.grpcTLS.cert != "" {
		config, err := newReloadingTLS(s.opts.grpcTLS, s.log)
		if err != nil {
			return nil, fmt.Errorf("TLS for gRPC: %w", err)
		}
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	if s.tracer != nil {
		options = append(options, s.tracer.ServerOption())
	}
	g := grpc.NewServer(options...)
	s.service.Register(g)
	healthpb.RegisterHealthServer(g, s.checks.grpc)
	return g, nil
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
