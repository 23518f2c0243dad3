package rls

import (
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

const described = `
domain: shop
descriptors:
  - key: a
    rate_limit: {unit: year, requests_per_unit: 1}
    metadata: {plan: gold, at: {zone: east, list: [1, two]}}
  - key: b
    detailed_metric: true
    rate_limit: {unit: year, requests_per_unit: 9}
    metadata: {plan: silver, at: {zone: west, rack: 7}, more: true}
  - key: free
    rate_limit: {unlimited: true}
    metadata: {never: told}
`

// expectMetadata holds an answer's dynamic metadata to a text in JSON.
func expectMetadata(t testing.TB, answer *pb.RateLimitResponse, want string) {
	t.Helper()
	wanted := new(structpb.Struct)
	if err := protojson.Unmarshal([]byte(want), wanted); err != nil {
		t.Fatal(err)
	}
	if got := answer.GetDynamicMetadata(); !proto.Equal(got, wanted) {
		t.Errorf("metadata\n got %v\nwant %v", protojson.Format(got), want)
	}
}

func TestMetadataTellsTheRequestAndWhatItPassed(t *testing.T) {
	t.Parallel()
	f := startWith(t, inMemory(t), described, Options{Metadata: true})
	answer := f.ask(t, descriptor("a=x"), withHits(descriptor("b=y"), 2))
	expectMetadata(t, answer, `{
		"source": "store", "domain": "shop",
		"descriptors": [{"entries": ["a=x"]}, {"entries": ["b=y"], "hitsAddend": 2}],
		"metadata": {"plan": "gold", "at": {"zone": "east", "list": [1, "two"], "rack": 7}, "more": true}
	}`)
	answer = f.ask(t, descriptor("a=x"), descriptor("b=y")) // over a
	expectMetadata(t, answer, `{
		"source": "store", "domain": "shop",
		"descriptors": [{"entries": ["a=x"]}, {"entries": ["b=y"]}],
		"metadata": {"plan": "silver", "at": {"zone": "west", "rack": 7}, "more": true}
	}`)
}

func TestMetadataOfOneRequestIsNotTheNextOnesNorThatOfNoLimit(t *testing.T) {
	t.Parallel()
	f := startWith(t, inMemory(t), described, Options{Metadata: true})
	f.ask(t, descriptor("a=x"), descriptor("b=y"))
	expectMetadata(t, f.ask(t, descriptor("a=z"), descriptor("free=x")), `{
		"source": "store", "domain": "shop", "descriptors": [{"entries": ["a=z"]}, {"entries": ["free=x"]}],
		"metadata": {"plan": "gold", "at": {"zone": "east", "list": [1, "two"]}}
	}`)
}

func TestMetadataSaysLimitsAndHitsOfTheRequest(t *testing.T) {
	t.Parallel()
	f := startWith(t, inMemory(t), described, Options{Metadata: true})
	request := oneDescriptor(withLimit(descriptor("free=x", "second="), 5, typev3.RateLimitUnit_MINUTE))
	request.HitsAddend = 3
	answer, err := f.client.ShouldRateLimit(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	expectMetadata(t, answer, `{
		"source": "store", "domain": "shop", "hitsAddend": 3,
		"descriptors": [{"entries": ["free=x", "second="], "limit": "requests_per_unit:5 unit:MINUTE"}]
	}`)
}

func TestMetadataHoldsNoBytesThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	f := startWith(t, inMemory(t), described, Options{Metadata: true})
	answer, err := f.service.Decide(t.Context(), &Request{Domain: "\xff", Descriptors: []Descriptor{{Entries: entriesOf("a=\xe9")}}})
	if err != nil {
		t.Fatal(err)
	}
	var got pb.RateLimitResponse
	if err := proto.Unmarshal(answer.Append(nil), &got); err != nil {
		t.Fatal(err)
	}
	expectMetadata(t, &got, `{"domain": "�", "descriptors": [{"entries": ["a=�"]}]}`)
}
