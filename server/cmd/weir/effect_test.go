package main

import (
	"bufio"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"weir.dev/weir/internal/redistest"
)

// What each setting of the original does, seen from outside.

// answerOf asks about entries (key=value) of one descriptor each.
func answerOf(t *testing.T, s *running, entries ...string) *pb.RateLimitResponse {
	t.Helper()
	request := &pb.RateLimitRequest{Domain: "lab"}
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		request.Descriptors = append(request.Descriptors, labRequest(key, value).Descriptors...)
	}
	answer, err := pb.NewRateLimitServiceClient(dial(t, s.grpc)).ShouldRateLimit(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// codesOf asks several times, and returns the overall codes: O for OK, L for OVER_LIMIT.
func codesOf(t *testing.T, s *running, times int, entries ...string) (codes string) {
	t.Helper()
	for range times {
		codes += map[pb.RateLimitResponse_Code]string{pb.RateLimitResponse_OK: "O", pb.RateLimitResponse_OVER_LIMIT: "L"}[answerOf(t, s, entries...).GetOverallCode()]
	}
	return codes
}

// counted returns the value of a counter of the rule lab.user.
func counted(t *testing.T, s *running, name string) uint64 {
	t.Helper()
	return s.counts.Counter("ratelimit.service.rate_limit.lab.user." + name).Value()
}

// onNewRedis runs a service in compat with the rules above on a server of its own.
func onNewRedis(t *testing.T, pairs ...string) (*running, *redistest.Server) {
	t.Helper()
	redis := redistest.Start(t, redistest.Redis7, redistest.Options{})
	s, _ := startCompat(t, onRedis(redis, append([]string{"RUNTIME_ROOT", runtimeOf(t, labRules)}, pairs...)...)...)
	return s, redis
}

func TestHeaderSettingsNameTheHeadersOfAnswers(t *testing.T) {
	t.Parallel()
	s, _ := onNewRedis(t, "LIMIT_RESPONSE_HEADERS_ENABLED", "true", "LIMIT_LIMIT_HEADER", "X-L", "LIMIT_REMAINING_HEADER", "X-R", "LIMIT_RESET_HEADER", "X-T")
	got := map[string]string{}
	for _, h := range answerOf(t, s, "user=a").GetResponseHeadersToAdd() {
		got[h.GetKey()] = h.GetValue()
	}
	if reset, err := strconv.Atoi(got["X-T"]); len(got) != 3 || !strings.HasPrefix(got["X-L"], "3") || got["X-R"] != "2" || err != nil || reset < 1 || reset > 3600 {
		t.Errorf("headers %v, want X-L 3, X-R 2 and X-T", got)
	}
}

func TestDynamicMetadataIsAChoice(t *testing.T) {
	t.Parallel()
	s, _ := onNewRedis(t, "RESPONSE_DYNAMIC_METADATA", "true")
	if got := answerOf(t, s, "user=a").GetDynamicMetadata().GetFields()["domain"].GetStringValue(); got != "lab" {
		t.Errorf("the metadata's domain is %q, want lab", got)
	}
}

func TestShadowModeLetsEverythingPass(t *testing.T) {
	t.Parallel()
	s, _ := onNewRedis(t, "SHADOW_MODE", "true")
	if got := codesOf(t, s, 5, "user=a"); got != "OOOOO" {
		t.Errorf("answers %s, want all OK", got)
	}
}

func TestQuotaModeDeniesOnlyWhatIsOverEveryLimit(t *testing.T) {
	t.Parallel()
	s, _ := onNewRedis(t, "QUOTA_MODE", "true")
	if got := codesOf(t, s, 4, "user=a", "user=b") + codesOf(t, s, 1, "user=a", "user=c"); got != "OOOLO" {
		t.Errorf("answers %s, want OOOLO", got)
	}
}

func TestNearLimitRatioDecidesWhatIsNear(t *testing.T) {
	t.Parallel()
	s, _ := onNewRedis(t, "NEAR_LIMIT_RATIO", "0.34")
	codesOf(t, s, 3, "user=a")
	if got := counted(t, s, "near_limit"); got != 2 {
		t.Errorf("near_limit %d, want 2: of three the second and the third are above floor(3 x 0.34)", got)
	}
}

func TestJitterIsAddedToTheTTL(t *testing.T) {
	t.Parallel()
	s, redis := onNewRedis(t, "EXPIRATION_JITTER_MAX_SECONDS", "0")
	codesOf(t, s, 1, "user=a")
	key := redis.Do("KEYS", "lab_user_a_*").([]any)[0].(string)
	if ttl := redis.Do("TTL", key).(int64); ttl < 3590 || ttl > 3600 {
		t.Errorf("TTL %d without jitter, want 3600", ttl)
	}
}

func TestStopIncrementSparesTheOtherCounters(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{"false": "2", "true": "0"} {
		s, redis := onNewRedis(t, "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", setting)
		codesOf(t, s, 3, "user=full")
		codesOf(t, s, 2, "user=full", "user=b")
		key := redis.Do("KEYS", "lab_user_b_*").([]any)[0].(string)
		if got := redis.Do("GET", key); got != want {
			t.Errorf("%s: the counter that is not over is at %v, want %s", setting, got, want)
		}
	}
}

func TestLocalCacheAnswersWithoutRedis(t *testing.T) {
	t.Parallel()
	s, _ := onNewRedis(t, "LOCAL_CACHE_SIZE_IN_BYTES", "1048576")
	codesOf(t, s, 6, "user=a")
	if got := counted(t, s, "over_limit_with_local_cache"); got != 2 {
		t.Errorf("over_limit_with_local_cache %d, want 2", got)
	}
}

func TestCalendarMonthsBeginOnTheFirst(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Redis7, redistest.Options{})
	rules := runtimeOf(t, "domain: lab\ndescriptors: [{key: user, rate_limit: {unit: month, requests_per_unit: 3}}]")
	s, _ := startCompat(t, onRedis(redis, "RUNTIME_ROOT", rules, "USE_CALENDAR_MONTH_RATE_LIMIT", "true")...)
	codesOf(t, s, 1, "user=a")
	key := redis.Do("KEYS", "lab_user_a_*").([]any)[0].(string)
	start, err := strconv.ParseInt(key[strings.LastIndexByte(key, '_')+1:], 10, 64)
	if at := time.Unix(start, 0).UTC(); err != nil || at.Day() != 1 || at.Hour() != 0 {
		t.Errorf("key %s, want the first of a month at the end", key)
	}
}

func TestMergeDomainConfigJoinsFiles(t *testing.T) {
	t.Parallel()
	root := runtimeOf(t, labRules)
	second := filepath.Join(root, "config", "more.yaml")
	if err := os.WriteFile(second, []byte("domain: lab\ndescriptors: [{key: more, rate_limit: {unit: hour, requests_per_unit: 1}}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	merged, _ := startCompat(t, "RUNTIME_ROOT", root, "MERGE_DOMAIN_CONFIG", "true")
	if got := len(merged.service.Rules().Rules()); got != 6 {
		t.Errorf("%d rules, want 6", got)
	}
	apart, log := startCompat(t, "RUNTIME_ROOT", root)
	if apart.service.Rules() != nil || !strings.Contains(log.String(), "more.yaml") {
		t.Errorf("without the setting the second file is a fault:\n%s", log)
	}
}

func TestRuntimeSettingsNameTheFolder(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "sub", "rules")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "any-name"), []byte(labRules), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, watchRoot := range []string{"true", "false"} {
		s, log := startCompat(t, "RUNTIME_ROOT", root, "RUNTIME_SUBDIRECTORY", "sub", "RUNTIME_APPDIRECTORY", "rules", "RUNTIME_WATCH_ROOT", watchRoot)
		if s.service.Rules() == nil {
			t.Errorf("RUNTIME_WATCH_ROOT=%s: no rules:\n%s", watchRoot, log)
		}
	}
}

func TestAUnixSocketIsInPlaceOfTheGRPCPort(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "rl.sock")
	s, _ := startCompat(t, "GRPC_UDS", path, "RUNTIME_ROOT", runtimeOf(t, labRules), "REDIS_URL", "/nobody/listens")
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answer, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), labRequest("free", "a"))
	if err != nil || answer.GetOverallCode() != pb.RateLimitResponse_OK || s.grpc.Addr().Network() != "unix" {
		t.Errorf("%v, %v on %v, want OK on a unix socket", answer, err, s.grpc.Addr())
	}
}

func TestStatsdIsToldTheCounts(t *testing.T) {
	t.Parallel()
	sink, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	_, port, _ := net.SplitHostPort(sink.Addr().String())
	s, _ := onNewRedis(t, "USE_STATSD", "true", "STATSD_HOST", "127.0.0.1", "STATSD_PORT", port, "STATS_FLUSH_INTERVAL", "10ms", "EXTRA_TAGS", "env:test")
	codesOf(t, s, 1, "user=a")
	conn, err := sink.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	expectLine(t, bufio.NewScanner(conn), "ratelimit.service.rate_limit.lab.user.total_hits", "env=test", ":1|c")
}

// expectLine reads until a line has all the parts.
func expectLine(t *testing.T, from *bufio.Scanner, parts ...string) {
	t.Helper()
	var seen []string
	for from.Scan() {
		has := true
		for _, part := range parts {
			has = has && strings.Contains(from.Text(), part)
		}
		if has {
			return
		}
		if seen = append(seen, from.Text()); len(seen) > 5000 {
			break
		}
	}
	t.Errorf("no line with %q:\n%.2000s", parts, strings.Join(seen, "\n"))
}

func TestDogstatsdIsToldTheCountsWithTags(t *testing.T) {
	t.Parallel()
	sink, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	_, port, _ := net.SplitHostPort(sink.LocalAddr().String())
	s, _ := onNewRedis(t, "USE_DOG_STATSD", "true", "STATSD_HOST", "127.0.0.1", "STATSD_PORT", port, "STATS_FLUSH_INTERVAL", "10ms",
		"USE_DOG_STATSD_MOGRIFIERS", "RULE", "DOG_STATSD_MOGRIFIER_RULE_PATTERN", `^ratelimit\.service\.rate_limit\.(.*)\.(.*)\.(.*)$`,
		"DOG_STATSD_MOGRIFIER_RULE_NAME", "rule.$3", "DOG_STATSD_MOGRIFIER_RULE_TAGS", "domain:$1,key:$2")
	codesOf(t, s, 1, "user=a")
	expectLine(t, bufio.NewScanner(sink.(*net.UDPConn)), "rule.total_hits:1|c", "domain:lab", "key:user")
}

func TestPrometheusIsServedWhereTheOriginalServesIt(t *testing.T) {
	t.Parallel()
	s, _ := onNewRedis(t, "USE_PROMETHEUS", "true", "PROMETHEUS_ADDR", "127.0.0.1:0", "PROMETHEUS_PATH", "/prom")
	codesOf(t, s, 1, "user=a")
	for _, want := range []string{
		`ratelimit_service_rate_limit_total_hits{domain="lab",key1="user"} 1`,
		`rate_limit_decisions_total{domain="lab",outcome="allowed",rule="user"} 1`,
	} {
		if _, text := get(t, s.metrics, "/prom"); !strings.Contains(text, want) {
			t.Errorf("/prom lacks %q:\n%.3000s", want, text)
		}
	}
	quiet, _ := startCompat(t, "USE_PROMETHEUS", "true", "PROMETHEUS_ADDR", "127.0.0.1:0", "DISABLE_STATS", "true", "RUNTIME_ROOT", t.TempDir())
	if quiet.metrics != nil {
		t.Errorf("with DISABLE_STATS something listens on %v", quiet.metrics.Addr())
	}
}

func TestJSONTakesAnyMethodAsTheOriginalDoes(t *testing.T) {
	t.Parallel()
	s, _ := startCompat(t, "RUNTIME_ROOT", runtimeOf(t, labRules))
	const body = `{"domain":"lab","descriptors":[{"entries":[{"key":"free","value":"a"}]}]}`
	for method, want := range map[string]int{"POST": http.StatusOK, "PUT": http.StatusOK, "GET": http.StatusOK} {
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.http.Addr().String()+"/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s /json: %d, want %d", method, response.StatusCode, want)
		}
	}
}

func TestResponseHeadersAreAFlagOfWeirsOwn(t *testing.T) {
	t.Parallel()
	for form, want := range map[string]string{"": "", "counts": "RateLimit-Limit", "draft-11": "RateLimit-Policy"} {
		opts := localOptions(writeRules(t, labRules))
		if form != "" {
			if err := opts.headers.Set(form); err != nil {
				t.Fatal(err)
			}
		}
		s, err := newServer(opts, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, h := range answerOf(t, runServer(t, s), "user=a").GetResponseHeadersToAdd() {
			names = append(names, h.GetKey())
		}
		if got := strings.Join(names, " "); (want == "") != (got == "") || !strings.Contains(strings.ToLower(got), strings.ToLower(want)) {
			t.Errorf("%q: headers %s, want %q among them", form, got, want)
		}
	}
	var form headerForm
	if err := form.Set("all"); err == nil || !strings.Contains(err.Error(), "write draft-11 or counts") {
		t.Errorf("all: %v, want what to write", err)
	}
}
