// Package envoytest tests the service as Envoy sees it. A test starts a real Envoy with
// the HTTP rate limit filter, the real program with a store, and sends requests through
// both to an upstream that answers 200 to all.
//
// What a test knows of time it has from Envoy's counters, never from a clock: a busy
// machine makes it slower, not red.
package envoytest
