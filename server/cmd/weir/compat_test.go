package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"weir.dev/weir/internal/redistest"
	"weir.dev/weir/redisstore"
	"weir.dev/weir/server/internal/testca"
	"weir.dev/weir/server/settings"
)

const labRules = `
domain: lab
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 3}
  - key: user
    value: vip
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 5}
  - key: free
    rate_limit: {unlimited: true}
  - key: nested
    descriptors:
      - key: sub
        value: x
        quota_mode: true
        rate_limit: {unit: second, requests_per_unit: 1}
  - key: own
    rate_limit: {unit: year, requests_per_unit: 1, algorithm: gcra}
`

// runtimeOf makes a RUNTIME_ROOT with one file of rules.
func runtimeOf(t *testing.T, text string) (root string) {
	t.Helper()
	root = t.TempDir()
	writeConfig(t, root, text)
	return root
}

func writeConfig(t *testing.T, root, text string) {
	t.Helper()
	dir := filepath.Join(root, "config")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "lab.yaml"), []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// compatSettings are for a service on ports of the kernel's choice, with what the pairs of
// names and values add.
func compatSettings(t *testing.T, pairs ...string) *settings.Settings {
	t.Helper()
	environment := map[string]string{
		"HOST": "127.0.0.1", "GRPC_HOST": "127.0.0.1", "DEBUG_HOST": "127.0.0.1", "PORT": "0", "GRPC_PORT": "0", "DEBUG_PORT": "0",
		"USE_STATSD": "false",
	}
	for i := 0; i < len(pairs); i += 2 {
		environment[pairs[i]] = pairs[i+1]
	}
	set, _, err := settings.Load(func(name string) (string, bool) { v, ok := environment[name]; return v, ok })
	if err != nil {
		t.Fatal(err)
	}
	return &set
}

// startCompat runs a service in compat until the test ends.
func startCompat(t *testing.T, pairs ...string) (*running, *lines) {
	t.Helper()
	log := &lines{}
	s, err := newServer(compatOptions(compatSettings(t, pairs...)), slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return runServer(t, s), log
}

// onRedis are settings for a server.
func onRedis(s *redistest.Server, more ...string) []string {
	return append([]string{"REDIS_SOCKET_TYPE", "tcp", "REDIS_URL", s.Addr}, more...)
}

// askLab asks about one entry, and returns the answer's code.
func askLab(t *testing.T, s *running, key, value string) string {
	t.Helper()
	answer, err := pb.NewRateLimitServiceClient(dial(t, s.grpc)).ShouldRateLimit(t.Context(), labRequest(key, value))
	if err != nil {
		return err.Error()
	}
	return answer.GetOverallCode().String()
}

func labRequest(key, value string) *pb.RateLimitRequest {
	return &pb.RateLimitRequest{Domain: "lab", Descriptors: []*common.RateLimitDescriptor{{
		Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}},
	}}}
}

func TestCompatCountsInMemoryAsOnRedis(t *testing.T) {
	t.Parallel()
	s, _ := startCompat(t, "BACKEND_TYPE", "memory", "RUNTIME_ROOT", runtimeOf(t, labRules))
	request := labRequest("user", "a")
	request.HitsAddend = 5 // is denied, and counted: nothing is left for a smaller one
	answer, err := pb.NewRateLimitServiceClient(dial(t, s.grpc)).ShouldRateLimit(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{answer.GetOverallCode().String(), askLab(t, s, "user", "a"), askLab(t, s, "user", "b"), askLab(t, s, "own", "a"), askLab(t, s, "own", "a")}
	if want := []string{"OVER_LIMIT", "OVER_LIMIT", "OK", "OK", "OVER_LIMIT"}; !slices.Equal(got, want) {
		t.Errorf("answers %v, want %v", got, want)
	}
}

func TestCompatCountsOnTheOriginalsKeys(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Redis7, redistest.Options{})
	s, _ := startCompat(t, onRedis(redis, "RUNTIME_ROOT", runtimeOf(t, labRules), "CACHE_KEY_PREFIX", "rl:")...)
	var got []string
	for range 4 {
		got = append(got, askLab(t, s, "user", "a"))
	}
	if want := []string{"OK", "OK", "OK", "OVER_LIMIT"}; !slices.Equal(got, want) {
		t.Errorf("answers %v, want %v", got, want)
	}
	keys, _ := redis.Do("KEYS", "*").([]any)
	if len(keys) != 1 || !strings.HasPrefix(keys[0].(string), "rl:lab_user_a_") {
		t.Errorf("keys %v, want one that begins with rl:lab_user_a_", keys)
	}
	if got := []string{askLab(t, s, "own", "a"), askLab(t, s, "own", "a")}; !slices.Equal(got, []string{"OK", "OVER_LIMIT"}) {
		t.Errorf("a rule with an algorithm of its own answers %v, want OK and OVER_LIMIT", got)
	}
}

func TestCompatDebugListenerShowsRulesAndCountsAsTheOriginal(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Redis7, redistest.Options{})
	s, _ := startCompat(t, onRedis(redis, "RUNTIME_ROOT", runtimeOf(t, labRules))...)
	askLab(t, s, "user", "a")
	_, dump := get(t, s.debug, "/rlconfig")
	want := `lab.user: unit=HOUR requests_per_unit=3, shadow_mode: false, quota_mode: false
lab.user_vip: unit=MINUTE requests_per_unit=5, shadow_mode: true, quota_mode: false
lab.free: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false
lab.nested.sub_x: unit=SECOND requests_per_unit=1, shadow_mode: false, quota_mode: true
lab.own: unit=YEAR requests_per_unit=1, shadow_mode: false, quota_mode: false
`
	if dump != want {
		t.Errorf("/rlconfig:\n%s\nwant\n%s", dump, want)
	}
	if _, index := get(t, s.debug, "/"); !strings.Contains(index, "/stats") || !strings.Contains(index, "/rlconfig") {
		t.Errorf("/ says %q, want what there is to see", index)
	}
	if _, counts := get(t, s.debug, "/stats"); !strings.Contains(counts, "ratelimit.service.rate_limit.lab.user.total_hits: 1\n") {
		t.Errorf("/stats lacks the hit:\n%s", counts)
	}
	if code, _ := get(t, s.debug, "/debug/pprof/goroutine"); code != http.StatusOK {
		t.Errorf("pprof: %d, want 200", code)
	}
}

func TestCompatServesWithoutAGoodConfiguration(t *testing.T) {
	t.Parallel()
	root := runtimeOf(t, "domain: lab\nrules: 5\n")
	s, log := startCompat(t, "RUNTIME_ROOT", root)
	if got := askLab(t, s, "user", "a"); !strings.Contains(got, "no rate limit configuration loaded") {
		t.Errorf("answer %q, want that no configuration is loaded", got)
	}
	if code, _ := get(t, s.http, "/healthcheck"); code != http.StatusOK {
		t.Errorf("/healthcheck %d, want 200", code)
	}
	if !strings.Contains(log.String(), "lab.yaml:2") {
		t.Errorf("the log should name the file and the line:\n%s", log)
	}
	writeConfig(t, root, labRules)
	until(t, "answers by the mended rules", func() bool { return askLab(t, s, "free", "a") == "OK" })
}

func TestCompatHealthWaitsForRulesWhereASettingSaysSo(t *testing.T) {
	t.Parallel()
	s, _ := startCompat(t, "RUNTIME_ROOT", t.TempDir(), "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true")
	expectHealth(t, s, healthpb.HealthCheckResponse_NOT_SERVING, http.StatusInternalServerError)

	redis := redistest.Start(t, redistest.Redis7, redistest.Options{})
	s, _ = startCompat(t, onRedis(redis, "RUNTIME_ROOT", runtimeOf(t, labRules), "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true")...)
	expectHealth(t, s, healthpb.HealthCheckResponse_SERVING, http.StatusOK)

	s, _ = startCompat(t, "CONFIG_TYPE", "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL", "127.0.0.1:1")
	expectHealth(t, s, healthpb.HealthCheckResponse_NOT_SERVING, http.StatusInternalServerError)
}

func expectHealth(t *testing.T, s *running, status healthpb.HealthCheckResponse_ServingStatus, code int) {
	t.Helper()
	for _, name := range healthNames {
		got, err := healthpb.NewHealthClient(dial(t, s.grpc)).Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		if err != nil || got.GetStatus() != status {
			t.Errorf("health of %q: %v, %v, want %v", name, got, err, status)
		}
	}
	if got, _ := get(t, s.http, "/healthcheck"); got != code {
		t.Errorf("/healthcheck %d, want %d", got, code)
	}
}

func TestHealthFollowsRedisOnlyWhereASettingSaysSo(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Redis7, redistest.Options{})
	redis.Kill()
	rules := runtimeOf(t, labRules)
	plain, _ := startCompat(t, onRedis(redis, "RUNTIME_ROOT", rules)...)
	strict, _ := startCompat(t, onRedis(redis, "RUNTIME_ROOT", rules, "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "true")...)
	healthy := func() bool { // nobody asks about limits meanwhile
		if code, _ := get(t, plain.http, "/healthcheck"); code != http.StatusOK {
			t.Fatalf("/healthcheck without the setting: %d, want 200", code)
		}
		code, _ := get(t, strict.http, "/healthcheck")
		return code == http.StatusOK
	}
	if healthy() {
		t.Error("healthy at a start without Redis")
	}
	redis.Restart()
	until(t, "healthy with Redis there", healthy)
	redis.Kill()
	until(t, "ill with Redis away", func() bool { return !healthy() })
	redis.Restart()
	until(t, "healthy with Redis back", healthy)
}

func TestCompatStartsWithoutRedis(t *testing.T) {
	t.Parallel()
	s, _ := startCompat(t, "REDIS_URL", filepath.Join(t.TempDir(), "none.sock"), "REDIS_TIMEOUT", "20ms", "RUNTIME_ROOT", runtimeOf(t, labRules))
	if got := askLab(t, s, "free", "a"); got != "OK" {
		t.Errorf("a rule that needs no Redis: %s, want OK", got)
	}
	if got := askLab(t, s, "user", "a"); got == "OK" || got == "OVER_LIMIT" {
		t.Errorf("a rule that needs it: %s, want an error", got)
	}
}

func TestEachWayToRedisOfTheOriginalWorks(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	plain := redistest.Start(t, redistest.Redis7, redistest.Options{Config: []string{"unixsocket " + filepath.Join(dir, "r.sock")}})
	locked := redistest.Start(t, redistest.Redis7, redistest.Options{TLS: true, Password: true})
	cluster := redistest.SharedCluster(t, redistest.Redis7)
	sentinel := redistest.StartSentinel(t, redistest.Redis7, 1)
	for name, pairs := range map[string][]string{
		"tcp":      {"REDIS_SOCKET_TYPE", "tcp", "REDIS_URL", plain.Addr},
		"database": {"REDIS_SOCKET_TYPE", "tcp", "REDIS_URL", "redis://" + plain.Addr + "/3"},
		"unix":     {"REDIS_URL", filepath.Join(dir, "r.sock")},
		"TLS and password": {"REDIS_SOCKET_TYPE", "tcp", "REDIS_URL", locked.Addr, "REDIS_TLS", "true", "REDIS_TLS_CACERT", locked.CACert,
			"REDIS_AUTH", locked.Password},
		"TLS, user and another name": {"REDIS_SOCKET_TYPE", "tcp", "REDIS_URL", strings.Replace(locked.Addr, "127.0.0.1", "localhost", 1), "REDIS_TLS", "true",
			"REDIS_TLS_CACERT", locked.CACert, "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "true", "REDIS_AUTH", "default:" + locked.Password},
		"cluster":  {"REDIS_TYPE", "CLUSTER", "REDIS_URL", strings.Join(cluster.Addrs(), ",")},
		"sentinel": {"REDIS_TYPE", "SENTINEL", "REDIS_URL", sentinel.MasterName + "," + sentinel.Sentinels[0].Addr},
		"per second": {"REDIS_URL", "/nobody/listens", "REDIS_PERSECOND", "true", "REDIS_PERSECOND_SOCKET_TYPE", "tcp",
			"REDIS_PERSECOND_URL", plain.Addr},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := strings.ReplaceAll("domain: lab\ndescriptors: [{key: user, rate_limit: {unit: UNIT, requests_per_unit: 1000}}]", "UNIT",
				map[bool]string{true: "second", false: "year"}[name == "per second"])
			s, _ := startCompat(t, append(pairs, "RUNTIME_ROOT", runtimeOf(t, rules))...)
			until(t, "an answer", func() bool { return askLab(t, s, "user", "a") == "OK" })
		})
	}
}

func TestTheOtherNameOfACertificateIsRefusedAndSoIsAnotherAuthority(t *testing.T) {
	t.Parallel()
	locked := redistest.Start(t, redistest.Redis7, redistest.Options{TLS: true})
	dir := t.TempDir()
	issue(t, testca.New(t), dir, "other")
	rules := runtimeOf(t, labRules)
	for _, tt := range []struct{ host, ca, skip string }{
		{"localhost", locked.CACert, "false"},
		{"127.0.0.1", filepath.Join(dir, "ca.crt"), "true"},
	} {
		s, _ := startCompat(t, "REDIS_SOCKET_TYPE", "tcp", "REDIS_URL", strings.Replace(locked.Addr, "127.0.0.1", tt.host, 1), "REDIS_TLS", "true",
			"REDIS_TLS_CACERT", tt.ca, "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", tt.skip, "RUNTIME_ROOT", rules)
		if got := askLab(t, s, "user", "a"); got == "OK" {
			t.Errorf("%+v: OK, want an error", tt)
		}
	}
}

func TestRedisSettingsBecomeOptions(t *testing.T) {
	t.Parallel()
	options := func(pairs ...string) redisstore.Options {
		t.Helper()
		set := compatSettings(t, pairs...)
		opts, err := redisOptions(&set.Redis, &set.RedisUse)
		if err != nil {
			t.Fatal(err)
		}
		return opts
	}
	if got := options(); got.Addrs[0] != "/var/run/nutcracker/ratelimit.sock:0" || got.Dial == nil || got.Budget != time.Second || !got.RESP2 || got.TLS != nil {
		t.Errorf("by default %+v, want a unix socket, a budget of 1 s, RESP2 and no TLS", got)
	}
	if got := options("REDIS_TIMEOUT", "30ms").Budget; got != 30*time.Millisecond {
		t.Errorf("budget %v, want 30ms", got)
	}
	if got := options("REDIS_TIMEOUT", "0").Budget; got != time.Second {
		t.Errorf("budget %v, want 1s", got)
	}
	if got := options("REDIS_AUTH", "p"); got.Username != "" || got.Password != "p" {
		t.Errorf("auth p: %q %q", got.Username, got.Password)
	}
	if got := options("REDIS_AUTH", "u:p:q"); got.Username != "u" || got.Password != "p:q" {
		t.Errorf("auth u:p:q: %q %q", got.Username, got.Password)
	}
	got := options("REDIS_TYPE", "SENTINEL", "REDIS_URL", "main,a:1,b:2", "REDIS_SENTINEL_AUTH", "su:sp", "REDIS_AUTH", "p")
	if got.Master != "main" || !slices.Equal(got.Addrs, []string{"a:1", "b:2"}) || got.SentinelUsername != "su" || got.SentinelPassword != "sp" || got.Password != "p" {
		t.Errorf("sentinel: %+v", got)
	}
	got = options("REDIS_TYPE", "CLUSTER", "REDIS_URL", "a:1,b:2")
	if !got.Cluster || !slices.Equal(got.Addrs, []string{"a:1", "b:2"}) {
		t.Errorf("cluster: %+v", got)
	}
	got = options("REDIS_SOCKET_TYPE", "tcp", "REDIS_URL", "redis://u:p@h:1/2")
	if !slices.Equal(got.Addrs, []string{"h:1"}) || got.Username != "u" || got.Password != "p" || got.DB != 2 {
		t.Errorf("redis://: %+v", got)
	}
}

func TestConnectionsEndAtTheirAge(t *testing.T) {
	t.Parallel()
	s, _ := startCompat(t, "RUNTIME_ROOT", t.TempDir(), "GRPC_MAX_CONNECTION_AGE", "50ms", "GRPC_MAX_CONNECTION_AGE_GRACE", "50ms")
	conn, err := net.Dial("tcp", s.grpc.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
	var got bytes.Buffer
	if _, err := got.ReadFrom(conn); err != nil {
		t.Errorf("reading to the end of the connection: %v", err)
	}
	if !strings.Contains(got.String(), "max_age") {
		t.Errorf("the connection ended without max_age: %q", got.String())
	}
}

func TestCompatLogHasTheOriginalsFields(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := newCompatLogger(&out, settings.Log{Level: "warn", JSON: true})
	log.Info("unseen")
	log.Warn("seen", "a", 1)
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if _, err := time.Parse(time.RFC3339Nano, got["@timestamp"].(string)); err != nil || got["@message"] != "seen" || got["level"] != "warning" || got["a"] != 1.0 {
		t.Errorf("got %s", out.String())
	}
	out.Reset()
	log.Warn("waits", "retry_in", 3*time.Second)
	if !strings.Contains(out.String(), `"retry_in":"3s"`) {
		t.Errorf("got %s, want a duration with its unit", out.String())
	}
	out.Reset()
	newCompatLogger(&out, settings.Log{Level: "trace"}).Debug("text")
	if !strings.Contains(out.String(), `level=DEBUG msg=text`) {
		t.Errorf("got %s", out.String())
	}
}

func TestCompatNamesTheSettingOfAnAddressThatIsTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	for _, tt := range []struct{ setting, value, want string }{
		{"PORT", port, "\nHOST and PORT \"127.0.0.1:"},
		{"GRPC_PORT", port, "\nGRPC_HOST and GRPC_PORT \"127.0.0.1:"},
		{"DEBUG_PORT", port, "\nDEBUG_HOST and DEBUG_PORT \"127.0.0.1:"},
		{"GRPC_UDS", filepath.Join(t.TempDir(), "none", "weir.sock"), "\nGRPC_UDS \"unix:"},
	} {
		opts := compatOptions(compatSettings(t, tt.setting, tt.value, "RUNTIME_ROOT", runtimeOf(t, labRules)))
		if _, err := newServer(opts, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains("\n"+err.Error(), tt.want) {
			t.Errorf("%s=%s: got %v, want an error that begins with %q", tt.setting, tt.value, err, tt.want)
		}
	}
}

func TestCompatIsToldTheNumberOfInstancesByItsEnvironment(t *testing.T) {
	t.Parallel()
	const rules = "domain: lab\ndescriptors:\n- key: a\n  on_store_error: local\n  rate_limit: {unit: hour, requests_per_unit: 4}\n"
	p := startProgram(t, "ratelimit", "LOG_LEVEL=info", "USE_STATSD=false", "DEBUG_HOST=127.0.0.1", "PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=127.0.0.1:1", "RUNTIME_ROOT="+runtimeOf(t, rules), "WEIR_INSTANCES=2")
	conn, err := grpc.NewClient(p.addresses["grpc"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var got []string
	for range 3 {
		answer, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), labRequest("a", "x"))
		if err != nil {
			t.Fatalf("%v\n%s", err, p.log)
		}
		got = append(got, answer.GetOverallCode().String())
	}
	if want := []string{"OK", "OK", "OVER_LIMIT"}; !slices.Equal(got, want) {
		t.Errorf("without Redis, and one of two: got %v, want %v", got, want)
	}
	environment := map[string]string{"WEIR_INSTANCES": "0", "USE_STATSD": "false"}
	lookup := func(name string) (string, bool) { v, ok := environment[name]; return v, ok }
	if err := serveCompat(t.Context(), io.Discard, lookup); err == nil || !strings.HasPrefix(err.Error(), "WEIR_INSTANCES: ") {
		t.Errorf("got %v, want an error about WEIR_INSTANCES", err)
	}
}

func TestCompatSaysThatNoRulesAreInForce(t *testing.T) {
	t.Parallel()
	root := runtimeOf(t, "domain: lab\nrules: 5\n")
	_, log := startCompat(t, "RUNTIME_ROOT", root)
	if text := log.String(); !strings.Contains(text, "none are in force") || strings.Contains(text, "those before") {
		t.Errorf("the log says\n%s\nwant that none are in force", text)
	}
}

func TestAStoreThatIsAwayFromTheStartIsInTheLog(t *testing.T) {
	t.Parallel()
	const away = "127.0.0.1:1" // where nobody listens
	_, compat := startCompat(t, "RUNTIME_ROOT", runtimeOf(t, labRules), "REDIS_SOCKET_TYPE", "tcp", "REDIS_URL", away)
	opts := localOptions(writeRules(t, shopRules))
	opts.store = "redis://" + away
	_, own := start(t, opts)
	for mode, log := range map[string]*lines{"compat": compat, "weir's own mode": own} {
		until(t, mode+": the log says that the store is away", func() bool {
			return strings.Contains(log.String(), "has not answered since the start") && strings.Contains(log.String(), "refused")
		})
	}
	if !strings.Contains(compat.String(), "redis="+away) {
		t.Errorf("the log says\n%s\nwant where Redis is", compat)
	}
}

func TestTheLogSaysWhereRedisIsWithoutItsPassword(t *testing.T) {
	t.Parallel()
	set := compatSettings(t, "REDIS_SOCKET_TYPE", "tcp", "REDIS_URL", "redis://user:secret@r1:6379/2",
		"REDIS_PERSECOND", "true", "REDIS_PERSECOND_URL", "/run/second.sock", "REDIS_AUTH", "secret")
	if got, want := compatStoreNames(set), []any{"redis", "redis://r1:6379/2", "redis_persecond", "/run/second.sock"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTheProgramsNameChoosesTheMode(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ line, want []string }{
		{[]string{"/bin/ratelimit"}, []string{"serve", "--compat"}},
		{[]string{"weir", "serve", "--compat"}, []string{"serve", "--compat"}},
		{[]string{"weir"}, nil},
		{nil, nil},
	} {
		if got := arguments(tt.line); !slices.Equal(got, tt.want) {
			t.Errorf("%q becomes %q, want %q", tt.line, got, tt.want)
		}
	}
	if out, status := commandStatus(t, "serve", "--compat", "--grpc", ":1"); status != 1 || !strings.Contains(out, "--grpc: with --compat") {
		t.Errorf("a flag beside --compat: status %d, want 1:\n%s", status, out)
	}
}

func TestCompatCanBeAskedForByTheEnvironment(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{"true": "", "maybe": "WEIR_COMPAT"} {
		flags := newServeCommand().Flags()
		err := setFromEnvironment(flags, func(name string) (string, bool) {
			v, ok := map[string]string{"WEIR_COMPAT": value, "WEIR_STORE": "redis://h"}[name]
			return v, ok
		})
		store, _ := flags.GetString("store")
		compat, _ := flags.GetBool("compat")
		switch {
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want an error with %s", value, err, want)
		case want == "" && (err != nil || !compat || store != "memory:"):
			t.Errorf("%s: compat %t, store %s, %v, want compat and no flag from the environment", value, compat, store, err)
		}
	}
}
