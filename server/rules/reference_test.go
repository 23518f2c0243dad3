package rules

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"weir.dev/weir/server/internal/reference"
)

// configurations returns the original's configurations, by the names of their recordings.
func configurations(t *testing.T) map[string][]File {
	found := map[string][]File{}
	for name, all := range reference.Configurations(t) {
		for _, f := range all {
			found[name] = append(found[name], File(f))
		}
	}
	return found
}

func TestEveryReferenceConfigurationLoads(t *testing.T) {
	t.Parallel()
	for name, files := range configurations(t) {
		c, err := Parse(files...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(c.Rules()) == 0 {
			t.Errorf("%s: got no rules", name)
		}
	}
}

// recorded is one request and what the original answered.
type recorded struct {
	Request struct {
		Domain      string
		Descriptors []struct {
			Entries []struct{ Key, Value string }
		}
	}
	Response struct {
		Statuses []struct {
			CurrentLimit *struct {
				RequestsPerUnit uint32
				Unit            string
				Name            string
			}
		}
	}
}

func TestRequestsMatchTheLimitsThatTheOriginalAnswered(t *testing.T) {
	t.Parallel()
	configs := configurations(t)
	golden := reference.Folder(t, "rls/golden")
	compared := 0
	for name, files := range configs {
		c, err := Parse(files...)
		if err != nil {
			continue // another test says so
		}
		data, err := os.ReadFile(filepath.Join(golden, name+".jsonl"))
		if err != nil {
			t.Error(err)
			continue
		}
		lines := bufio.NewScanner(bytes.NewReader(data))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var r recorded
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			compared += len(r.Response.Statuses)
			for i, got := range answers(c, r) {
				want := Limit{}
				if l := r.Response.Statuses[i].CurrentLimit; l != nil {
					want.Name, want.RequestsPerUnit = l.Name, l.RequestsPerUnit
					want.Unit, _ = parseUnit(l.Unit)
				}
				if got.Name != want.Name || got.RequestsPerUnit != want.RequestsPerUnit || got.Unit != want.Unit {
					t.Errorf("%s, %v: got %d per %v %q, want %d per %v %q",
						name, r.Request.Descriptors[i], got.RequestsPerUnit, got.Unit, got.Name, want.RequestsPerUnit, want.Unit, want.Name)
				}
			}
		}
	}
	t.Logf("%d answers compared", compared)
}

// answers returns for each descriptor of a request the limit that it matches and that
// no other replaces, or the zero Limit.
func answers(c *Config, r recorded) []Limit {
	matched := make([]Limit, len(r.Response.Statuses))
	replaced := map[string]bool{}
	for i := range matched {
		var list []Entry
		for _, e := range r.Request.Descriptors[i].Entries {
			list = append(list, Entry(e))
		}
		rule := c.Match(r.Request.Domain, list)
		if rule == nil {
			continue
		}
		if len(rule.Limits) > 0 {
			matched[i] = rule.Limits[0]
		}
		for _, name := range rule.Replaces {
			replaced[name] = true
		}
	}
	for i, l := range matched {
		if replaced[l.Name] {
			matched[i] = Limit{}
		}
	}
	return matched
}
