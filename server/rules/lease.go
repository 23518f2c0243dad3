package rules

import (
	"strconv"
	"time"

	"go.yaml.in/yaml/v4"
	"weir.dev/weir"
)

// Lease is how many units of a limit an instance of the service takes ahead for a key in
// demand, to spend them without asking the store. The zero Lease is none.
type Lease struct {
	Max    int64         // units taken at once, at most: 1 to the limit's capacity
	Refill float64       // the next are taken when less than this share of Max is left, between 0 and 1
	Expiry time.Duration // unspent units are thrown away after it, 1 ms to 1 s
}

// What a lease has where the configuration does not say.
const (
	defaultRefill = 0.2
	defaultExpiry = 500 * time.Millisecond
)

var expiries = durations{"an expiry", time.Millisecond, time.Second, "write a duration from 1ms to 1s, such as 500ms"}

const leaseExample = "write {max: 50, refill: 0.2, expiry: 500ms}, or off"

// lease returns the lease of a limit.
func (p *parser) lease(all map[string]field, limit weir.Limit) Lease {
	f, ok := all["lease"]
	if !ok || isNull(f.value) || isOff(f.value) {
		return Lease{}
	}
	if f.value.Kind != yaml.MappingNode {
		p.faultf(f.value, "lease is %s: %s", describe(f.value), leaseExample)
		return Lease{}
	}
	keys, _ := p.known(f.value, inLease)
	l := Lease{Refill: defaultRefill, Expiry: defaultExpiry}
	if a := limit.Algorithm(); a == weir.SlidingLog || a == weir.LeakyBucket {
		p.faultf(f.key, "a lease has no meaning by %v, whose promise it would break: write algorithm: gcra, fixed_window or sliding_window, or lease: off", a)
	}
	l.Max = p.leaseMax(f, keys, limit)
	if f, ok := keys["refill"]; ok && !isNull(f.value) {
		l.Refill = p.share(f)
	}
	if f, ok := keys["expiry"]; ok && !isNull(f.value) {
		l.Expiry = p.duration(f, expiries)
	}
	return l
}

// leaseMax returns how many units a lease takes at most.
func (p *parser) leaseMax(lease field, keys map[string]field, limit weir.Limit) int64 {
	f, ok := keys["max"]
	if !ok || isNull(f.value) {
		p.faultf(lease.key, "the lease has no max: write max: and how many units an instance of the service may take ahead")
		return 0
	}
	faults := len(p.faults)
	n := int64(p.count(f, weir.MaxUnits))
	switch capacity := limit.Capacity(); {
	case len(p.faults) > faults || limit.Validate() != nil:
	case n == 0:
		p.faultf(f.value, "a lease of 0 units takes nothing ahead: write 1 or more, or lease: off")
	case capacity == 0:
		p.faultf(f.value, "a lease of a limit of 0, which denies everything: write lease: off")
	case n > capacity:
		p.faultf(f.value, "a lease of %d units is more than the limit lets pass at once: write at most %d", n, capacity)
	}
	return n
}

// share returns a number between 0 and 1.
func (p *parser) share(f field) float64 {
	x, err := strconv.ParseFloat(f.value.Value, 64)
	if err != nil || f.value.Kind != yaml.ScalarNode || f.value.Style&quoted != 0 || !(x > 0 && x < 1) {
		p.faultf(f.value, "%s is %s: write a share above 0 and below 1, such as 0.2", f.key.Value, describe(f.value))
		return 0
	}
	return x
}

// isOff reports whether a value is the word off, which some tools write as false.
func isOff(n *yaml.Node) bool {
	b, ok := plainBools[n.Value]
	return n.Kind == yaml.ScalarNode && n.Style&quoted == 0 && ok && !b
}
