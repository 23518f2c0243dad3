package rls

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weir.dev/weir"
	"weir.dev/weir/memstore"
	"weir.dev/weir/server/rules"
)

// The windows are years, so that no test meets the end of one.
const shop = `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 3, name: per-user}
  - key: path
    rate_limit: {unit: year, requests_per_unit: 1}
  - key: closed
    rate_limit: {unit: year, requests_per_unit: 0}
  - key: staff
    rate_limit: {unlimited: true}
  - key: trusted
  - key: trial
    shadow_mode: true
    rate_limit: {unit: year, requests_per_unit: 1}
  - key: queue
    rate_limit: {unit: hour, requests_per_unit: 60, algorithm: leaky_bucket, burst: 3}
  - key: quarter
    rate_limit: {window: 15m, requests_per_unit: 5, algorithm: gcra}
  - key: both
    limits:
      - {unit: day, requests_per_unit: 100, algorithm: gcra, name: daily}
      - {unit: year, requests_per_unit: 2, algorithm: gcra, name: yearly}
`

// fixture is a service behind real sockets.
type fixture struct {
	client   pb.RateLimitServiceClient
	conn     *grpc.ClientConn
	http     *httptest.Server
	service  *Service
	registry *prometheus.Registry
}

func parse(t testing.TB, text string) *rules.Config {
	t.Helper()
	config, err := rules.Parse(rules.File{Name: "rules.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func start(t testing.TB, store weir.Store) *fixture {
	t.Helper()
	return startWith(t, store, shop, Options{})
}

func startWith(t testing.TB, store weir.Store, text string, opts Options) *fixture {
	t.Helper()
	f := &fixture{registry: prometheus.NewRegistry()}
	opts.Registry = f.registry
	service, err := New(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Close)
	if err := service.SetRules(parse(t, text)); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(ServerOption())
	service.Register(server)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	f.conn, err = grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.conn.Close() })
	f.http = httptest.NewServer(service)
	t.Cleanup(f.http.Close)
	f.client, f.service = pb.NewRateLimitServiceClient(f.conn), service
	return f
}

func startInMemory(t testing.TB) *fixture {
	t.Helper()
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return start(t, store)
}

// descriptor is one of entries such as "user=alice".
func descriptor(entries ...string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

// entriesOf are the entries of descriptor.
func entriesOf(entries ...string) (all []rules.Entry) {
	for _, e := range descriptor(entries...).Entries {
		all = append(all, rules.Entry{Key: e.Key, Value: e.Value})
	}
	return all
}

func withHits(d *common.RateLimitDescriptor, hits uint64) *common.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(hits)
	return d
}

func withLimit(d *common.RateLimitDescriptor, requests uint32, unit typev3.RateLimitUnit) *common.RateLimitDescriptor {
	d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: requests, Unit: unit}
	return d
}

func (f *fixture) ask(t testing.TB, descriptors ...*common.RateLimitDescriptor) *pb.RateLimitResponse {
	t.Helper()
	answer, err := f.client.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "shop", Descriptors: descriptors})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// summary is an answer in one line: "OVER_LIMIT: OK 2, OVER_LIMIT 0", each status with
// what remains, or with "-" where no limit applies.
func summary(answer *pb.RateLimitResponse) string {
	var parts []string
	for _, s := range answer.GetStatuses() {
		left := "-"
		if s.GetCurrentLimit() != nil {
			left = fmt.Sprint(s.GetLimitRemaining())
		}
		parts = append(parts, s.GetCode().String()+" "+left)
	}
	return answer.GetOverallCode().String() + ": " + strings.Join(parts, ", ")
}

func (f *fixture) expect(t testing.TB, want string, descriptors ...*common.RateLimitDescriptor) *pb.RateLimitResponse {
	t.Helper()
	answer := f.ask(t, descriptors...)
	if got := summary(answer); got != want {
		t.Errorf("%v\n got %s\nwant %s", descriptors, got, want)
	}
	return answer
}

func TestLimitIsCountedDown(t *testing.T) {
	t.Parallel()
	f := startInMemory(t)
	f.expect(t, "OK: OK 2", descriptor("user=a"))
	f.expect(t, "OK: OK 1", descriptor("user=a"))
	f.expect(t, "OK: OK 2", descriptor("user=b"))
	f.expect(t, "OK: OK 0", descriptor("user=a"))
	answer := f.expect(t, "OVER_LIMIT: OVER_LIMIT 0", descriptor("user=a"))
	want := &pb.RateLimitResponse_RateLimit{Name: "per-user", RequestsPerUnit: 3, Unit: pb.RateLimitResponse_RateLimit_YEAR}
	if got := answer.Statuses[0].CurrentLimit; !proto.Equal(got, want) {
		t.Errorf("current_limit = %v, want %v", got, want)
	}
	reset := answer.Statuses[0].GetDurationUntilReset()
	if reset.GetSeconds() < 1 || reset.GetSeconds() > 365*86400 || reset.GetNanos() != 0 {
		t.Errorf("duration_until_reset = %v, want whole seconds within the year", reset)
	}
}

func TestEachKindOfRuleIsAnswered(t *testing.T) {
	t.Parallel()
	f := startInMemory(t)
	f.expect(t, "OK: OK -", descriptor("nobody=knows"))
	f.expect(t, "OK: OK -", descriptor("trusted=x"))
	f.expect(t, "OK: OK -", descriptor())
	f.expect(t, "OVER_LIMIT: OVER_LIMIT 0", descriptor("closed=x"))
	if got := f.expect(t, "OK: OK -", descriptor("staff=x")).Statuses[0].LimitRemaining; got != math.MaxUint32 {
		t.Errorf("an unlimited rule has %d left, want %d", got, uint32(math.MaxUint32))
	}
	f.expect(t, "OK: OK 0", descriptor("trial=x"))
	f.expect(t, "OK: OK 0", descriptor("trial=x")) // over, but in shadow

	limit := f.expect(t, "OK: OK 4", descriptor("quarter=x")).Statuses[0].CurrentLimit
	if limit.Unit != pb.RateLimitResponse_RateLimit_MINUTE || limit.UnitMultiplier.GetValue() != 15 {
		t.Errorf("a window of 15m is told as %v, want 15 times MINUTE", limit)
	}
	answer, err := f.client.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "elsewhere", Descriptors: []*common.RateLimitDescriptor{descriptor("user=a")}})
	if err != nil || summary(answer) != "OK: OK -" {
		t.Errorf("an unknown domain: %v, %v, want OK without a limit", answer, err)
	}
}

func TestStatusTellsTheTightestOfSeveralLimits(t *testing.T) {
	t.Parallel()
	f := startInMemory(t)
	for _, want := range []string{"OK: OK 1", "OK: OK 0", "OVER_LIMIT: OVER_LIMIT 0"} {
		answer := f.expect(t, want, descriptor("both=x"))
		if got := answer.Statuses[0].CurrentLimit.Name; got != "yearly" {
			t.Errorf("current_limit is %q, want yearly", got)
		}
	}
}

func TestRefusedRequestIsChargedToNoDescriptor(t *testing.T) {
	t.Parallel()
	f := startInMemory(t)
	f.expect(t, "OK: OK 2, OK 0", descriptor("user=a"), descriptor("path=/"))
	f.expect(t, "OVER_LIMIT: OK 2, OVER_LIMIT 0", descriptor("user=a"), descriptor("path=/"))
	f.expect(t, "OK: OK 1", descriptor("user=a"))
	f.expect(t, "OK: OK 2, OK 1", descriptor("user=twice"), descriptor("user=twice"))
	if got := f.count(t, "rate_limit_decisions_total", "user", "held_back"); got != 1 {
		t.Errorf("%v descriptors held back, want 1", got)
	}
}

func TestHitsAddendOfADescriptorGoesBeforeTheRequests(t *testing.T) {
	t.Parallel()
	f := startInMemory(t)
	f.expect(t, "OK: OK 3", withHits(descriptor("user=a"), 0)) // a peek
	f.expect(t, "OK: OK 1", withHits(descriptor("user=a"), 2))
	f.expect(t, "OVER_LIMIT: OVER_LIMIT 1", withHits(descriptor("user=a"), 2))
	for _, huge := range []uint64{1 << 32, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
		f.expect(t, "OVER_LIMIT: OVER_LIMIT 1", withHits(descriptor("user=a"), huge))
	}
	request := &pb.RateLimitRequest{Domain: "shop", HitsAddend: 3, Descriptors: []*common.RateLimitDescriptor{descriptor("user=b"), withHits(descriptor("user=c"), 1)}}
	answer, err := f.client.ShouldRateLimit(t.Context(), request)
	if err != nil || summary(answer) != "OK: OK 0, OK 2" {
		t.Errorf("3 for the request and 1 for its second descriptor: %v, %v", answer, err)
	}
	f.expect(t, "OVER_LIMIT: OVER_LIMIT 0", withHits(descriptor("user=b"), 0)) // a peek at nothing left
	f.expect(t, "OK: OK 0", descriptor("user=a"))                              // the huge ones changed nothing
}

func TestRefundIsAnsweredOKAndChargesNothing(t *testing.T) {
	t.Parallel()
	f := startInMemory(t)
	refund := withHits(descriptor("user=a"), 2)
	refund.IsNegativeHits = true
	f.expect(t, "OK: OK -", refund)
	f.expect(t, "OK: OK 2", descriptor("user=a"))
	if got := f.count(t, "rate_limit_ignored_refunds_total", "", ""); got != 1 {
		t.Errorf("%v refunds counted, want 1", got)
	}
}

func TestOverrideStandsInForTheRule(t *testing.T) {
	t.Parallel()
	f := startInMemory(t)
	year := typev3.RateLimitUnit_YEAR
	f.expect(t, "OK: OK 9", withLimit(descriptor("user=a"), 10, year))
	f.expect(t, "OK: OK 0", withLimit(descriptor("nobody=knows"), 1, year))
	f.expect(t, "OVER_LIMIT: OVER_LIMIT 0", withLimit(descriptor("nobody=knows"), 1, year))
	f.expect(t, "OK: OK 0", withLimit(descriptor("trial=x"), 1, year))
	f.expect(t, "OVER_LIMIT: OVER_LIMIT 0", withLimit(descriptor("trial=x"), 1, year)) // shadow is the rule's, not the override's
	f.expect(t, "OVER_LIMIT: OVER_LIMIT 0", withLimit(descriptor("staff=x"), 0, year))
	f.expect(t, "OK: OK 4294967294", withLimit(descriptor("user=max"), math.MaxUint32, year))
}

func TestLeakyBucketTellsItsDelay(t *testing.T) {
	t.Parallel()
	f := startInMemory(t)
	if d, ok := f.expect(t, "OK: OK 2", descriptor("queue=x")).GetDynamicMetadata().GetFields()["delay_seconds"]; ok {
		t.Errorf("the first in the queue is told to wait %v s, want no wait", d)
	}
	answer := f.expect(t, "OK: OK 1", descriptor("queue=x"))
	if got := answer.GetDynamicMetadata().GetFields()["delay_seconds"].GetNumberValue(); got < 1 || got > 60 {
		t.Errorf("the second is told to wait %v s, want at most the minute that the first takes", got)
	}
	f.expect(t, "OK: OK 0", descriptor("queue=x"))
	f.expect(t, "OVER_LIMIT: OVER_LIMIT 0", descriptor("queue=x"))
}

// raw sends bytes as they are, and reads the answer by the generated code.
type raw struct{ encoding.CodecV2 }

func (r raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func TestValueThatIsNotUTF8IsLimited(t *testing.T) {
	t.Parallel()
	f := startInMemory(t)
	for _, want := range []string{"OK: OK 2", "OK: OK 1", "OK: OK 0", "OVER_LIMIT: OVER_LIMIT 0"} {
		answer := new(pb.RateLimitResponse)
		err := f.conn.Invoke(t.Context(), pb.RateLimitService_ShouldRateLimit_FullMethodName, withValue("\xe9\xff"), answer,
			grpc.ForceCodecV2(raw{encoding.GetCodecV2("proto")}))
		if err != nil || summary(answer) != want {
			t.Errorf("got %v, %v, want %s", answer, err, want)
		}
	}
	f.expect(t, "OK: OK 2", descriptor("user=\u00e9\u00ff")) // another user
}

func TestBadRequestsGetInvalidArgument(t *testing.T) {
	t.Parallel()
	f := startInMemory(t)
	bad := []struct {
		name    string
		request *pb.RateLimitRequest
		want    string
	}{
		{"no domain", &pb.RateLimitRequest{Descriptors: []*common.RateLimitDescriptor{descriptor("user=a")}}, "domain must not be empty"},
		{"no descriptors", &pb.RateLimitRequest{Domain: "shop"}, "list must not be empty"},
		{"unit 0 in an override", oneDescriptor(withLimit(descriptor("user=a"), 5, 0)), "unit 0"},
		{"unit 99 in an override", oneDescriptor(withLimit(descriptor("user=a"), 5, 99)), "unit 99"},
		{"unit 257 in an override", oneDescriptor(withLimit(descriptor("user=a"), 5, 257)), "unit 257"},
		{"negative unit in an override", oneDescriptor(withLimit(descriptor("user=a"), 5, -1)), "unit -1"},
		{"more than 10^4 entries", oneDescriptor(descriptor(make([]string, 10_001)...)), "10000 entries"},
		{"more than 10^5 descriptors", &pb.RateLimitRequest{Domain: "shop", Descriptors: manyDescriptors(100_001)}, "100000 descriptors"},
		{"a message above 1 MiB", oneDescriptor(descriptor("user=" + strings.Repeat("x", 1<<20))), "1048576"},
	}
	for _, tt := range bad {
		_, err := f.client.ShouldRateLimit(t.Context(), tt.request)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %.300v, want InvalidArgument with %q", tt.name, err, tt.want)
		}
	}
	if got := f.count(t, "rate_limit_invalid_requests_total", "", ""); got != float64(len(bad)) {
		t.Errorf("%v invalid requests counted, want %d", got, len(bad))
	}
	elsewhere := oneDescriptor(withLimit(descriptor("user=a"), 5, 0)) // ignored, as every limit is there
	elsewhere.Domain = "elsewhere"
	if answer, err := f.client.ShouldRateLimit(t.Context(), elsewhere); err != nil || summary(answer) != "OK: OK -" {
		t.Errorf("unit 0 in an unknown domain: %v, %v, want OK", answer, err)
	}
	f.expect(t, "OK: OK 2", descriptor("user=a")) // none of them charged
	f.expect(t, "OK: OK 2", descriptor("user="+strings.Repeat("x", 1<<20-100)))
}

func oneDescriptor(d *common.RateLimitDescriptor) *pb.RateLimitRequest {
	return &pb.RateLimitRequest{Domain: "shop", Descriptors: []*common.RateLimitDescriptor{d}}
}

func manyDescriptors(n int) []*common.RateLimitDescriptor {
	many := make([]*common.RateLimitDescriptor, n)
	for i := range many {
		many[i] = &common.RateLimitDescriptor{}
	}
	return many
}

// away is a store that cannot decide.
type away struct {
	weir.Store
	err error
}

func (a away) Take(context.Context, weir.Ask) (weir.Decision, error) { return weir.Decision{}, a.err }

func (a away) TakeAll(context.Context, []weir.Ask, []weir.Decision) error { return a.err }

func TestStoreThatIsAwayGivesUnavailable(t *testing.T) {
	t.Parallel()
	f := start(t, away{err: errors.New("no route to the store")})
	for _, d := range [][]*common.RateLimitDescriptor{{descriptor("user=a")}, {descriptor("user=a"), descriptor("path=/")}} {
		_, err := f.client.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "shop", Descriptors: d})
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%d descriptors: %v, want Unavailable", len(d), err)
		}
	}
	f.expect(t, "OK: OK -", descriptor("nobody=knows"))
	f.expect(t, "OK: OK 0", descriptor("trial=x"))                              // shadow never denies
	f.expect(t, "OK: OK 0, OK 0", descriptor("trial=x"), descriptor("trial=y")) // alone or not
	if code, _ := f.post(t, `{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"a"}]}]}`); code != http.StatusServiceUnavailable {
		t.Errorf("/json = %d, want 503", code)
	}
	if got := f.count(t, "rate_limit_store_errors_total", "", ""); got != 5 {
		t.Errorf("%v store errors counted, want 5", got)
	}
	if got := f.count(t, "rate_limit_decisions_total", "user", "error"); got != 3 {
		t.Errorf("%v descriptors of user without a decision, want 3", got)
	}
}

func TestCallerWhoHasLeftIsNotCharged(t *testing.T) {
	t.Parallel()
	f := startInMemory(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := Request{Domain: "shop", Descriptors: []Descriptor{{Entries: []rules.Entry{{Key: "user", Value: "a"}}}}}
	if _, err := f.service.Decide(ctx, &r); !errors.Is(err, context.Canceled) {
		t.Errorf("Decide = %v, want context.Canceled", err)
	}
	f.expect(t, "OK: OK 2", descriptor("user=a"))
}

// hanging is a store that answers when its caller has given up.
type hanging struct{ weir.Store }

func (hanging) Take(ctx context.Context, _ weir.Ask) (weir.Decision, error) {
	<-ctx.Done()
	return weir.Decision{}, ctx.Err()
}

func TestDeadlineOfTheProxyIsHonoured(t *testing.T) {
	t.Parallel()
	f := start(t, hanging{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := f.client.ShouldRateLimit(ctx, oneDescriptor(descriptor("user=a")))
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v, want DeadlineExceeded", err)
	}
}

func TestRulesChangeUnderTraffic(t *testing.T) {
	t.Parallel()
	f := startInMemory(t)
	f.expect(t, "OK: OK 2", descriptor("user=a"))
	var asking sync.WaitGroup
	for i := range 4 {
		asking.Go(func() {
			for range 50 {
				f.ask(t, descriptor(fmt.Sprintf("user=%d", i)), descriptor("path=/"))
			}
		})
	}
	next := parse(t, "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {unit: year, requests_per_unit: 10}\n")
	if err := f.service.SetRules(next); err != nil {
		t.Fatal(err)
	}
	asking.Wait()
	f.expect(t, "OK: OK 8", descriptor("user=a")) // what was used stays used
	f.expect(t, "OK: OK -", descriptor("path=/"))
	for _, rule := range f.labels(t, "rate_limit_decisions_total", "rule") {
		if rule != "" && rule != "user" {
			t.Errorf("the metrics still have rule %q", rule)
		}
	}
}

func TestServiceWithoutRulesIsUnavailable(t *testing.T) {
	t.Parallel()
	s, err := New(away{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Decide(t.Context(), &Request{Domain: "shop", Descriptors: make([]Descriptor, 1)})
	if err == nil || s.codeOf(err) != codes.Unavailable {
		t.Errorf("Decide = %v, want an error that is Unavailable", err)
	}
}

func (f *fixture) post(t testing.TB, body string) (int, string) {
	t.Helper()
	response, err := http.Post(f.http.URL, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func TestJSONIsTheSameQuestion(t *testing.T) {
	t.Parallel()
	f := startInMemory(t)
	const body = `{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"a"}],"hitsAddend":"2"},{"entries":[{"key":"x"}]}]}`
	for _, want := range []struct {
		code    int
		summary string
	}{{200, "OK: OK 1, OK -"}, {429, "OVER_LIMIT: OVER_LIMIT 1, OK -"}} {
		code, text := f.post(t, body)
		var answer pb.RateLimitResponse
		if err := protojson.Unmarshal([]byte(text), &answer); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if got := summary(&answer); code != want.code || got != want.summary {
			t.Errorf("got %d %s, want %d %s", code, got, want.code, want.summary)
		}
	}
	f.expect(t, "OK: OK 0", descriptor("user=a")) // the same counter
}

func TestBadJSONGets400(t *testing.T) {
	t.Parallel()
	f := startInMemory(t)
	for _, tt := range []struct {
		body string
		code int
	}{
		{"", 400},
		{"{}", 400},
		{"[]", 400},
		{"nonsense", 400},
		{`{"domain":"shop"}`, 400},
		{`{"domain":"shop","descriptors":[{}],"hits":1}`, 400},
		{`{"domain":"shop","descriptors":[{"hitsAddend":"-1"}]}`, 400},
		{`{"domain":"shop","descriptors":[{"hitsAddend":"1e99"}]}`, 400},
		{`{"domain":"shop","descriptors":[{"entries":[{"key":"user"}],"limit":{"requestsPerUnit":5}}]}`, 400},
		{"{\"domain\":\"shop\",\"descriptors\":[{\"entries\":[{\"key\":\"user\",\"value\":\"\xff\"}]}]}", 400},
		{`{"domain":"` + strings.Repeat("x", MaxMessageBytes) + `"}`, 413},
		{strings.Repeat(`{"descriptors":[`, 50_000), 400},
	} {
		if code, text := f.post(t, tt.body); code != tt.code || len(text) > 500 {
			t.Errorf("%.60q: %d %.200q, want %d and a short reason", tt.body, code, text, tt.code)
		}
	}
}

func TestTheLogQuotesNothingOfABodyThatIsNoRequest(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	service, err := New(inMemory(t), Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	service.ServeHTTP(answer, httptest.NewRequest("POST", "/json", strings.NewReader(`{"domain": 4929123123456}`)))
	if answer.Code != 400 || !strings.Contains(answer.Body.String(), "4929123123456") {
		t.Errorf("got %d %q, want 400 and what is wrong", answer.Code, answer.Body)
	}
	if !strings.Contains(log.String(), errNotJSON.Error()) || strings.Contains(log.String(), "4929123123456") {
		t.Errorf("got the log %q, want that it is no request, without the value", log.String())
	}
}

func TestJSONOfVeryManyObjectsIsNotEvenRead(t *testing.T) {
	t.Parallel()
	f := startInMemory(t)
	entries := strings.TrimSuffix(strings.Repeat("{},", 300_000), ",")
	for _, body := range []string{
		`{"domain":"shop","descriptors":[` + entries + `]}`,
		`{"domain":"shop","descriptors":[{"entries":[` + entries + `]}]}`,
	} {
		if code, text := f.post(t, body); code != 400 || !strings.Contains(text, "more than 20000 objects") {
			t.Errorf("got %d %.200q, want 400 and that it has too many objects", code, text)
		}
	}
	braces := strings.Repeat(`{\"`, 30_000) // in a text they count for nothing
	if code, text := f.post(t, `{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"`+braces+`"}]}]}`); code != 200 {
		t.Errorf("braces in a text: got %d %.200q, want 200", code, text)
	}
}

func TestClientsChooseNoLabel(t *testing.T) {
	t.Parallel()
	f := startInMemory(t)
	for i := range 50 {
		request := oneDescriptor(descriptor(fmt.Sprintf("user=secret%d", i)))
		if i%2 == 0 {
			request.Domain = fmt.Sprintf("secret%d", i)
		}
		if _, err := f.client.ShouldRateLimit(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		f.ask(t, descriptor(fmt.Sprintf("secret%d=x", i)))
	}
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if text := family.String(); strings.Contains(text, "secret") {
			t.Errorf("%s has a client's text: %s", family.GetName(), text)
		}
	}
	if got := f.count(t, "rate_limit_decisions_total", "user", "allowed"); got != 25 {
		t.Errorf("%v allowed by user, want 25", got)
	}
}

func TestRejectionsAreCounted(t *testing.T) {
	t.Parallel()
	f := startInMemory(t)
	for range 3 {
		f.ask(t, descriptor("path=/"))
		f.ask(t, descriptor("trial=x"))
	}
	for _, tt := range []struct{ rule, outcome string }{{"path", "denied"}, {"trial", "shadow"}} {
		for _, metric := range []string{"rate_limit_decisions_total", "rate_limit_rejections_total"} {
			if got := f.count(t, metric, tt.rule, tt.outcome); got != 2 {
				t.Errorf("%s{rule=%q,outcome=%q} = %v, want 2", metric, tt.rule, tt.outcome, got)
			}
		}
	}
}

// count adds up a metric's counters that have the rule and the outcome; "" is any.
func (f *fixture) count(t testing.TB, metric, rule, outcome string) (sum float64) {
	t.Helper()
	for _, m := range f.family(t, metric) {
		match := true
		for _, l := range m.GetLabel() {
			match = match && (l.GetName() != "rule" || rule == "" || l.GetValue() == rule)
			match = match && (l.GetName() != "outcome" || outcome == "" || l.GetValue() == outcome)
		}
		if match {
			sum += m.GetCounter().GetValue()
		}
	}
	return sum
}

// labels returns the values that a metric has for a label.
func (f *fixture) labels(t testing.TB, metric, name string) (values []string) {
	t.Helper()
	for _, m := range f.family(t, metric) {
		for _, l := range m.GetLabel() {
			if l.GetName() == name {
				values = append(values, l.GetValue())
			}
		}
	}
	return values
}

func (f *fixture) family(t testing.TB, metric string) []*dto.Metric {
	t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == metric {
			return family.GetMetric()
		}
	}
	t.Fatalf("there is no metric %s", metric)
	return nil
}
