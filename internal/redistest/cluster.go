package redistest

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weir.dev/weir/internal/testserver"
)

const slots = 16384

// nodeTimeout is how long, in ms, a node may be silent before the others call it failed.
const nodeTimeout = 2000

// Cluster is a running cluster. Nodes 0 to masters-1 start as masters, the others as their replicas: with three masters,
// node 3 follows node 0, node 4 node 1 and so on.
type Cluster struct {
	tb    testing.TB
	nodes []*Server
	ids   []string
}

// StartCluster starts a cluster, at least three masters with so many replicas each, and waits until all nodes agree that
// every slot is served. A silent node is called failed after 2 s.
func StartCluster(tb testing.TB, v Version, masters, replicas int) *Cluster {
	tb.Helper()
	c, err := startCluster(v, masters, replicas, tb.TempDir())
	if err != nil {
		tb.Fatalf("redistest: cluster of %v: %v", v, err)
	}
	tb.Cleanup(c.kill)
	return c.view(tb)
}

// SharedCluster returns a cluster of three masters and three replicas that all tests of the process share. The package
// needs a TestMain with Run. Each test must keep to keys of its own; one that moves slots, pauses or kills nodes does not
// run in parallel with others, mends what it broke and ends with WaitReady.
func SharedCluster(tb testing.TB, v Version) *Cluster {
	tb.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.dir == "" {
		tb.Fatal("redistest: SharedCluster needs func TestMain(m *testing.M) { os.Exit(redistest.Run(m)) } in this package")
	}
	c, err := once(shared.clusters, v, func() (*Cluster, error) {
		return startCluster(v, 3, 1, filepath.Join(shared.dir, versions[v].file))
	})
	if err != nil {
		tb.Fatalf("redistest: cluster of %v: %v", v, err)
	}
	return c.view(tb)
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, node := range c.nodes {
		addrs = append(addrs, node.Addr)
	}
	return addrs
}

// Node returns node i, counted from 0. Its number stays when its role changes.
func (c *Cluster) Node(i int) *Server { return c.nodes[i] }

// Slot returns the slot of a key.
func (c *Cluster) Slot(key string) int {
	c.tb.Helper()
	return int(c.running()[0].Do("CLUSTER", "KEYSLOT", key).(int64))
}

// Owner returns the number of the node that serves the slot, as the running nodes say with one voice.
func (c *Cluster) Owner(slot int) int {
	c.tb.Helper()
	owner := -1
	c.wait(fmt.Sprintf("an owner of slot %d", slot), func() error {
		said := map[string]bool{}
		for _, node := range c.running() {
			members, err := node.members()
			if err != nil {
				return err
			}
			for _, m := range members {
				if m.serves(slot) {
					said[m.id] = true
				}
			}
		}
		ids := slices.Collect(maps.Keys(said))
		if len(ids) != 1 {
			return fmt.Errorf("the nodes name %d owners", len(ids))
		}
		owner = slices.Index(c.ids, ids[0])
		return nil
	})
	return owner
}

// MoveSlot moves a slot with its keys to the master that is node to. Masters know it at once, replicas a little later.
func (c *Cluster) MoveSlot(slot, to int) {
	c.tb.Helper()
	c.OpenSlot(slot, to)
	c.CloseSlot(slot, to)
}

// OpenSlot begins to move a slot to node to and leaves the move half done: the keys stay with the old owner, which
// answers ASK for those it does not have, and TRYAGAIN where it has some keys of a command and not the others (Redis 6.2:
// ASK, and the new owner TRYAGAIN).
func (c *Cluster) OpenSlot(slot, to int) {
	c.tb.Helper()
	from := c.Owner(slot)
	if from == to {
		c.tb.Fatalf("redistest: node %d serves slot %d already", to, slot)
	}
	n := strconv.Itoa(slot)
	c.nodes[to].Do("CLUSTER", "SETSLOT", n, "IMPORTING", c.ids[from])
	c.nodes[from].Do("CLUSTER", "SETSLOT", n, "MIGRATING", c.ids[to])
}

// MoveKeys moves keys of an open slot to node to, ahead of CloseSlot.
func (c *Cluster) MoveKeys(slot, to int, keys ...string) {
	c.tb.Helper()
	host, port := splitAddr(c.nodes[to].Addr)
	args := []string{"MIGRATE", host, port, "", "0", "5000", "REPLACE", "KEYS"}
	c.nodes[c.Owner(slot)].Do(append(args, keys...)...)
}

// CloseSlot ends what OpenSlot began: the remaining keys move, then the slot.
func (c *Cluster) CloseSlot(slot, to int) {
	c.tb.Helper()
	from := c.Owner(slot)
	n := strconv.Itoa(slot)
	for {
		keys := c.nodes[from].Do("CLUSTER", "GETKEYSINSLOT", n, "100").([]any)
		if len(keys) == 0 {
			break
		}
		var names []string
		for _, key := range keys {
			names = append(names, key.(string))
		}
		c.MoveKeys(slot, to, names...)
	}
	// First the new owner, so that at no time nobody serves the slot; then the old one; then the rest.
	order := []*Server{c.nodes[to], c.nodes[from]}
	for _, node := range c.running() {
		if node.Info("replication", "role") == "master" && !slices.Contains(order, node) {
			order = append(order, node)
		}
	}
	for _, node := range order {
		node.Do("CLUSTER", "SETSLOT", n, "NODE", c.ids[to])
	}
}

// FailoverMode says how much a replica asks before it becomes master.
type FailoverMode string

// The modes of CLUSTER FAILOVER.
const (
	Planned  FailoverMode = ""         // the master stops and hands over: nothing is lost
	Force    FailoverMode = "FORCE"    // without the master, by vote of the others
	Takeover FailoverMode = "TAKEOVER" // without asking anybody: both may think they are master
)

// Failover promotes the replica that is node i, and returns when it calls itself master. The other nodes may need longer
// to know: WaitReady waits for them.
func (c *Cluster) Failover(i int, mode FailoverMode) {
	c.tb.Helper()
	command := []string{"CLUSTER", "FAILOVER"}
	if mode != Planned {
		command = append(command, string(mode))
	}
	var asked bool
	c.wait(fmt.Sprintf("node %d to become master", i), func() error {
		if c.nodes[i].Info("replication", "role") == "master" {
			return nil
		}
		if !asked {
			if _, err := c.nodes[i].Try(command...); err != nil {
				return err
			}
			asked = true
		}
		return fmt.Errorf("it is a replica")
	})
}

// WaitReady waits until all running nodes agree on who serves which slot, all slots are served by running nodes, and
// every running replica follows its master.
func (c *Cluster) WaitReady() {
	c.tb.Helper()
	c.wait("the nodes to agree", c.ready)
}

// FlushScripts makes every running node forget its scripts, so that the next EVALSHA gets NOSCRIPT.
func (c *Cluster) FlushScripts() {
	c.tb.Helper()
	for _, node := range c.running() {
		node.Do("SCRIPT", "FLUSH", "SYNC")
	}
}

func (c *Cluster) wait(what string, f func() error) {
	c.tb.Helper()
	if err := testserver.Poll(f); err != nil {
		c.tb.Fatalf("redistest: waiting for %s: %v", what, err)
	}
}

// running returns the nodes that are neither killed nor paused.
func (c *Cluster) running() []*Server {
	var nodes []*Server
	for _, node := range c.nodes {
		if node.process.Running() {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

func (c *Cluster) kill() {
	for _, node := range c.nodes {
		node.process.Kill()
	}
}

// view returns the same cluster, whose failures are failures of tb.
func (c *Cluster) view(tb testing.TB) *Cluster {
	view := &Cluster{tb: tb, ids: c.ids}
	for _, node := range c.nodes {
		n := *node
		n.tb = tb
		view.nodes = append(view.nodes, &n)
	}
	return view
}

func startCluster(v Version, masters, replicas int, dir string) (*Cluster, error) {
	if masters < 3 || replicas < 0 {
		return nil, fmt.Errorf("got %d masters with %d replicas each, want at least 3 masters: two cannot outvote a dead one",
			masters, replicas)
	}
	c := &Cluster{}
	if err := c.startNodes(v, masters*(1+replicas), dir); err != nil {
		c.kill()
		return nil, err
	}
	if err := c.join(v, masters); err != nil {
		c.kill()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) startNodes(v Version, count int, dir string) error {
	config := []string{
		"cluster-enabled yes", "cluster-config-file nodes.conf",
		fmt.Sprint("cluster-node-timeout ", nodeTimeout),
		"cluster-replica-validity-factor 0", // a replica stands for election however long its master is gone
		"cluster-migration-barrier 1000",    // a replica stays with its master
	}
	if v != Redis62 {
		config = append(config, "cluster-port "+busPortMark)
	}
	for i := range count {
		nodeDir := filepath.Join(dir, strconv.Itoa(i))
		if err := os.MkdirAll(nodeDir, 0o700); err != nil {
			return err
		}
		node, err := start(v, Options{Config: config}, nodeDir)
		if err != nil {
			return err
		}
		c.nodes = append(c.nodes, node)
		id, err := node.Try("CLUSTER", "MYID")
		if err != nil {
			return err
		}
		c.ids = append(c.ids, id.(string))
	}
	return nil
}

// join makes one cluster of nodes that do not know each other.
func (c *Cluster) join(v Version, masters int) error {
	for i, node := range c.nodes {
		// Distinct epochs from the start spare the nodes the settling of collisions, one by one.
		commands := [][]string{{"CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i + 1)}}
		if i < masters {
			commands = append(commands, addSlots(v, i*slots/masters, (i+1)*slots/masters-1))
		}
		for _, other := range c.nodes[:i] {
			host, port := splitAddr(other.Addr)
			commands = append(commands, []string{"CLUSTER", "MEET", host, port, strconv.Itoa(other.busPort)})
		}
		for _, command := range commands {
			if _, err := node.Try(command...); err != nil {
				return fmt.Errorf("node %d: %s: %w", i, strings.Join(command[:2], " "), err)
			}
		}
	}
	for i := masters; i < len(c.nodes); i++ {
		// Refused until node i has met its master.
		err := testserver.Poll(func() error {
			_, err := c.nodes[i].Try("CLUSTER", "REPLICATE", c.ids[i%masters])
			return err
		})
		if err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
	}
	return testserver.Poll(c.ready)
}

func addSlots(v Version, first, last int) []string {
	if v != Redis62 {
		return []string{"CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last)}
	}
	command := []string{"CLUSTER", "ADDSLOTS"}
	for slot := first; slot <= last; slot++ {
		command = append(command, strconv.Itoa(slot))
	}
	return command
}

// ready returns nil, or what keeps the cluster from being ready.
func (c *Cluster) ready() error {
	var view string
	for _, node := range c.running() {
		info, err := node.Try("CLUSTER", "INFO")
		if err != nil {
			return err
		}
		state, served := infoField(info.(string), "cluster_state"), infoField(info.(string), "cluster_slots_ok")
		if state != "ok" || served != strconv.Itoa(slots) {
			return fmt.Errorf("%s says state %s, %s slots served", node.Addr, state, served)
		}
		members, err := node.members()
		if err != nil {
			return err
		}
		mine, err := c.describe(members)
		if err != nil {
			return fmt.Errorf("%s: %w", node.Addr, err)
		}
		if view != "" && mine != view {
			return fmt.Errorf("%s and a node before it differ:\n%s\n%s", node.Addr, mine, view)
		}
		view = mine
		replication, err := node.Try("INFO", "replication")
		if err != nil {
			return err
		}
		link := infoField(replication.(string), "master_link_status")
		if link != "" && link != "up" {
			return fmt.Errorf("%s: link to its master is %s", node.Addr, link)
		}
	}
	return nil
}

// describe returns what one node thinks of the running nodes, in a form that is equal if the thoughts are.
func (c *Cluster) describe(members []member) (string, error) {
	seen := map[string]member{}
	for _, m := range members {
		seen[m.id] = m
	}
	var lines []string
	for i, node := range c.nodes {
		m, known := seen[c.ids[i]]
		switch {
		case !node.process.Running():
			if len(m.ranges) > 0 {
				return "", fmt.Errorf("node %d is down and holds slots %v", i, m.ranges)
			}
			continue
		case !known:
			return "", fmt.Errorf("node %d is not known", i)
		case m.failing:
			return "", fmt.Errorf("node %d is thought to fail or not to have met", i)
		}
		lines = append(lines, fmt.Sprintf("node %d %s %v", i, m.master, m.ranges))
	}
	return strings.Join(lines, "\n"), nil
}

// member is a line of CLUSTER NODES: one node, as another sees it.
type member struct {
	id      string
	master  string // id of its master, or "-"
	failing bool   // suspected, failed, or still in its handshake
	ranges  [][2]int
}

func (m member) serves(slot int) bool {
	return slices.ContainsFunc(m.ranges, func(r [2]int) bool { return r[0] <= slot && slot <= r[1] })
}

func (s *Server) members() ([]member, error) {
	reply, err := s.Try("CLUSTER", "NODES")
	if err != nil {
		return nil, err
	}
	var members []member
	for line := range strings.Lines(reply.(string)) {
		fields := strings.Fields(line)
		if len(fields) < 8 {
			return nil, fmt.Errorf("%s: cannot read the CLUSTER NODES line %q", s.Addr, line)
		}
		m := member{id: fields[0], master: fields[3]}
		m.failing = strings.Contains(fields[2], "fail") || strings.Contains(fields[2], "handshake")
		for _, field := range fields[8:] {
			if strings.HasPrefix(field, "[") { // a slot on the move
				continue
			}
			low, high, isRange := strings.Cut(field, "-")
			if !isRange {
				high = low
			}
			first, err1 := strconv.Atoi(low)
			last, err2 := strconv.Atoi(high)
			if err1 != nil || err2 != nil {
				return nil, fmt.Errorf("%s: cannot read the slots %q", s.Addr, field)
			}
			m.ranges = append(m.ranges, [2]int{first, last})
		}
		members = append(members, m)
	}
	return members, nil
}

// splitAddr is for addresses of this package, which are always good.
func splitAddr(addr string) (host, port string) {
	host, port, _ = net.SplitHostPort(addr)
	return host, port
}
