// Package grpcconcurrency limits the calls that a gRPC server works on, with a
// limiter of package concurrency. A call that is refused ends with UNAVAILABLE and
// the trailer grpc-retry-pushback-ms (gRFC A6), which stock clients wait for before
// they retry. The permit is released when the handler returns or panics:
//
//   - as a drop if the call's deadline passed,
//   - as ignored if the caller left or the handler panicked,
//   - as a success otherwise, whatever the status.
package grpcconcurrency

import (
	"context"
	"errors"
	"runtime"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"weir.dev/weir/concurrency"
)

// Options configures the interceptors. The zero value limits every call as work
// without a class.
type Options struct {
	// Class tells the class of a call by its full method name, "/package.Service/Method".
	// Nil, or an answer of nil: no class.
	Class func(method string) *concurrency.Class

	// Bypass picks the calls that are neither limited nor measured, such as health
	// checks and streams that live for minutes. Nil: none.
	Bypass func(method string) bool
}

// Interceptor limits calls. Use [New].
type Interceptor struct {
	limiter *concurrency.Limiter
	opts    Options
}

// New returns an interceptor for grpc.UnaryInterceptor(i.Unary) and
// grpc.StreamInterceptor(i.Stream). Without a limiter it returns an error.
func New(l *concurrency.Limiter, opts Options) (*Interceptor, error) {
	if l == nil {
		return nil, errors.New("grpcconcurrency: New got a nil Limiter, want one made by concurrency.New")
	}
	return &Interceptor{limiter: l, opts: opts}, nil
}

// Unary limits a call of one message each way; it is a grpc.UnaryServerInterceptor.
func (i *Interceptor) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (reply any, err error) {
	trailer := func(md metadata.MD) { grpc.SetTrailer(ctx, md) }
	err = i.limit(ctx, info.FullMethod, trailer, func() error {
		reply, err = handler(ctx, req)
		return err
	})
	return reply, err
}

// Stream limits streams, each of which holds one place as long as it lives; it is a
// grpc.StreamServerInterceptor.
func (i *Interceptor) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return i.limit(stream.Context(), info.FullMethod, stream.SetTrailer, func() error { return handler(srv, stream) })
}

func (i *Interceptor) limit(ctx context.Context, method string, trailer func(metadata.MD), work func() error) error {
	if i.opts.Bypass != nil && i.opts.Bypass(method) {
		return work()
	}
	permit, ok := i.acquire(ctx, method)
	if !ok {
		trailer(metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(i.limiter.RetryAfter().Milliseconds(), 10)))
		return status.Error(codes.Unavailable, "the server has as much work in flight as it can do")
	}
	runtime.Gosched()             // let all that wait for a processor ask for a place too, as concurrency.Middleware does
	outcome := concurrency.Ignore // should the handler panic
	defer func() { permit.Release(outcome) }()
	err := work()
	outcome = outcomeOf(ctx)
	return err
}

func (i *Interceptor) acquire(ctx context.Context, method string) (concurrency.Permit, bool) {
	if i.opts.Class != nil {
		if c := i.opts.Class(method); c != nil {
			return c.Acquire(ctx)
		}
	}
	return i.limiter.Acquire(ctx)
}

func outcomeOf(ctx context.Context) concurrency.Outcome {
	switch ctx.Err() {
	case nil:
		return concurrency.Success
	case context.DeadlineExceeded:
		return concurrency.Drop
	}
	return concurrency.Ignore
}
