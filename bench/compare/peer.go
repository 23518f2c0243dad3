package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"google.golang.org/grpc"
)

// The peers of the service, which this program runs as when its first argument is
// servePeer, then the peer and the address to listen on.
const (
	servePeer  = "serve-peer"
	peerNoop   = "no-op server"
	peerPooled = "INCRBY + EXPIRE, pooled connections (go-redis)"
	peerMerged = "INCRBY + EXPIRE, shared connection (rueidis)"

	redisVariable = "BENCH_REDIS" // the address of Redis, for those that count
)

// peer answers that all is well, after it has counted, if it counts.
type peer struct {
	rls.UnimplementedRateLimitServiceServer
	count func(ctx context.Context, keys []string) ([]int64, error)
}

func runPeer(kind, addr string) error {
	p := &peer{}
	switch kind {
	case peerNoop:
	case peerPooled:
		client := redis.NewClient(&redis.Options{Addr: os.Getenv(redisVariable)})
		p.count = func(ctx context.Context, keys []string) ([]int64, error) { return countPooled(ctx, client, keys) }
	case peerMerged:
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{os.Getenv(redisVariable)}, DisableCache: true})
		if err != nil {
			return err
		}
		p.count = func(ctx context.Context, keys []string) ([]int64, error) { return countMerged(ctx, client, keys) }
	default:
		return fmt.Errorf("no peer %q", kind)
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	rls.RegisterRateLimitServiceServer(server, p)
	return server.Serve(listener)
}

// ShouldRateLimit answers OK for each descriptor.
func (p *peer) ShouldRateLimit(ctx context.Context, r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	answer := &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}
	for range r.Descriptors {
		answer.Statuses = append(answer.Statuses, &rls.RateLimitResponse_DescriptorStatus{Code: rls.RateLimitResponse_OK})
	}
	if p.count == nil {
		return answer, nil
	}
	keys := make([]string, len(r.Descriptors))
	window := time.Now().Unix() / 60 * 60
	for i, d := range r.Descriptors {
		keys[i] = fmt.Sprintf("%s_%s_%s_%d", r.Domain, d.Entries[0].Key, d.Entries[0].Value, window)
	}
	counts, err := p.count(ctx, keys)
	if err != nil {
		return nil, err
	}
	for i, n := range counts {
		answer.Statuses[i].LimitRemaining = uint32(60000 - min(n, 60000))
	}
	return answer, nil
}

func countPooled(ctx context.Context, client *redis.Client, keys []string) ([]int64, error) {
	pipe := client.Pipeline()
	counts := make([]*redis.IntCmd, len(keys))
	for i, key := range keys {
		counts[i] = pipe.IncrBy(ctx, key, 1)
		pipe.Expire(ctx, key, time.Minute)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	numbers := make([]int64, len(keys))
	for i, c := range counts {
		numbers[i] = c.Val()
	}
	return numbers, nil
}

func countMerged(ctx context.Context, client rueidis.Client, keys []string) ([]int64, error) {
	commands := make([]rueidis.Completed, 0, 2*len(keys))
	for _, key := range keys {
		commands = append(commands, client.B().Incrby().Key(key).Increment(1).Build(), client.B().Expire().Key(key).Seconds(60).Build())
	}
	numbers := make([]int64, len(keys))
	for i, reply := range client.DoMulti(ctx, commands...) {
		n, err := reply.AsInt64()
		if err != nil {
			return nil, err
		}
		if i%2 == 0 {
			numbers[i/2] = n
		}
	}
	return numbers, nil
}
