package rls

import (
	"maps"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weir.dev/weir"
)

// Answer is a RateLimitResponse. Its overall code is OK or OVER_LIMIT, never UNKNOWN:
// a proxy takes that for OK even where it is told to deny on errors.
type Answer struct {
	OverLimit bool
	Statuses  []Status // one for each descriptor, in its order
	// Delay is how long the proxy's client should wait before its request starts: of a
	// leaky_bucket, else 0. A proxy cannot wait, so it is told in the answer's dynamic
	// metadata, as delay_seconds.
	Delay time.Duration

	// Headers are what the proxy adds to its answer.
	Headers []Header
	// Violated are the limits that are over, as the headers of draft 11 name them; nil
	// without these.
	Violated []string
	// Metadata is more of the dynamic metadata, or nil.
	Metadata *structpb.Struct
	// Source names who decided: store, lease, cache, fallback or policy, the last of
	// these where there were several; "" where no limit applied. Cause is the class of
	// the error for which it was not the store, or "". Both are in the metadata too.
	Source, Cause string
}

// Status is a DescriptorStatus.
type Status struct {
	OverLimit    bool
	Limit        *CurrentLimit // nil: none applies
	Remaining    uint32
	ResetSeconds int64 // until the descriptor may pass again if it is over, else until it is as new
}

// CurrentLimit is a limit as answers name it. It is encoded once, when it is made.
type CurrentLimit struct {
	message *pb.RateLimitResponse_RateLimit
	wire    []byte
}

// newCurrentLimit names a limit of so many requests each unit or, where the multiplier
// is above 1, each multiplier units. Envoy puts the name between quotes into a header as it
// is, so that what would end the quotes or the header is left out of it.
func newCurrentLimit(name string, requests uint32, unit pb.RateLimitResponse_RateLimit_Unit, multiplier uint32) (*CurrentLimit, error) {
	name = strings.Map(func(c rune) rune {
		if c < ' ' || c == '"' || c == '\\' || c == 0x7f {
			return -1
		}
		return c
	}, strings.ToValidUTF8(name, "�"))
	m := &pb.RateLimitResponse_RateLimit{Name: name, RequestsPerUnit: requests, Unit: unit}
	if multiplier > 1 {
		m.UnitMultiplier = wrapperspb.UInt32(multiplier)
	}
	wire, err := proto.Marshal(m)
	return &CurrentLimit{message: m, wire: wire}, err
}

// The fields that an answer has.
const (
	answerCode     = 1
	answerStatuses = 2
	answerHeaders  = 3
	answerMetadata = 6

	headerKey   = 1
	headerValue = 2

	statusCode      = 1
	statusLimit     = 2
	statusRemaining = 3
	statusReset     = 4

	durationSeconds = 1
)

// Append appends the answer in protobuf's wire format: the same message as Message
// returns, at a fraction of the cost.
func (a *Answer) Append(b []byte) []byte {
	b = appendVarint(b, answerCode, uint64(code(a.OverLimit)))
	var scratch [160]byte
	for i := range a.Statuses {
		b = protowire.AppendTag(b, answerStatuses, protowire.BytesType)
		b = protowire.AppendBytes(b, a.Statuses[i].append(scratch[:0]))
	}
	for _, h := range a.Headers {
		wire := protowire.AppendTag(scratch[:0], headerKey, protowire.BytesType)
		wire = protowire.AppendString(wire, h.Name)
		wire = protowire.AppendTag(wire, headerValue, protowire.BytesType)
		wire = protowire.AppendString(wire, h.Value)
		b = protowire.AppendTag(b, answerHeaders, protowire.BytesType)
		b = protowire.AppendBytes(b, wire)
	}
	if wire := a.metadataWire(); len(wire) > 0 {
		b = protowire.AppendTag(b, answerMetadata, protowire.BytesType)
		b = protowire.AppendBytes(b, wire)
	}
	return b
}

func (s *Status) append(b []byte) []byte {
	b = appendVarint(b, statusCode, uint64(code(s.OverLimit)))
	if s.Limit != nil {
		b = protowire.AppendTag(b, statusLimit, protowire.BytesType)
		b = protowire.AppendBytes(b, s.Limit.wire)
	}
	if s.Remaining > 0 {
		b = appendVarint(b, statusRemaining, uint64(s.Remaining))
	}
	if s.ResetSeconds > 0 {
		b = protowire.AppendTag(b, statusReset, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(protowire.SizeTag(durationSeconds)+protowire.SizeVarint(uint64(s.ResetSeconds))))
		b = appendVarint(b, durationSeconds, uint64(s.ResetSeconds))
	}
	return b
}

func appendVarint(b []byte, number protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), value)
}

// Message returns the answer as the generated type, for protobuf's JSON.
func (a *Answer) Message() *pb.RateLimitResponse {
	m := &pb.RateLimitResponse{OverallCode: code(a.OverLimit), DynamicMetadata: a.metadata()}
	for i := range a.Statuses {
		s := &a.Statuses[i]
		status := &pb.RateLimitResponse_DescriptorStatus{Code: code(s.OverLimit), LimitRemaining: s.Remaining}
		if s.Limit != nil {
			status.CurrentLimit = s.Limit.message
		}
		if s.ResetSeconds > 0 {
			status.DurationUntilReset = &durationpb.Duration{Seconds: s.ResetSeconds}
		}
		m.Statuses = append(m.Statuses, status)
	}
	for _, h := range a.Headers {
		m.ResponseHeadersToAdd = append(m.ResponseHeadersToAdd, &core.HeaderValue{Key: h.Name, Value: h.Value})
	}
	return m
}

func (a *Answer) metadata() *structpb.Struct {
	fields := maps.Clone(a.Metadata.GetFields())
	if fields == nil {
		fields = map[string]*structpb.Value{}
	}
	if a.Source != "" {
		fields["source"] = structpb.NewStringValue(a.Source)
	}
	if a.Cause != "" {
		fields["cause"] = structpb.NewStringValue(a.Cause)
	}
	if a.Delay > 0 {
		fields["delay_seconds"] = structpb.NewNumberValue(a.Delay.Seconds())
	}
	if len(fields) == 0 {
		return nil
	}
	return &structpb.Struct{Fields: fields}
}

// metadataWire encodes metadata, which has nothing that could fail: its texts are valid.
// Most answers have nothing but a source, which is encoded once.
func (a *Answer) metadataWire() []byte {
	if a.Cause == "" && a.Delay <= 0 && a.Metadata == nil {
		return sourceWires[a.Source]
	}
	b, _ := proto.Marshal(a.metadata())
	return b
}

// sourceWires are the metadata of answers that say nothing but who decided.
var sourceWires = func() map[string][]byte {
	wires := make(map[string][]byte)
	for source := weir.FromStore; source <= weir.FromPolicy; source++ {
		a := Answer{Source: source.String()}
		wires[a.Source], _ = proto.Marshal(a.metadata())
	}
	return wires
}()

func code(overLimit bool) pb.RateLimitResponse_Code {
	if overLimit {
		return pb.RateLimitResponse_OVER_LIMIT
	}
	return pb.RateLimitResponse_OK
}
