package xds

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	pb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"weir.dev/weir/server/rules"
)

// limit is a policy of n requests per unit.
func limit(n uint32, unit rules.Unit) *pb.RateLimitPolicy {
	return &pb.RateLimitPolicy{RequestsPerUnit: n, Unit: pb.RateLimitUnit(unit)}
}

// gateway is a configuration such as Envoy Gateway sends.
func gateway() *pb.RateLimitConfig {
	return &pb.RateLimitConfig{
		Name:   "envoy-gateway/eg/http",
		Domain: "envoy-gateway/eg/http",
		Descriptors: []*pb.RateLimitDescriptor{{
			Key:   "httproute/default/shop/rule/0/match/0/*",
			Value: "httproute/default/shop/rule/0/match/0/*",
			Descriptors: []*pb.RateLimitDescriptor{
				{Key: "rule-0-match-0", Value: "rule-0-match-0", RateLimit: limit(3, rules.UnitHour)},
				{Key: "rule-1-match-0", RateLimit: limit(7, rules.UnitWeek), ShadowMode: true},
				{Key: "masked_remote_address", Value: "192.168.0.0/16", DetailedMetric: true, RateLimit: &pb.RateLimitPolicy{
					Unlimited: true, Replaces: []*pb.RateLimitReplace{{Name: "a=b"}, {Name: "c"}},
				}},
			},
		}, {Key: "x", RateLimit: &pb.RateLimitPolicy{RequestsPerUnit: 0, Unit: pb.RateLimitUnit_SECOND, Name: "a=b"}}},
	}
}

func response(t testing.TB, version string, resources ...proto.Message) *discovery.DiscoveryResponse {
	t.Helper()
	r := &discovery.DiscoveryResponse{VersionInfo: version, TypeUrl: typeURL, Nonce: "n" + version}
	for _, m := range resources {
		resource, err := anypb.New(m)
		if err != nil {
			t.Fatal(err)
		}
		r.Resources = append(r.Resources, resource)
	}
	return r
}

func update(t testing.TB, resources ...proto.Message) *Update {
	t.Helper()
	u, err := newUpdate(response(t, "1", resources...))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestAResourceMeansWhatItsTextMeans(t *testing.T) {
	t.Parallel()
	u := update(t, gateway())
	want := `domain: "envoy-gateway/eg/http"
descriptors:
- key: "httproute/default/shop/rule/0/match/0/*"
  value: "httproute/default/shop/rule/0/match/0/*"
  descriptors:
  - key: "rule-0-match-0"
    value: "rule-0-match-0"
    rate_limit:
      unit: "hour"
      requests_per_unit: 3
  - key: "rule-1-match-0"
    shadow_mode: true
    rate_limit:
      unit: "week"
      requests_per_unit: 7
  - key: "masked_remote_address"
    value: "192.168.0.0/16"
    detailed_metric: true
    rate_limit:
      unlimited: true
      replaces:
      - name: "a=b"
      - name: "c"
- key: "x"
  rate_limit:
    unit: "second"
    requests_per_unit: 0
    name: "a=b"
`
	if got := string(u.Files[0].Data); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	config, err := rules.Parse(u.Files...)
	if err != nil {
		t.Fatal(err)
	}
	r := config.Match("envoy-gateway/eg/http", []rules.Entry{
		{Key: "httproute/default/shop/rule/0/match/0/*", Value: "httproute/default/shop/rule/0/match/0/*"},
		{Key: "rule-1-match-0", Value: "10.0.0.1"},
	})
	if r == nil || len(r.Limits) != 1 || !r.Shadow {
		t.Fatalf("got the rule %+v, want one limit in shadow", r)
	}
	if got, want := r.Limits[0].String(), "7 per week by fixed_window"; got != want {
		t.Errorf("got the limit %q, want %q", got, want)
	}
}

func TestFilesAreSortedByName(t *testing.T) {
	t.Parallel()
	u := update(t, &pb.RateLimitConfig{Name: "b"}, &pb.RateLimitConfig{}, &pb.RateLimitConfig{Name: "a"}, &pb.RateLimitConfig{Name: "b"})
	var got []string
	for _, f := range u.Files {
		got = append(got, f.Name)
	}
	if want := []string{"(resource 1)", "a", "b", "b (resource 3)"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestQuotaModeIsReadThoughTheGeneratedCodeDoesNotKnowIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		unknown []byte
		want    bool
	}{
		{"absent", nil, false},
		{"true", protowire.AppendVarint(protowire.AppendTag(nil, 7, protowire.VarintType), 1), true},
		{"false", protowire.AppendVarint(protowire.AppendTag(nil, 7, protowire.VarintType), 0), false},
		{"beside others", protowire.AppendVarint(protowire.AppendTag(protowire.AppendString(protowire.AppendTag(nil, 9, protowire.BytesType), "x"), 7, protowire.VarintType), 1), true},
		{"of another type", protowire.AppendString(protowire.AppendTag(nil, 7, protowire.BytesType), "x"), false},
	} {
		d := &pb.RateLimitDescriptor{Key: "k", RateLimit: limit(1, rules.UnitDay)}
		d.ProtoReflect().SetUnknown(c.unknown)
		config, err := rules.Parse(update(t, &pb.RateLimitConfig{Domain: "d", Descriptors: []*pb.RateLimitDescriptor{d}}).Files...)
		if err != nil {
			t.Fatal(err)
		}
		if got := config.Rules()[0].Quota; got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestFaultsAreSaidInTheServersWords(t *testing.T) {
	t.Parallel()
	u := update(t, &pb.RateLimitConfig{Name: "first", Domain: "d", Descriptors: []*pb.RateLimitDescriptor{
		{Key: "a", Descriptors: []*pb.RateLimitDescriptor{{Key: "b"}, {Value: "v", RateLimit: &pb.RateLimitPolicy{Unit: 9}}}},
		{Key: "c", RateLimit: limit(1, rules.UnitDay)},
		{Key: "c", RateLimit: limit(1, rules.UnitDay)},
		{Key: "e", RateLimit: &pb.RateLimitPolicy{Name: "n", Unit: 1, Replaces: []*pb.RateLimitReplace{{Name: "m"}, {Name: "n"}}}},
	}}, &pb.RateLimitConfig{Name: "second", Descriptors: []*pb.RateLimitDescriptor{{Key: "f", RateLimit: &pb.RateLimitPolicy{}}}})
	_, err := rules.Parse(u.Files...)
	got := u.explain(fmt.Errorf("wrapped: %w", err)).Error()
	for _, want := range []string{
		"first: descriptors[0].descriptors[1].key: key is empty",
		`first: descriptors[0].descriptors[1].rate_limit.unit: unknown unit "9"`,
		"first: descriptors[2].key: the descriptor c is here twice, first in descriptors[1]:",
		`first: descriptors[3].rate_limit.replaces[1].name: the limit "n" replaces itself`,
		"second: domain: domain is empty",
		`second: descriptors[0].rate_limit.unit: unknown unit "unknown"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant also %s", got, want)
		}
	}
	if strings.Contains(got, "line") {
		t.Errorf("got\n%s\nwant no line of a text that the server never saw", got)
	}
	other := errors.New("other")
	if got := u.explain(other); got != other {
		t.Errorf("got %v, want %v", got, other)
	}
}

func TestOnlySoManyFaultsAreSaid(t *testing.T) {
	t.Parallel()
	config := &pb.RateLimitConfig{Domain: "d"}
	for range 500 {
		config.Descriptors = append(config.Descriptors, &pb.RateLimitDescriptor{})
	}
	u := update(t, config)
	_, err := rules.Parse(u.Files...)
	lines := strings.Split(u.explain(err).Error(), "\n")
	if got, want := len(lines), maxExplained+1; got != want {
		t.Errorf("got %d lines, want %d", got, want)
	}
	if got, want := lines[maxExplained], "and 480 more faults"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWhatIsNoConfigurationIsNamed(t *testing.T) {
	t.Parallel()
	r := response(t, "1", gateway(), &discovery.DiscoveryRequest{}, gateway())
	r.Resources[2].Value = []byte{0x0a, 0xff}
	for range 20 {
		r.Resources = append(r.Resources, &anypb.Any{TypeUrl: typeURL, Value: make([]byte, rules.MaxFileBytes+1)})
	}
	_, err := newUpdate(r)
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{
		`resource 1: it is a "type.googleapis.com/envoy.service.discovery.v3.DiscoveryRequest": send a ` + typeURL,
		"resource 2: proto:",
		"resource 3: it has 4194305 bytes, more than 4194304",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want also %q", err, want)
		}
	}
	if got := strings.Count(err.Error(), "\n") + 1; got != maxUnreadable {
		t.Errorf("got %d resources, want %d", got, maxUnreadable)
	}
}

func TestADeepResourceIsRefusedNotFollowed(t *testing.T) {
	t.Parallel()
	d := &pb.RateLimitDescriptor{Key: "k"}
	for range 3000 {
		d = &pb.RateLimitDescriptor{Key: "k", Descriptors: []*pb.RateLimitDescriptor{d}}
	}
	u := update(t, &pb.RateLimitConfig{Domain: "d", Descriptors: []*pb.RateLimitDescriptor{d}})
	if _, err := rules.Parse(u.Files...); err == nil || !strings.Contains(err.Error(), "nest deeper than") {
		t.Errorf("got the error %v, want one of the depth", err)
	}
}

func TestAResourceOfMillionsOfDescriptorsIsRefusedInBoundedSpace(t *testing.T) {
	t.Parallel()
	r := response(t, "1", &pb.RateLimitConfig{Domain: "d"})
	for range 1 << 20 {
		r.Resources[0].Value = append(r.Resources[0].Value, 0x1a, 0x00) // descriptors, empty
	}
	u, err := newUpdate(r)
	if err != nil {
		t.Fatal(err)
	}
	if got, most := len(u.Files[0].Data), rules.MaxFileBytes+1000; got > most {
		t.Errorf("got %d bytes, want at most %d", got, most)
	}
	if _, err := rules.Parse(u.Files...); err == nil || !strings.Contains(u.explain(err).Error(), "more than 4194304") {
		t.Errorf("got the error %v, want one of the size", err)
	}
}

// FuzzUpdate reads any bytes as a resource. What rules takes must match what the resource
// says: nothing that a server writes may pass for structure.
func FuzzUpdate(f *testing.F) {
	add := func(c *pb.RateLimitConfig) {
		b, err := proto.Marshal(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	add(gateway())
	add(&pb.RateLimitConfig{Name: "n", Domain: "\x00\u0085\u2028\ufeff\"\\: #\n- {}", Descriptors: []*pb.RateLimitDescriptor{{Key: "*", Value: "a\t'\u00a0\U0001f600\x7f"}}})
	f.Add([]byte{0x1a, 0x00})
	f.Add([]byte{0x1a, 0x04, 0x38, 0x01, 0x0a, 0x00})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &discovery.DiscoveryResponse{Resources: []*anypb.Any{{TypeUrl: typeURL, Value: b}}}
		u, err := newUpdate(r)
		if err != nil {
			return
		}
		if got, want := strings.Count(string(u.Files[0].Data), "\n"), len(u.places[u.Files[0].Name]); got != want {
			t.Fatalf("%d lines and %d places", got, want)
		}
		parsed, err := rules.Parse(u.Files...)
		if err != nil {
			if strings.Contains(err.Error(), "not YAML") || u.explain(err).Error() == "" {
				t.Fatalf("%v in\n%s", err, u.Files[0].Data)
			}
			return
		}
		var config pb.RateLimitConfig
		if err := proto.Unmarshal(b, &config); err != nil {
			t.Fatal(err)
		}
		if !parsed.Has(config.GetDomain()) {
			t.Fatalf("got the domains %q, want %q", parsed.Domains(), config.GetDomain())
		}
		for _, d := range config.GetDescriptors() {
			if d.GetRateLimit() == nil || strings.Contains(d.GetKey()+d.GetValue(), "*") {
				continue
			}
			matched := parsed.Match(config.GetDomain(), []rules.Entry{{Key: d.GetKey(), Value: d.GetValue()}})
			if matched == nil || matched.Shadow != d.GetShadowMode() || matched.Unlimited != d.GetRateLimit().GetUnlimited() {
				t.Fatalf("%v: got the rule %+v", d, matched)
			}
		}
	})
}
