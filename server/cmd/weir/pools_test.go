package main

import (
	"maps"
	"strconv"
	"strings"
	"testing"
)

// statsOf returns what /stats of the debug listener says under a prefix.
func statsOf(t *testing.T, s *running, prefix string) map[string]int {
	t.Helper()
	all := make(map[string]int)
	_, text := get(t, s.debug, "/stats")
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			n, err := strconv.Atoi(value)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			all[rest] = n
		}
	}
	return all
}

func TestConnectionsToRedisAreCounted(t *testing.T) {
	t.Parallel()
	s, _ := onNewRedis(t)
	before := statsOf(t, s, "ratelimit.redis_pool.")
	if got := codesOf(t, s, 1, "user=a"); got != "O" {
		t.Fatalf("got %s, want O", got)
	}
	after := statsOf(t, s, "ratelimit.redis_pool.")
	if after["cx_total"] < 1 || after["cx_total"] < before["cx_total"] || after["cx_active"] != after["cx_total"]-after["cx_local_close"] {
		t.Errorf("got %v after %v, want at least one connection, and those not closed to be active", after, before)
	}
}

func TestDatadogsVariablesAreTags(t *testing.T) {
	t.Parallel()
	environment := map[string]string{"DD_ENTITY_ID": "0f2-a", "DD_ENV": "prod", "DD_SERVICE": "", "DD_VERSION": "1.2"}
	got := datadogTags(func(name string) (string, bool) { v, ok := environment[name]; return v, ok })
	want := map[string]string{"dd.internal.entity_id": "0f2-a", "env": "prod", "version": "1.2"}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestLocalCacheIsShown(t *testing.T) {
	t.Parallel()
	s, _ := onNewRedis(t, "LOCAL_CACHE_SIZE_IN_BYTES", "1048576")
	if got := codesOf(t, s, 6, "user=a"); got != "OOOLLL" { // 3 an hour: the 4th is remembered
		t.Fatalf("got %s, want OOOLLL", got)
	}
	got := statsOf(t, s, "ratelimit.localcache.")
	want := map[string]int{"entryCount": 1, "lookupCount": 6, "hitCount": 2, "missCount": 4, "evacuateCount": 0}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
