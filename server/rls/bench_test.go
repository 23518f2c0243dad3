package rls

import (
	"strconv"
	"testing"

	"google.golang.org/grpc/mem"
)

// BenchmarkCall is what the service adds to gRPC for a request of one descriptor.
func BenchmarkCall(b *testing.B) {
	s, err := New(inMemory(b), Options{})
	if err != nil {
		b.Fatal(err)
	}
	if err := s.SetRules(parse(b, shop)); err != nil {
		b.Fatal(err)
	}
	messages := make([]mem.BufferSlice, 1000)
	for i := range messages {
		messages[i] = mem.BufferSlice{mem.SliceBuffer(encode(b, oneDescriptor(descriptor("user="+strconv.Itoa(i)))))}
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		message := messages[n%len(messages)]
		answer, err := shouldRateLimit(s, b.Context(), func(call any) error { return codec{}.Unmarshal(message, call) }, nil)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := (codec{}).Marshal(answer); err != nil {
			b.Fatal(err)
		}
		n++
	}
}
