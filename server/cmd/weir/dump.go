package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"weir.dev/weir/server/rules"
)

// dumpRules answers with the rules in force as envoyproxy/ratelimit writes them, a line
// for each limit.
func dumpRules(config func() *rules.Config) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if c := config(); c != nil {
			writeDump(w, c)
		}
	}
}

func writeDump(w io.Writer, c *rules.Config) {
	for _, r := range c.Rules() {
		path := r.Domain
		for _, level := range r.Levels {
			path += "." + level.Key
			if level.Value != "" {
				path += "_" + level.Value
			}
		}
		modes := fmt.Sprintf("shadow_mode: %t, quota_mode: %t", r.Shadow, r.Quota)
		if r.Unlimited {
			fmt.Fprintf(w, "%s: unit=UNKNOWN requests_per_unit=0, %s\n", path, modes)
		}
		for _, l := range r.Limits {
			multiplier := ""
			if l.Multiplier > 1 {
				multiplier = fmt.Sprintf(" unit_multiplier=%d", l.Multiplier)
			}
			candidate := ""
			if l.Candidate != nil {
				candidate = fmt.Sprintf(", candidate: %v", l.Candidate)
			}
			fmt.Fprintf(w, "%s: unit=%s requests_per_unit=%d%s, %s%s\n", path, strings.ToUpper(l.Unit.String()), l.RequestsPerUnit, multiplier, modes, candidate)
		}
	}
}
