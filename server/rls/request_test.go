package rls

import (
	"context"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weir.dev/weir/server/rules"
)

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// everyField is a request with each field of the protocol set.
func everyField() *pb.RateLimitRequest {
	return &pb.RateLimitRequest{
		Domain:     "shop",
		HitsAddend: 1<<32 - 1,
		Descriptors: []*common.RateLimitDescriptor{
			{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: "alice"}, {Key: "empty"}}},
			{
				Entries:        []*common.RateLimitDescriptor_Entry{{Key: "ключ", Value: "é"}},
				HitsAddend:     wrapperspb.UInt64(1<<64 - 1),
				IsNegativeHits: true,
				Limit: &common.RateLimitDescriptor_RateLimitOverride{
					RequestsPerUnit: 7, Unit: typev3.RateLimitUnit_YEAR, UnitMultiplier: wrapperspb.UInt32(3),
				},
			},
			{HitsAddend: wrapperspb.UInt64(0), Limit: &common.RateLimitDescriptor_RateLimitOverride{Unit: -5}},
		},
	}
}

func TestDecodeReadsEveryField(t *testing.T) {
	m := everyField()
	want, err := fromMessage(m)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(encode(t, m))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Decode = %+v, %v\nwant %+v", got, err, want)
	}
	if hits := got.Descriptors[1].Hits; hits == nil || *hits != 1<<64-1 {
		t.Errorf("hits_addend = %v, want 2^64-1", hits)
	}
	if o := got.Descriptors[1].Override; o == nil || *o != (Override{RequestsPerUnit: 7, Unit: 6, Multiplier: 3}) {
		t.Errorf("limit = %v, want 7 each 3 years", o)
	}
}

func TestDecodeKeepsBytesThatAreNotUTF8(t *testing.T) {
	const value = "caf\xe9\x00\xff"
	got, err := Decode(withValue(value))
	if err != nil {
		t.Fatal(err)
	}
	want := Request{Domain: "shop", Descriptors: []Descriptor{{Entries: []rules.Entry{{Key: "user", Value: value}}}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if err := proto.Unmarshal(withValue(value), new(pb.RateLimitRequest)); err == nil {
		t.Error("the generated code takes the message: then Decode is not needed for it")
	}
}

// withValue returns a request of one entry, whatever bytes its value has.
func withValue(value string) []byte {
	entry := protowire.AppendString(protowire.AppendVarint(nil, entryKey), "user")
	entry = protowire.AppendString(protowire.AppendVarint(entry, entryValue), value)
	descriptor := protowire.AppendBytes(protowire.AppendVarint(nil, descriptorEntries), entry)
	request := protowire.AppendString(protowire.AppendVarint(nil, requestDomain), "shop")
	return protowire.AppendBytes(protowire.AppendVarint(request, requestDescriptors), descriptor)
}

func TestDecodeKeepsNoPartOfTheMessage(t *testing.T) {
	message := withValue("alice")
	got, err := Decode(message)
	if err != nil {
		t.Fatal(err)
	}
	clear(message)
	if v := got.Descriptors[0].Entries[0].Value; v != "alice" {
		t.Errorf("value = %q after the buffer was used again, want alice", v)
	}
}

func TestDecodeRefusesWhatIsTooLarge(t *testing.T) {
	for _, tt := range []struct {
		name    string
		message []byte
		want    string
	}{
		{"1 MiB and a byte", withValue(strings.Repeat("x", MaxMessageBytes)), "1048576"},
		{"more than 10^5 descriptors", []byte(strings.Repeat("\x12\x00", 100_001)), "100000 descriptors"},
		{"more than 10^4 entries", protowire.AppendBytes([]byte{0x12}, []byte(strings.Repeat("\x0a\x00", 10_001))), "10000 entries"},
	} {
		if _, err := Decode(tt.message); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error = %v, want one with %q", tt.name, err, tt.want)
		}
	}
}

func TestDecodeRefusesWhatIsNoMessage(t *testing.T) {
	for _, message := range []string{
		"\x00\x00",    // field number 0
		"\x0a\x05abc", // a string that ends early
		"\x18",        // a number that is missing
		"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", // a varint of more than 64 bits
		"\x0c",                     // the end of a group that has not begun
		"\x0b",                     // a group without an end
		"\x12\x02\x0a\x09",         // an entry longer than its descriptor
		"\x12\x04\x1a\x02\x08\x80", // a wrapper that ends early
		"\x80\x80\x80\x80\x10\x00", // field number 2^29
		"\x0f",                     // wire type 7
	} {
		if got, err := Decode([]byte(message)); err == nil {
			t.Errorf("Decode(%q) = %+v, want an error", message, got)
		}
	}
}

// FuzzDecode holds Decode to the generated code: what that takes gives the same request;
// what that refuses is refused, unless it is only not UTF-8 or above the bounds.
func FuzzDecode(f *testing.F) {
	f.Add(encode(f, everyField()))
	f.Add(withValue("caf\xe9"))
	f.Add([]byte("\x12\x06\x1a\x02\x08\x05\x1a\x00"))             // a wrapper that comes twice
	f.Add([]byte("\x12\x08\x12\x02\x08\x05\x12\x02\x10\x01"))     // a limit that comes in two parts
	f.Add([]byte("\x18\x80\x80\x80\x80\x10\x12\x02\x20\x02"))     // numbers wider than their fields
	f.Add([]byte("\x0b\x0c\x10\x05\x1d\x00\x00\x00\x00\x0a\x00")) // fields of the wrong type, and groups
	f.Fuzz(func(t *testing.T, message []byte) {
		got, err := Decode(message)
		var m pb.RateLimitRequest
		if refused := proto.Unmarshal(message, &m); refused != nil {
			if err == nil && !strings.Contains(refused.Error(), "UTF-8") {
				t.Errorf("Decode takes %q, which the generated code refuses: %v", message, refused)
			}
			return
		}
		want, tooMuch := fromMessage(&m)
		if tooMuch != nil {
			if err == nil {
				t.Errorf("Decode takes %d descriptors", len(got.Descriptors))
			}
			return
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Decode(%q) = %+v, %v\nwant %+v", message, got, err, want)
		}
	})
}

// leaving is the context of a proxy that leaves after a few looks at it.
type leaving struct {
	context.Context
	looks atomic.Int64
}

func (l *leaving) Err() error {
	if l.looks.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

func TestLongRequestIsGivenUpWhenItsProxyLeaves(t *testing.T) {
	t.Parallel()
	f := startInMemory(t)
	long := &Request{Domain: "shop"}
	for i := range 10_000 {
		long.Descriptors = append(long.Descriptors, Descriptor{Entries: entriesOf("user=" + strconv.Itoa(i))})
	}
	for _, looks := range []int64{3, 13} { // while it is matched, and while it is charged
		ctx := &leaving{Context: t.Context()}
		ctx.looks.Store(looks)
		if _, err := f.service.Decide(ctx, long); !errors.Is(err, context.Canceled) {
			t.Errorf("after %d looks: got %v, want it to give up", looks, err)
		}
		if got := ctx.looks.Load(); got < -2 { // the log looks once more
			t.Errorf("it went on for %d looks", -got)
		}
	}
	f.expect(t, "OK: OK 2", descriptor("user=1")) // nobody was charged
}

func TestTenLongHeadersAreLimited(t *testing.T) {
	t.Parallel()
	f := startInMemory(t)
	var ten []*common.RateLimitDescriptor
	for i := range 10 {
		ten = append(ten, descriptor("user="+strings.Repeat(string(rune('a'+i)), 8<<10)))
	}
	for _, want := range []pb.RateLimitResponse_Code{pb.RateLimitResponse_OK, pb.RateLimitResponse_OK, pb.RateLimitResponse_OK, pb.RateLimitResponse_OVER_LIMIT} {
		if got := f.ask(t, ten...).OverallCode; got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}
