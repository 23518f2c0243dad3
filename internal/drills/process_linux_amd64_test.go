package drills

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"weir.dev/weir"
	"weir.dev/weir/internal/redistest"
	"weir.dev/weir/lease"
	"weir.dev/weir/redisstore"
)

// The drills of clocks and of processes that die and stop. A worker process is this test's
// program again; it leases, and writes a line for each answer.

var processDrills = []drill{
	{"T12", "one process's wall clock 30 s ahead, then 30 s behind, then right", clockStepped},
	{"T13", "failover to a node whose clock is 5 s ahead, and back", failoverToWrongClock},
	{"T14", "one process killed, one stopped for 10 s, while they hold leases", processesStopped},
}

// Of a worker process: its environment, and how many of its goroutines ask.
const (
	childAddrs, childBudget, childInstances = "WEIR_DRILLS_ADDRS", "WEIR_DRILLS_BUDGET", "WEIR_DRILLS_INSTANCES"
	childWorkers                            = 4
)

// hotLimit is what the worker processes lease of, directLimit what they ask the store for.
var (
	hotLimit    = weir.PerSecond(1000)
	directLimit = weir.PerHour(20_000).By(weir.FixedWindow)
)

func leases(instances int) lease.Options { return lease.Options{Block: 50, Instances: instances} }

// child is a worker process.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{}

	mu      sync.Mutex
	calls   history // times on the machine's monotonic clock
	expired int     // units spent from a block that had expired
}

// child starts a worker process on a cluster.
func (s *stage) child(cluster *redistest.Cluster, instances int) *child {
	s.Helper()
	c := &child{cmd: exec.Command("/proc/self/exe", "-test.run=^$"), ended: make(chan struct{})}
	c.cmd.Env = append(os.Environ(),
		childAddrs+"="+strings.Join(cluster.Addrs(), ","),
		childBudget+"="+s.exactBudget().String(),
		childInstances+"="+strconv.Itoa(instances))
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	s.must(err)
	out, err := c.cmd.StdoutPipe()
	s.must(err)
	s.must(c.cmd.Start())
	c.stdin = in
	s.Cleanup(func() {
		c.cmd.Process.Kill() // fails only if it has ended
		<-c.ended
	})
	go func() {
		defer close(c.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			c.read(lines.Text())
		}
		c.cmd.Wait() // how it ended is the drill's doing
	}()
	s.eventually("a worker process's first answers", func() bool { return len(c.answers()) > 0 })
	return c
}

func (c *child) pid() int { return c.cmd.Process.Pid }

func (c *child) answers() history {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[:len(c.calls):len(c.calls)]
}

// end lets the process end by itself, and returns its answers.
func (c *child) end() history {
	c.stdin.Close()
	<-c.ended
	return c.answers()
}

// line is how a process tells of an answer.
const line = "%s %d %d %d %d %d %t %t\n"

func (c *child) read(text string) {
	var a call
	var asked, ended int64
	var expired bool
	if n, err := fmt.Sscanf(text+"\n", line, &a.name, &asked, &ended, &a.d.Taken, &a.d.Source, &a.d.AtMicros, &a.d.Allowed, &expired); n < 8 || err != nil {
		return // the last line of a process that was killed
	}
	a.asked, a.took = time.Duration(asked), time.Duration(ended-asked)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, a)
	if expired {
		c.expired += int(a.d.Taken)
	}
}

// beChild makes a worker of a process that was started as one: it ends with its standard
// input.
func beChild() {
	if os.Getenv(childAddrs) == "" {
		return
	}
	if err := workAsChild(); err != nil {
		fmt.Fprintln(os.Stderr, "worker process:", err)
		os.Exit(1)
	}
	io.Copy(io.Discard, os.Stdin) // until the parent closes it, or is gone
	os.Exit(0)
}

func workAsChild() error {
	wait, err := time.ParseDuration(os.Getenv(childBudget))
	if err != nil {
		return err
	}
	instances, err := strconv.Atoi(os.Getenv(childInstances))
	if err != nil {
		return err
	}
	store, err := redisstore.New(redisstore.Options{Addrs: strings.Split(os.Getenv(childAddrs), ","), Cluster: true, Budget: wait})
	if err != nil {
		return err
	}
	witness := &witness{Store: store}
	opts := leases(instances)
	opts.Budget = wait
	leased, err := lease.New(witness, opts)
	if err != nil {
		return err
	}
	closed := weir.Options{OnFailure: weir.FailClosed}
	hot, err := weir.New(leased, "hot", hotLimit, closed)
	if err != nil {
		return err
	}
	direct, err := weir.New(store, "direct", directLimit, closed)
	if err != nil {
		return err
	}
	for range childWorkers {
		go func() {
			for n := 1; ; n++ {
				if n%10 == 0 {
					tell(direct, witness)
				} else {
					tell(hot, witness)
				}
				time.Sleep(childPace(monotonic()))
			}
		}()
	}
	return nil
}

// childPace is how long a worker waits after a question, the same in all processes: for a
// second they ask for less than the limit and hold leases, then for all that they can
// get, then for nothing until leases have expired.
func childPace(now int64) time.Duration {
	const cycle = 2 * time.Second
	switch at := time.Duration(now) % cycle; {
	case at < time.Second:
		return 10 * time.Millisecond
	case at < 1300*time.Millisecond:
		return 200 * time.Microsecond
	default:
		return cycle - at
	}
}

var workerKey = weir.Text("hot")

// tell asks for a unit and writes a line about the answer.
func tell(l *weir.Limiter, w *witness) {
	asked := monotonic()
	d, _ := l.Take(context.Background(), workerKey, 1)
	ended := monotonic()
	expired := d.Source == weir.FromLease && asked-w.granted.Load() > int64(lease.DefaultExpiry)
	fmt.Printf(line, l.Name(), asked, ended, d.Taken, d.Source, d.AtMicros, d.Allowed, expired)
}

// witness remembers when the last block that was granted was asked for.
type witness struct {
	weir.Store
	granted atomic.Int64
}

func (w *witness) Take(ctx context.Context, ask weir.Ask) (weir.Decision, error) {
	asked := monotonic()
	d, err := w.Store.Take(ctx, ask)
	if d.Taken > 0 {
		for old := w.granted.Load(); old < asked && !w.granted.CompareAndSwap(old, asked); old = w.granted.Load() {
		}
	}
	return d, err
}

// monotonic is the machine's monotonic clock in nanoseconds, which all its processes share.
func monotonic() int64 {
	const clockMonotonic = 1 // CLOCK_MONOTONIC
	var t syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}

// holdLeases waits until a worker process spends leases.
func (c *child) holdLeases(s *stage) {
	s.Helper()
	seen := len(c.answers())
	s.eventually("a worker process to spend leases", func() bool {
		fresh := c.answers()[seen:]
		return len(fresh) > 5 && fresh[len(fresh)-1].d.Source == weir.FromLease && childPace(monotonic()) == 10*time.Millisecond
	})
}

// leased holds the answers of all worker processes against the bound of their leases.
func (s *stage) leased(all history, children []*child) {
	s.Helper()
	// One call of each worker may have been decided long before it was written down.
	slack := int64(len(children) * childWorkers)
	mine := all.named("hot")
	s.row.calls, s.row.longest = len(all), 0
	s.row.over = mine.over(hotLimit, func(a call) int64 { return a.ended().Microseconds() })
	s.row.bound = lease.Bound(hotLimit, leases(len(children))) + slack
	if s.row.over > s.row.bound {
		s.fault("leases: got %d units beyond %v, want at most %d", s.row.over, hotLimit, s.row.bound)
	}
	spent := mine.where(func(a call) bool { return a.d.Source == weir.FromLease }).taken()
	if spent == 0 {
		s.fault("no unit was spent from a lease")
	}
	expired := 0
	for _, c := range children {
		expired += c.expired
	}
	if expired > 0 {
		s.fault("%d units were spent of leases that had expired", expired)
	}
	s.note("%d units from leases, %d of them expired", spent, expired)
}

func clockStepped(s *stage) {
	cluster := s.cluster(false)
	right := s.child(cluster, 2)
	wrong := s.child(cluster, 2)
	for _, by := range []time.Duration{30 * time.Second, -30 * time.Second, 0} {
		wrong.holdLeases(s)
		s.must(setClock(wrong.pid(), by))
		time.Sleep(s.span(4*time.Second, 1500*time.Millisecond))
	}
	all := append(right.end(), wrong.end()...)
	s.leased(all, []*child{right, wrong})
	// The clock of the process reaches no decision of the store.
	if err := all.named("direct").check(directLimit); err != nil {
		s.fault("asked without leases: %v", err)
	}
}

func processesStopped(s *stage) {
	cluster := s.cluster(false)
	var children []*child
	for range 3 {
		children = append(children, s.child(cluster, 3))
	}
	whole, stopped, killed := children[0], children[1], children[2]
	for range int(s.span(3, 1)) {
		stopped.holdLeases(s)
		s.must(stopProcess(stopped.pid()))
		time.Sleep(s.span(10*time.Second/3, time.Second))
		s.must(syscall.Kill(stopped.pid(), syscall.SIGCONT))
	}
	if s.full { // once more, for as long as it takes to be forgotten by everybody
		stopped.holdLeases(s)
		s.must(stopProcess(stopped.pid()))
		time.Sleep(10 * time.Second)
		s.must(syscall.Kill(stopped.pid(), syscall.SIGCONT))
	}
	killed.holdLeases(s)
	s.must(killed.cmd.Process.Kill())
	time.Sleep(s.span(4*time.Second, time.Second))
	all := append(whole.end(), stopped.end()...)
	all = append(all, killed.answers()...)
	s.leased(all, children)
}

// failoverToWrongClock lets a replica take over whose clock is ahead, and then the old
// master again, whose clock is behind that.
func failoverToWrongClock(s *stage) {
	cluster := s.cluster(true)
	ahead := s.span(5*time.Second, 2*time.Second)
	pid, err := strconv.Atoi(cluster.Node(3).Info("server", "process_id"))
	s.must(err)
	s.must(setClock(pid, ahead))
	cluster.WaitReady()
	opts := clusterOf(cluster)
	opts.Budget = s.exactBudget()
	c := s.crew(opts, s.keysOf(cluster)...)
	c.start()
	c.rest(2*time.Second, 500*time.Millisecond)
	cluster.Failover(3, redistest.Planned)
	c.rest(3*time.Second, time.Second)
	cluster.WaitReady()
	back := c.now()
	cluster.Failover(0, redistest.Planned)
	time.Sleep(ahead + s.span(3*time.Second, 500*time.Millisecond))
	c.untilCentral(0)
	all := c.stop()
	began := c.begin.UnixMicro()
	for _, name := range []string{"api", "tally"} {
		mine := all.of(0).named(name).central()
		over := mine.over(limitOf(name), func(a call) int64 { return began + a.ended().Microseconds() })
		bound := int64(workers)
		if name == "api" {
			s.row.over = over
			bound += min(api.Capacity(), int64(ahead/time.Second)*api.Units())
			s.row.bound = bound
		}
		if over > bound {
			s.fault("%s: got %d units beyond the limit, want at most %d", name, over, bound)
		}
	}
	s.row.calls, s.row.local, s.row.longest = len(all), len(all.local()), all.longest()
	passed := all.of(0).named("api").central().where(func(a call) bool { return a.d.Taken > 0 && a.asked > back-time.Second })
	s.within("locked out", passed.gap(), ahead+500*time.Millisecond)
	s.note("locked out for %v at most", passed.gap().Round(time.Millisecond))
	s.once(c, all, false)
}
