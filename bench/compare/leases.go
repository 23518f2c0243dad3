package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"weir.dev/weir"
	"weir.dev/weir/lease"
)

// combining is P8: many callers of one key, direct and combined. What is admitted must be
// the same, so after each run the store is asked what is left.
func combining(b *bench) ([]row, error) {
	const patient = 5 * time.Second
	redis, err := newStore(b.redis.addr, patient)
	if err != nil {
		return nil, err
	}
	defer redis.Close()
	tier, err := lease.New(redis, lease.Options{Budget: patient})
	if err != nil {
		return nil, err
	}
	defer tier.Close()
	var rows []row
	var wrong atomic.Int64
	for goroutines, least := range map[int]float64{50: 2, 500: 5} {
		asks := func(name string, store weir.Store) contender {
			return contender{name, func() (sample, error) { return b.askHot(store, redis, goroutines, &wrong) }}
		}
		r, err := interleave(b.rounds, asks("direct", redis), asks("combined", tier))
		if err != nil {
			return nil, err
		}
		rows = append(rows, r.compare("P8", fmt.Sprintf("decisions/s, one key, %d goroutines", goroutines), rate,
			atLeast(least, "x direct"), "combined", "direct"))
	}
	if rows[0].Goal > rows[1].Goal {
		rows[0], rows[1] = rows[1], rows[0]
	}
	return append(rows, row{Figure: "P8", What: "units counted otherwise than admitted"}.judge(atMost(0, ""), float64(wrong.Load()))), nil
}

// askHot is one run about a key of its own, which begins full. To wrong it adds by how
// much what the store has counted differs from what the callers were told.
func (b *bench) askHot(store, redis weir.Store, goroutines int, wrong *atomic.Int64) (sample, error) {
	const most = weir.MaxUnits // a window, in which nothing comes back meanwhile
	ask := weir.Ask{Name: "hot", Key: weir.Text(fmt.Sprint("acme", time.Now().UnixNano())), Limit: weir.Per(most, 24*time.Hour).By(weir.FixedWindow), Cost: 1}
	var admitted atomic.Int64
	s, err := b.load(goroutines, b.slice, []int{0}, func(ctx context.Context, _ int) error {
		d, err := store.Take(ctx, ask)
		if err == nil && !d.Allowed {
			err = errors.New("refused, though the limit cannot be reached")
		}
		admitted.Add(d.Taken)
		return err
	})
	if err != nil {
		return nil, err
	}
	peek := ask
	peek.Cost = 0
	left, err := redis.Take(b.ctx, peek)
	if err != nil {
		return nil, err
	}
	if n := most - left.Remaining - admitted.Load(); n != 0 {
		wrong.Add(max(n, -n))
	}
	return s, nil
}

// leases is P9 and P10, which run in virtual time and so in a test.
func leases(b *bench) ([]row, error) {
	results := filepath.Join(b.dir, "leases.json")
	test := exec.CommandContext(b.ctx, "go", "test", "-count=1", "-run", "^TestLeasesSaveCalls$", "weir.dev/weir/bench", "-args", "-results", results)
	test.WaitDelay = time.Second
	if output, err := test.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, output)
	}
	text, err := os.ReadFile(results)
	if err != nil {
		return nil, err
	}
	var measured []struct {
		Figure, Load              string
		Calls, Ideal, Over, Bound float64
		MostCalls, LeastIdeal     float64
	}
	if err := json.Unmarshal(text, &measured); err != nil {
		return nil, err
	}
	var rows []row
	for _, m := range measured {
		what := ", leases of 50, 8 uneven processes, " + m.Load
		rows = append(rows,
			row{Figure: m.Figure, What: "store calls a request" + what}.judge(atMost(m.MostCalls, ""), m.Calls),
			row{Figure: m.Figure, What: "admitted, of the ideal" + what}.judge(atLeast(m.LeastIdeal, ""), m.Ideal),
			row{Figure: m.Figure, What: "units above burst + rate x time" + what}.judge(atMost(m.Bound, ", as documented"), m.Over))
	}
	return rows, nil
}
