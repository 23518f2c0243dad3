package drills

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"weir.dev/weir/internal/redistest"
)

var full = flag.Bool("full", false, "run each drill at full length, assert times too, and write the table to docs/failures.md")

func TestMain(m *testing.M) {
	beChild()
	flag.Parse()
	if !*full {
		api, quota = shortAPI, shortQuota
	}
	os.Exit(redistest.Run(m))
}

// drill is a name, what is done to the servers, and how it is proved that they bear it.
type drill struct {
	name, fault string
	run         func(*stage)
}

var drills = append([]drill{
	{"T1", "none", nothing},
	{"T2", "SCRIPT FLUSH every 100 ms", scriptsForgotten},
	{"T3", "the hot slot moves to and fro, half open under traffic", slotMoves},
	{"T4", "graceful CLUSTER FAILOVER, 5 times", gracefulFailover},
	{"T5", "CLUSTER FAILOVER TAKEOVER under full load", takeover},
	{"T6", "SIGKILL of the hot key's master, no restart", masterKilled},
	{"T7", "SIGSTOP of the hot key's master for 4 s", masterPaused},
	{"T8", "all masters stopped for 10 s", allPaused},
	{"T9", "1 % of replies lost with their connection", repliesLost},
	{"T10", "200 ms added to one node", slowNode},
	{"T11", "maxmemory reached, noeviction", outOfMemory},
	{"T15", "FLUSHALL and eviction during traffic", stateLost},
	{"X1", "a script holds the hot key's master for 3 s", busyScript},
	{"X2", "wrong password", wrongPassword},
	{"X3", "a node answers garbage", garbage},
	{"X4", "a MOVED loop: two masters name each other", movedLoop},
	{"X5", "a server that knows no HELLO", noHello},
	{"X6", "requests reach a node late, replies do not: a partition each way", oneWayPartition},
	{"X7", "connections end by RST and FIN every 100 ms", connectionsEnd},
}, processDrills...)

func TestDrills(t *testing.T) {
	if !*full {
		t.Parallel()
	}
	var rows []row
	for n, d := range drills {
		t.Run(d.name, func(t *testing.T) {
			if !*full {
				t.Parallel()
			}
			s := &stage{T: t, full: *full, row: row{name: d.name, fault: d.fault, first: -1, whole: -1}}
			begin := time.Now()
			defer func() { t.Logf("over %d of %d; longest %v; %v", s.row.over, s.row.bound, s.row.longest, s.row.notes) }()
			if *full {
				fmt.Fprintf(os.Stderr, "%2d/%d  %-4s %s ... ", n+1, len(drills), d.name, d.fault)
				defer func() {
					if t.Failed() && len(s.row.faults) == 0 {
						s.row.faults = []string{"see the log"}
					}
					rows = append(rows, s.row)
					fmt.Fprintf(os.Stderr, "%s, %.1f s\n", s.row.verdict(), time.Since(begin).Seconds())
				}()
			}
			d.run(s)
		})
	}
	if *full && len(rows) == len(drills) {
		text := table(rows)
		fmt.Print("\n", text)
		if err := write(text); err != nil {
			t.Error(err)
		}
	}
}

func table(rows []row) string {
	var b strings.Builder
	b.WriteString("| | fault | calls | local | over / bound | longest call | central again: first / all | verdict |\n|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		back := "–"
		if r.first >= 0 {
			back = millis(r.first) + " / " + millis(r.whole)
		}
		verdict := r.verdict()
		if len(r.notes) > 0 {
			verdict += " (" + strings.Join(r.notes, ", ") + ")"
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d / %d | %s | %s | %s |\n", r.name, r.fault, r.calls, r.local, r.over, r.bound, millis(r.longest), back, verdict)
	}
	return b.String()
}

func millis(d time.Duration) string {
	if d >= time.Second {
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

// write puts the table between its marks in docs/failures.md.
func write(table string) error {
	const file, begin, end = "../../docs/failures.md", "<!-- make drills writes from here -->\n", "<!-- to here -->\n"
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	head, rest, found := strings.Cut(string(old), begin)
	_, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no lines %q and %q", file, begin, end)
	}
	machine := fmt.Sprintf("%s, %d cores, %s/%s, %s.\n\n", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	return os.WriteFile(file, []byte(head+begin+machine+table+end+tail), 0o644)
}
