package rls

import (
	"fmt"
	"maps"
	"strings"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// metadata says the request as the original's dynamic metadata does, and what the rules
// say whose limits it passed: of two that say the same key, the first one's value.
func (q *question) metadata() *structpb.Struct {
	r := q.request
	descriptors := make([]*structpb.Value, len(r.Descriptors))
	for i := range r.Descriptors {
		descriptors[i] = structpb.NewStructValue(descriptorMetadata(&r.Descriptors[i]))
	}
	fields := map[string]*structpb.Value{
		"domain":      text(r.Domain),
		"descriptors": structpb.NewListValue(&structpb.ListValue{Values: descriptors}),
	}
	if r.Hits != 0 {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(r.Hits))
	}
	var passed *structpb.Struct
	for i := range q.parts {
		if p := &q.parts[i]; !p.over && p.count > 0 {
			passed = merge(passed, p.rule.metadata)
		}
	}
	if passed != nil {
		fields["metadata"] = structpb.NewStructValue(passed)
	}
	return &structpb.Struct{Fields: fields}
}

func descriptorMetadata(d *Descriptor) *structpb.Struct {
	entries := make([]*structpb.Value, len(d.Entries))
	for i, e := range d.Entries {
		entries[i] = text(e.Key + "=" + e.Value)
	}
	fields := map[string]*structpb.Value{"entries": structpb.NewListValue(&structpb.ListValue{Values: entries})}
	if d.Override != nil {
		fields["limit"] = text(d.Override.String())
	}
	if d.Hits != nil {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(*d.Hits))
	}
	return &structpb.Struct{Fields: fields}
}

// text is a string for a message, which must be UTF-8. What a client sends need not be.
func text(s string) *structpb.Value { return structpb.NewStringValue(strings.ToValidUTF8(s, "�")) }

// String says the limit as protobuf's text format does: "requests_per_unit:5 unit:MINUTE".
func (o *Override) String() string {
	var parts []string
	if o.RequestsPerUnit != 0 {
		parts = append(parts, fmt.Sprintf("requests_per_unit:%d", o.RequestsPerUnit))
	}
	if o.Unit != 0 {
		parts = append(parts, fmt.Sprintf("unit:%v", pb.RateLimitResponse_RateLimit_Unit(o.Unit)))
	}
	if o.Multiplier != 0 {
		parts = append(parts, fmt.Sprintf("unit_multiplier:{value:%d}", o.Multiplier))
	}
	return strings.Join(parts, " ")
}

// merge returns a with what only b has. It changes neither: they are the rules'.
func merge(a, b *structpb.Struct) *structpb.Struct {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	fields := maps.Clone(a.GetFields())
	for key, value := range b.GetFields() {
		mine, has := fields[key]
		switch {
		case !has:
			fields[key] = value
		case mine.GetStructValue() != nil && value.GetStructValue() != nil:
			fields[key] = structpb.NewStructValue(merge(mine.GetStructValue(), value.GetStructValue()))
		}
	}
	return &structpb.Struct{Fields: fields}
}
