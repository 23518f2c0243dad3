package envoytest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// limitOf are rules that let a user do so many a year.
func limitOf(requests string) string {
	return "domain: envoy\ndescriptors:\n- {key: user, rate_limit: {unit: year, requests_per_unit: " + requests + "}}\n"
}

// untilLimit waits until users who are new have a limit of so many a year.
func (c client) untilLimit(t *testing.T, requests int) {
	t.Helper()
	want := fmt.Sprintf("%d, %d;w=31536000", requests, requests)
	wait(t, "the limit "+want, func() error {
		r := c.get(t, "/user", "x-user", fresh("poll"))
		if got := r.header.Get(limitHeader); got != want {
			return fmt.Errorf("status %d with limit %q", r.status, got)
		}
		return nil
	})
}

// untilSaid waits for a text in the log of a service.
func (s *service) untilSaid(t *testing.T, text string) {
	t.Helper()
	wait(t, "a line of the log", func() error {
		if !strings.Contains(s.Output(), text) {
			return fmt.Errorf("nothing says %q:\n%s", text, s.Output())
		}
		return nil
	})
}

// publish writes rules as Kubernetes updates a ConfigMap: into a new folder, to which the
// link ..data is then led at once. The file itself is a link through it.
func publish(t *testing.T, dir, version, rules string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	folder := "..version_" + version
	must(os.Mkdir(filepath.Join(dir, folder), 0o700))
	must(os.WriteFile(filepath.Join(dir, folder, "rules.yaml"), []byte(rules), 0o600))
	must(os.Symlink(folder, filepath.Join(dir, "..next")))
	must(os.Rename(filepath.Join(dir, "..next"), filepath.Join(dir, "..data")))
	if link := filepath.Join(dir, "rules.yaml"); version == "1" {
		must(os.Symlink(filepath.Join("..data", "rules.yaml"), link))
	}
}

func TestRulesAreReadAgainAndBadOnesAreNot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	publish(t, dir, "1", limitOf("1"))
	s := startService(t, serve(dir, "memory:"))
	e := startEnvoy(t, listener{Name: "reload", Service: s.grpc, Filter: patient})
	c, bob := e.at("reload"), []string{"x-user", "bob"}
	c.expect(t, once, "/user", bob...)

	publish(t, dir, "2", limitOf("3"))
	c.untilLimit(t, 3)
	c.expect(t, twice, "/user", bob...) // one of three is spent already

	publish(t, dir, "3", limitOf("minus one"))
	s.untilSaid(t, "rules.yaml:3:") // the line of the fault
	c.expect(t, []int{200, 200, 200, 429}, "/user", "x-user", "eve")

	publish(t, dir, "4", limitOf("4"))
	c.untilLimit(t, 4)
	c.expect(t, once, "/user", bob...)
	if err := e.wantStat(t, "cluster.echo.ratelimit.reload.error", 0); err != nil {
		t.Error(err)
	}
}
