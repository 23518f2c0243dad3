package simbench

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"weir.dev/weir/concurrency"
)

// BenchmarkAcquireRelease compares the cost of one admission. The processor time is
// what to compare where others use the machine too; two readings of the clock are
// the floor of whatever measures latency.
func BenchmarkAcquireRelease(b *testing.B) {
	ours, err := concurrency.New(concurrency.Options{})
	if err != nil {
		b.Fatal(err)
	}
	theirs := adaptivelimiter.NewWithDefaults[any]()
	ctx, start := context.Background(), time.Now()
	for _, c := range []struct {
		name string
		do   func()
	}{
		{"two clock readings", func() { sink = time.Since(start) + time.Since(start) }},
		{"weir", func() {
			permit, _ := ours.Acquire(ctx)
			permit.Release(concurrency.Success)
		}},
		{"failsafe-go", func() {
			if permit, ok := theirs.TryAcquirePermit(); ok {
				permit.Record()
			}
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			before := processorTime(b)
			for b.Loop() {
				c.do()
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

var sink time.Duration

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
