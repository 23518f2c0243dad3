package lease_test

import (
	"context"
	"testing"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/internal/redistest"
	"weir.dev/weir/lease"
	"weir.dev/weir/memstore"
	"weir.dev/weir/redisstore"
	"weir.dev/weir/storetest"
)

// settled is a store that peeks when no block is on its way: its units are charged already,
// and not held yet.
type settled struct{ *lease.Store }

func (s settled) Take(ctx context.Context, ask weir.Ask) (weir.Decision, error) {
	if ask.Cost == 0 {
		s.Settle()
	}
	return s.Store.Take(ctx, ask)
}

func TestStoreKeepsTheContract(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]lease.Options{
		"combining only": {},
		"one instance":   {Block: 1000, Instances: 1, Expiry: time.Second},
		"few keys":       {Block: 50, Instances: 4, MaxKeys: 3, Expiry: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, storetest.Subject{New: func(t *testing.T) weir.Store {
				memory, err := memstore.New(memstore.Options{})
				if err != nil {
					t.Fatal(err)
				}
				return settled{newStore(t, memory, opts)}
			}})
		})
	}
}

// Without blocks: on a machine that stands still for as long as a block lives, units expire,
// which a suite that counts to the unit rightly calls lost.
func TestStoreKeepsTheContractInFrontOfRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Redis7, redistest.Options{})
	const budget = 10 * time.Second // a slow machine is not what is tested here
	storetest.Run(t, storetest.Subject{New: func(t *testing.T) weir.Store {
		redis, err := redisstore.New(redisstore.Options{Addrs: []string{server.Addr}, Budget: budget})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { redis.Close() })
		return newStore(t, redis, lease.Options{Budget: budget})
	}})
}
