package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// serviceRules limits each value of three keys to 60000 a minute, in fixed windows.
const serviceRules = `domain: bench
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 60000}
  - key: address
    rate_limit: {unit: minute, requests_per_unit: 60000}
  - key: route
    rate_limit: {unit: minute, requests_per_unit: 60000}
`

var descriptorKeys = []string{"user", "address", "route"}

// service is a child process that answers the rate limit protocol.
type service struct {
	name    string
	process *exec.Cmd
	conns   []*grpc.ClientConn
}

// buildWeir builds weir, once.
func buildWeir(b *bench) (binary string, err error) {
	binary = filepath.Join(b.dir, "weir")
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	if out, err := exec.CommandContext(b.ctx, "go", "build", "-o", binary, "weir.dev/weir/server/cmd/weir").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building weir: %w\n%s", err, out)
	}
	return binary, nil
}

// startWeir starts weir itself.
func startWeir(b *bench) (*service, error) {
	binary, err := buildWeir(b)
	if err != nil {
		return nil, err
	}
	rules := filepath.Join(b.dir, "rules.yaml")
	if err := os.WriteFile(rules, []byte(serviceRules), 0o600); err != nil {
		return nil, err
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	return b.startService("weir", addr, exec.CommandContext(b.ctx, binary, "serve", "--config", rules, "--store", "redis://"+b.redis.addr+"?budget="+longBudget.String(),
		"--grpc", addr, "--http", "127.0.0.1:0", "--debug", "127.0.0.1:0", "--log-level", "error"))
}

// startCompat starts weir in the place of envoyproxy/ratelimit: the same rules by its
// counters, one INCRBY and one EXPIRE a descriptor.
func startCompat(b *bench) (*service, error) {
	binary, err := buildWeir(b)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(b.dir, "compat", "config")
	if err := os.MkdirAll(config, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(config, "rules.yaml"), []byte(serviceRules), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(b.ctx, binary, "serve", "--compat")
	cmd.Env = append(os.Environ(), "RUNTIME_ROOT="+b.dir, "RUNTIME_SUBDIRECTORY=compat", "RUNTIME_WATCH_ROOT=false",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+b.redis.addr, "DISABLE_STATS=true", "USE_STATSD=false", "LOG_LEVEL=error")
	var addr string
	for name, prefix := range map[string]string{"grpc": "GRPC_", "http": "", "debug": "DEBUG_"} {
		free, err := freeAddr()
		if err != nil {
			return nil, err
		}
		host, port, err := net.SplitHostPort(free)
		if err != nil {
			return nil, err
		}
		cmd.Env = append(cmd.Env, prefix+"HOST="+host, prefix+"PORT="+port)
		if name == "grpc" {
			addr = free
		}
	}
	return b.startService("weir, as envoyproxy/ratelimit", addr, cmd)
}

// startPeer starts this program again as one of the peers in peer.go.
func startPeer(b *bench, kind string) (*service, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(b.ctx, self, servePeer, kind, addr)
	cmd.Env = append(os.Environ(), redisVariable+"="+b.redis.addr)
	return b.startService(kind, addr, cmd)
}

// startService starts cmd and waits until it answers.
func (b *bench) startService(name, addr string, cmd *exec.Cmd) (*service, error) {
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &service{name: name, process: cmd}
	for range 2 { // as a proxy of two workers has
		c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			s.stop()
			return nil, err
		}
		s.conns = append(s.conns, c)
	}
	ctx, cancel := context.WithTimeout(b.ctx, 10*time.Second)
	defer cancel()
	for _, c := range s.conns {
		if _, err := rls.NewRateLimitServiceClient(c).ShouldRateLimit(ctx, question(0, 1), grpc.WaitForReady(true)); err != nil {
			s.stop()
			return nil, fmt.Errorf("%s does not answer: %w", name, err)
		}
	}
	return s, nil
}

func (s *service) stop() {
	for _, c := range s.conns {
		c.Close()
	}
	s.process.Process.Kill()
	s.process.Wait()
}

// question is a request about value i of so many descriptors.
func question(i, descriptors int) *rls.RateLimitRequest {
	r := &rls.RateLimitRequest{Domain: "bench"}
	for _, key := range descriptorKeys[:descriptors] {
		r.Descriptors = append(r.Descriptors, &ratelimit.RateLimitDescriptor{
			Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: key, Value: weirUser(i)}},
		})
	}
	return r
}

// asking returns a contender: a service that is asked with so many requests in flight,
// about 10k values in turn.
func (b *bench) asking(s *service, inFlight int, questions []*rls.RateLimitRequest) contender {
	return contender{s.name, func() (sample, error) {
		if _, err := b.ask(s, inFlight, questions, b.slice/5); err != nil { // warm
			return nil, err
		}
		return b.ask(s, inFlight, questions, b.slice)
	}}
}

func (b *bench) ask(s *service, inFlight int, questions []*rls.RateLimitRequest, lasting time.Duration) (sample, error) {
	var wg sync.WaitGroup
	var stop atomic.Bool
	errs, counts := make([]error, inFlight), make([]int, inFlight)
	scripts, err1 := b.redis.info("commandstats", "cmdstat_evalsha:calls=")
	redisBefore, err2 := b.redis.cpu()
	before, err3 := cpuOf(s.process.Process.Pid)
	begin := time.Now()
	for g := range inFlight {
		client := rls.NewRateLimitServiceClient(s.conns[g%len(s.conns)])
		wg.Go(func() {
			for at := g * len(questions) / inFlight; !stop.Load(); at++ {
				answer, err := client.ShouldRateLimit(b.ctx, questions[at%len(questions)])
				if err == nil && answer.OverallCode != rls.RateLimitResponse_OK {
					err = errRefused
				}
				if err != nil {
					errs[g] = err
					return
				}
				counts[g]++
			}
		})
	}
	time.Sleep(lasting)
	stop.Store(true)
	wg.Wait()
	elapsed := time.Since(begin)
	after, err4 := cpuOf(s.process.Process.Pid)
	redisAfter, err5 := b.redis.cpu()
	scriptsAfter, err6 := b.redis.info("commandstats", "cmdstat_evalsha:calls=")
	if err := errors.Join(append(errs, err1, err2, err3, err4, err5, err6)...); err != nil {
		return nil, err
	}
	n := 0
	for _, c := range counts {
		n += c
	}
	return sample{
		rate: float64(n) / elapsed.Seconds(), serverCPU: perOp(after-before, n), redisCPU: perOp(redisAfter-redisBefore, n),
		calls: float64(scriptsAfter-scripts) / float64(n),
	}, nil
}

func questionsOf(descriptors int) []*rls.RateLimitRequest {
	questions := make([]*rls.RateLimitRequest, 10_000)
	for i := range questions {
		questions[i] = question(i, descriptors)
	}
	return questions
}

// serviceCPU is P15: the service beside a server that answers the protocol and does nothing.
func serviceCPU(b *bench) ([]row, error) {
	ours, err := startWeir(b)
	if err != nil {
		return nil, err
	}
	defer ours.stop()
	idle, err := startPeer(b, peerNoop)
	if err != nil {
		return nil, err
	}
	defer idle.stop()
	var rows []row
	questions := questionsOf(1)
	for _, inFlight := range []int{50, 200} {
		r, err := interleave(b.rounds, b.asking(ours, inFlight, questions), b.asking(idle, inFlight, questions))
		if err != nil {
			return nil, err
		}
		with := fmt.Sprintf(", one descriptor, 10k values, %d in flight", inFlight)
		rows = append(rows,
			r.compare("P15", "service CPU a request"+with, serverCPU, atMost(1.8, "x a no-op grpc-go server"), ours.name, idle.name),
			r.compare("P15", "requests/s"+with, rate, atLeast(0.55, "x a no-op grpc-go server"), ours.name, idle.name))
	}
	return rows, nil
}

// serviceRedisCPU is P17: what a request costs Redis, against INCRBY and EXPIRE for each
// descriptor in one pipeline a request, as the original sends them.
func serviceRedisCPU(b *bench) ([]row, error) {
	ours, err := startWeir(b)
	if err != nil {
		return nil, err
	}
	defer ours.stop()
	compat, err := startCompat(b)
	if err != nil {
		return nil, err
	}
	defer compat.stop()
	pooled, err := startPeer(b, peerPooled)
	if err != nil {
		return nil, err
	}
	defer pooled.stop()
	merged, err := startPeer(b, peerMerged)
	if err != nil {
		return nil, err
	}
	defer merged.stop()
	var rows []row
	for _, descriptors := range []int{1, 3} {
		questions := questionsOf(descriptors)
		r, err := interleave(b.rounds, b.asking(ours, 50, questions), b.asking(compat, 50, questions), b.asking(pooled, 50, questions), b.asking(merged, 50, questions))
		if err != nil {
			return nil, err
		}
		with := fmt.Sprintf(", descriptors: %d, 50 in flight", descriptors)
		rows = append(rows,
			r.value("P17", "script calls a request"+with, calls, atMost(1.001, ""), ours.name),
			r.compare("P17", "Redis CPU a request"+with, redisCPU, atMost(0.75, "x INCRBY + EXPIRE a descriptor"), ours.name, pooled.name).
				beside(r, redisCPU, merged.name),
			r.compare("P17", "Redis CPU a request, by its counters"+with, redisCPU, atMost(0.75, "x INCRBY + EXPIRE a descriptor"), compat.name, pooled.name).
				beside(r, redisCPU, merged.name))
	}
	return rows, nil
}
