package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"weir.dev/weir/internal/testserver"
)

// Sentinel is a master with one replica, watched by sentinels.
type Sentinel struct {
	MasterName string // the name under which clients ask for the master
	Nodes      []*Server
	Sentinels  []*Server

	tb testing.TB
}

// StartSentinel starts a master, its replica and the given number of sentinels (their quorum is a majority), and waits
// until all sentinels know all the others. They call a master dead after 1 s.
func StartSentinel(tb testing.TB, v Version, sentinels int) *Sentinel {
	tb.Helper()
	s := &Sentinel{MasterName: "weir", tb: tb}
	master, replica := Start(tb, v, Options{}), Start(tb, v, Options{})
	s.Nodes = []*Server{master, replica}
	host, port := splitAddr(master.Addr)
	replica.Do("REPLICAOF", host, port)
	// A sentinel that meets a master without its replica looks again only 10 s later.
	s.wait("the replica to follow its master", func() error {
		if err := replica.wantReplication("master_link_status", "up"); err != nil {
			return err
		}
		return master.wantReplication("connected_slaves", "1")
	})
	for range sentinels {
		sentinel, err := startSentinel(v, s.MasterName, master.Addr, tb.TempDir(), sentinels/2+1)
		if err != nil {
			tb.Fatalf("redistest: sentinel: %v", err)
		}
		tb.Cleanup(sentinel.process.Kill)
		sentinel.tb = tb
		s.Sentinels = append(s.Sentinels, sentinel)
	}
	s.wait("the sentinels to meet", func() error {
		for _, sentinel := range s.Sentinels {
			info, err := sentinel.Try("INFO", "sentinel")
			if err != nil {
				return err
			}
			got := infoField(info.(string), "master0")
			want := fmt.Sprintf("name=%s,status=ok,address=%s,slaves=1,sentinels=%d", s.MasterName, master.Addr, sentinels)
			if got != want {
				return fmt.Errorf("%s: got %s, want %s", sentinel.Addr, got, want)
			}
		}
		return nil
	})
	return s
}

// Addrs returns the addresses of the sentinels.
func (s *Sentinel) Addrs() []string {
	var addrs []string
	for _, sentinel := range s.Sentinels {
		addrs = append(addrs, sentinel.Addr)
	}
	return addrs
}

// Master returns the node that the sentinels call master. While they do not agree, the test waits.
func (s *Sentinel) Master() *Server {
	s.tb.Helper()
	var master *Server
	s.wait("the sentinels to agree on a master", func() (err error) {
		master, err = s.master()
		return err
	})
	return master
}

// Failover has the sentinels promote the replica while the master lives, and returns the new master. The old one takes
// writes for about 10 s more, until the sentinels make it a replica: that is Sentinel's way, not this package's.
func (s *Sentinel) Failover() *Server {
	s.tb.Helper()
	old := s.Master()
	s.wait("a sentinel to begin the failover", func() error {
		_, err := s.Sentinels[0].Try("SENTINEL", "FAILOVER", s.MasterName)
		return err
	})
	return s.successor(old)
}

// KillMaster kills the master, and returns the new one when the sentinels have promoted it.
func (s *Sentinel) KillMaster() *Server {
	s.tb.Helper()
	old := s.Master()
	old.Kill()
	return s.successor(old)
}

func (s *Sentinel) successor(old *Server) *Server {
	s.tb.Helper()
	var master *Server
	s.wait("the sentinels to promote the replica", func() (err error) {
		if master, err = s.master(); err != nil {
			return err
		}
		if master == old {
			return fmt.Errorf("%s is still master", old.Addr)
		}
		return master.wantReplication("role", "master")
	})
	return master
}

// master returns the node that every running sentinel calls master.
func (s *Sentinel) master() (*Server, error) {
	var addr string
	for _, sentinel := range s.Sentinels {
		if !sentinel.process.Running() {
			continue
		}
		reply, err := sentinel.Try("SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.MasterName)
		if err != nil {
			return nil, err
		}
		pair, ok := reply.([]any)
		if !ok || len(pair) != 2 {
			return nil, fmt.Errorf("%s: got master %v, want an address", sentinel.Addr, reply)
		}
		said := fmt.Sprintf("%v:%v", pair[0], pair[1])
		if addr != "" && said != addr {
			return nil, fmt.Errorf("the sentinels name %s and %s", addr, said)
		}
		addr = said
	}
	for _, node := range s.Nodes {
		if node.Addr == addr {
			return node, nil
		}
	}
	return nil, fmt.Errorf("the sentinels name %q, which is none of the nodes", addr)
}

func (s *Server) wantReplication(field, want string) error {
	info, err := s.Try("INFO", "replication")
	if err != nil {
		return err
	}
	if got := infoField(info.(string), field); got != want {
		return fmt.Errorf("%s: got %s %q, want %q", s.Addr, field, got, want)
	}
	return nil
}

func (s *Sentinel) wait(what string, f func() error) {
	s.tb.Helper()
	if err := testserver.Poll(f); err != nil {
		s.tb.Fatalf("redistest: waiting for %s: %v", what, err)
	}
}

// startSentinel starts one sentinel. It writes what it learns into its config, so it needs a file of its own.
func startSentinel(v Version, name, master, dir string, quorum int) (*Server, error) {
	file := filepath.Join(dir, "sentinel.conf")
	host, masterPort := splitAddr(master)
	return onFreePort(v, func(path string, port, _ int) (*Server, error) {
		config := fmt.Sprintf("bind 127.0.0.1\nport %d\ndir %s\n", port, dir) +
			fmt.Sprintf("sentinel monitor %s %s %s %d\n", name, host, masterPort, quorum) +
			fmt.Sprintf("sentinel down-after-milliseconds %s 1000\n", name) +
			fmt.Sprintf("sentinel failover-timeout %s 3000\n", name)
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			return nil, err
		}
		s := &Server{
			Addr:    fmt.Sprintf("127.0.0.1:%d", port),
			process: &testserver.Process{Path: path, Dir: dir, Args: []string{file, "--sentinel"}},
		}
		return s, s.boot()
	})
}
