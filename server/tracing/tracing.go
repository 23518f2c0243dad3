// Package tracing exports a span for each call of the service, by OpenTelemetry's protocol
// (OTLP), as envoyproxy/ratelimit does.
package tracing

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/propagators/b3"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
)

// Options of a Tracer. In the comments is the setting of envoyproxy/ratelimit that says the
// same. Where spans go is in the environment, in OTEL_EXPORTER_OTLP_ENDPOINT and others
// that OpenTelemetry names.
type Options struct {
	Protocol    string  // http or grpc: TRACING_EXPORTER_PROTOCOL
	ServiceName string  // TRACING_SERVICE_NAME
	Namespace   string  // TRACING_SERVICE_NAMESPACE; "": none
	InstanceID  string  // TRACING_SERVICE_INSTANCE_ID; "": a random one
	Share       float64 // of the calls without a decision of their caller's, 0 to 1: TRACING_SAMPLING_RATE
	Log         *slog.Logger
}

// Tracer exports spans until it is closed.
type Tracer struct {
	provider   *trace.TracerProvider
	propagator propagation.TextMapPropagator
}

// New returns a Tracer, and begins to connect. That nothing answers is no error: spans are
// then lost, and the log says so, for all Tracers that of the last one.
func New(ctx context.Context, opts Options) (*Tracer, error) {
	client := otlptracehttp.NewClient()
	if opts.Protocol == "grpc" {
		client = otlptracegrpc.NewClient()
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { opts.Log.Warn("spans are lost", "error", err) }))
	return &Tracer{
		provider: trace.NewTracerProvider(
			trace.WithBatcher(exporter),
			trace.WithResource(opts.resource()),
			trace.WithSampler(trace.ParentBased(trace.TraceIDRatioBased(opts.Share))),
		),
		propagator: propagation.NewCompositeTextMapPropagator(
			b3.New(), propagation.TraceContext{}, propagation.Baggage{}, // the later counts where two are sent
		),
	}, nil
}

func (o *Options) resource() *resource.Resource {
	id := o.InstanceID
	if id == "" {
		id = rand.Text()
	}
	attributes := []attribute.KeyValue{
		attribute.String("service.name", o.ServiceName),
		attribute.String("service.instance.id", id),
	}
	if o.Namespace != "" {
		attributes = append(attributes, attribute.String("service.namespace", o.Namespace))
	}
	return resource.NewSchemaless(attributes...)
}

// ServerOption makes a server trace its calls, but for checks of its health.
func (t *Tracer) ServerOption() grpc.ServerOption {
	return grpc.StatsHandler(otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(t.provider),
		otelgrpc.WithPropagators(t.propagator),
		otelgrpc.WithMeterProvider(noop.NewMeterProvider()),
		otelgrpc.WithFilter(func(call *stats.RPCTagInfo) bool {
			return !strings.HasPrefix(call.FullMethodName, "/grpc.health.v1.Health/")
		}),
	))
}

// Close exports what is left, for as long as ctx allows.
func (t *Tracer) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }
