package rls

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// ServiceName is the protocol's full name, as health checks may ask for it.
const ServiceName = "envoy.service.ratelimit.v3.RateLimitService"

// Register adds the service to a server made with ServerOption.
func (s *Service) Register(server grpc.ServiceRegistrar) {
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: ServiceName,
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: shouldRateLimit}},
		Metadata:    "envoy/service/ratelimit/v3/rls.proto",
	}, s)
}

// ServerOption makes a server decode this protocol's requests with Decode, where the
// generated code would refuse strings that are not UTF-8. Other messages are as usual.
func ServerOption() grpc.ServerOption {
	return grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)})
}

// call is a request on its way in. gRPC answers Internal to what a codec refuses, so
// the codec only notes it.
type call struct {
	request Request
	err     error
}

func shouldRateLimit(service any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	s := service.(*Service)
	var c call
	if err := decode(&c); err != nil {
		return nil, err
	}
	if c.err != nil {
		err := fmt.Errorf("%w: %w", ErrInvalid, c.err)
		s.noteFailure(ctx, err)
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	answer, took, err := s.timed(ctx, &c.request)
	s.counts.requests.Add(1)
	s.counts.response.Observe(took)
	if err != nil {
		return nil, status.Error(s.codeOf(err), err.Error())
	}
	return answer, nil
}

func (s *Service) codeOf(err error) codes.Code {
	refused := errors.Is(err, ErrInvalid) && err != errNoDomain && err != errNoDescriptors
	switch {
	case s.opts.Compat != nil && !refused: // the original has no other code
		return codes.Unknown
	case errors.Is(err, ErrInvalid):
		return codes.InvalidArgument
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	}
	return codes.Unavailable
}

// codec is gRPC's own, but for this protocol's two messages.
type codec struct{ encoding.CodecV2 }

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*call)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	in.request, in.err = Decode(buffer.ReadOnlyData())
	return nil
}

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	answer, ok := v.(*Answer)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	return mem.BufferSlice{mem.SliceBuffer(answer.Append(make([]byte, 0, 64)))}, nil
}
