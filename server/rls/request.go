package rls

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"weir.dev/weir/server/rules"
)

// Bounds of a request. They are far above what a proxy sends, since a proxy lets
// through what is refused; how many descriptors and entries there are is its
// configuration's choice, not its client's.
const (
	// MaxMessageBytes is the longest request.
	MaxMessageBytes = 1 << 20
	// MaxDescriptors is the most descriptors of a request.
	MaxDescriptors = 100_000
	// MaxEntries is the most entries of a descriptor.
	MaxEntries = 10_000
)

var (
	errDescriptors = fmt.Errorf("it has more than %d descriptors", MaxDescriptors)
	errEntries     = fmt.Errorf("a descriptor has more than %d entries", MaxEntries)
	errFieldNumber = errors.New("a field number is too large")
)

// Request is a RateLimitRequest: one question of a proxy about one of its clients'
// requests. Its strings hold whatever bytes came, UTF-8 or not.
type Request struct {
	Domain      string
	Descriptors []Descriptor
	Hits        uint32 // hits_addend, for descriptors without their own; 0 means 1
	Draft11     bool   // the answer has Headers.Draft11, whatever the service's options say
}

// Descriptor is a RateLimitDescriptor: the entries that rules match, in order.
type Descriptor struct {
	Entries  []rules.Entry
	Override *Override // in place of the matched rule's limit
	Hits     *uint64   // hits_addend; nil: the request's, 0: a peek
	Refund   bool      // is_negative_hits
}

// Override is a limit that comes with a request: so many requests each unit, or each
// Multiplier units. An absent multiplier is 0 and means 1. The numbers are the sender's
// and may be anything.
type Override struct {
	RequestsPerUnit uint32
	Unit            int32
	Multiplier      uint32
}

// The fields that a request has, as they are tagged on the wire.
const (
	varint = uint64(protowire.VarintType)
	nested = uint64(protowire.BytesType)

	requestDomain      = 1<<3 | nested
	requestDescriptors = 2<<3 | nested
	requestHits        = 3<<3 | varint

	descriptorEntries  = 1<<3 | nested
	descriptorOverride = 2<<3 | nested
	descriptorHits     = 3<<3 | nested
	descriptorRefund   = 4<<3 | varint

	entryKey   = 1<<3 | nested
	entryValue = 2<<3 | nested

	overrideRequests   = 1<<3 | varint
	overrideUnit       = 2<<3 | varint
	overrideMultiplier = 3<<3 | nested

	wrapperValue = 1<<3 | varint
)

// Decode reads a RateLimitRequest in protobuf's wire format. It accepts what the
// generated code accepts, and also strings that are not UTF-8: a proxy passes its
// client's bytes on as they are, and lets the request through if they are refused.
// It refuses messages above the bounds. It keeps no part of message.
func Decode(message []byte) (Request, error) {
	var r Request
	if len(message) > MaxMessageBytes {
		return r, fmt.Errorf("it has %d bytes: at most %d", len(message), MaxMessageBytes)
	}
	return r, r.decode(wire{message, string(message)})
}

func (r *Request) decode(w wire) error {
	for w.more() {
		f, err := w.next()
		if err != nil {
			return err
		}
		switch f.tag {
		case requestDomain:
			r.Domain = f.value.text
		case requestHits:
			r.Hits = uint32(f.number)
		case requestDescriptors:
			if len(r.Descriptors) == MaxDescriptors {
				return errDescriptors
			}
			r.Descriptors = append(r.Descriptors, Descriptor{})
			if err := r.Descriptors[len(r.Descriptors)-1].decode(f.value); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *Descriptor) decode(w wire) error {
	for w.more() {
		f, err := w.next()
		if err != nil {
			return err
		}
		switch f.tag {
		case descriptorRefund:
			d.Refund = f.number != 0
		case descriptorEntries:
			if len(d.Entries) == MaxEntries {
				return errEntries
			}
			entry, err := decodeEntry(f.value)
			if err != nil {
				return err
			}
			d.Entries = append(d.Entries, entry)
		case descriptorOverride:
			if d.Override == nil {
				d.Override = new(Override)
			}
			if err := d.Override.decode(f.value); err != nil {
				return err
			}
		case descriptorHits:
			if d.Hits == nil {
				d.Hits = new(uint64)
			}
			if *d.Hits, err = decodeWrapper(f.value, *d.Hits); err != nil {
				return err
			}
		}
	}
	return nil
}

func decodeEntry(w wire) (rules.Entry, error) {
	var e rules.Entry
	for w.more() {
		f, err := w.next()
		if err != nil {
			return e, err
		}
		switch f.tag {
		case entryKey:
			e.Key = f.value.text
		case entryValue:
			e.Value = f.value.text
		}
	}
	return e, nil
}

func (o *Override) decode(w wire) error {
	for w.more() {
		f, err := w.next()
		if err != nil {
			return err
		}
		switch f.tag {
		case overrideRequests:
			o.RequestsPerUnit = uint32(f.number)
		case overrideUnit:
			o.Unit = int32(f.number)
		case overrideMultiplier:
			multiplier, err := decodeWrapper(f.value, uint64(o.Multiplier))
			if err != nil {
				return err
			}
			o.Multiplier = uint32(multiplier)
		}
	}
	return nil
}

// decodeWrapper reads a UInt64Value or a UInt32Value over what was there: a message
// that comes twice is merged.
func decodeWrapper(w wire, value uint64) (uint64, error) {
	for w.more() {
		f, err := w.next()
		if err != nil {
			return 0, err
		}
		if f.tag == wrapperValue {
			value = f.number
		}
	}
	return value, nil
}

// wire is a message in wire format, twice: as bytes to read, and as a string of the
// same bytes, of which the strings of a request are parts. So a request is copied once,
// however many strings it has.
type wire struct {
	bytes []byte
	text  string
}

// field is one field of a message. Of number and value, the tag says which is set; of
// fields that no request has, neither is.
type field struct {
	tag    uint64
	number uint64
	value  wire
}

func (w *wire) more() bool { return len(w.bytes) > 0 }

// next reads the first field and moves behind it.
func (w *wire) next() (field, error) {
	number, kind, n := protowire.ConsumeTag(w.bytes)
	if n < 0 {
		return field{}, protowire.ParseError(n)
	}
	if number > protowire.MaxValidNumber {
		return field{}, errFieldNumber
	}
	w.skip(n)
	f := field{tag: protowire.EncodeTag(number, kind)}
	switch kind {
	case protowire.VarintType:
		f.number, n = protowire.ConsumeVarint(w.bytes)
	case protowire.BytesType:
		f.value.bytes, n = protowire.ConsumeBytes(w.bytes)
		if n >= 0 {
			f.value.text = w.text[n-len(f.value.bytes) : n]
		}
	default:
		n = protowire.ConsumeFieldValue(number, kind, w.bytes)
	}
	if n < 0 {
		return field{}, protowire.ParseError(n)
	}
	w.skip(n)
	return f, nil
}

func (w *wire) skip(n int) { w.bytes, w.text = w.bytes[n:], w.text[n:] }
