package redistest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is the server's process, which may be started many times over.
type process struct {
	path    string
	args    []string // "-" and the config on standard input, unless set
	config  string
	dir     string
	busPort int // of a cluster node

	mu     sync.Mutex
	cmd    *exec.Cmd // nil before the first run
	ended  chan struct{}
	output *tail
	paused bool
}

// run starts the process; its config goes in by standard input, so that a plain server needs no file.
func (p *process) run() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	args := p.args
	if args == nil {
		args = []string{"-"}
	}
	cmd, output, ended := exec.Command(p.path, args...), &tail{}, make(chan struct{})
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = p.dir, strings.NewReader(p.config), output, output
	endWithParent(cmd)
	if err := startFromLastingThread(cmd); err != nil {
		return permanent{err}
	}
	go func() {
		_ = cmd.Wait() // how it ended is in its output
		close(ended)
	}()
	p.cmd, p.output, p.ended, p.paused = cmd, output, ended, false
	return nil
}

// running says whether the process exists and, for one that exists, that it is not paused.
func (p *process) running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.paused {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// kill ends the process and returns when it is gone.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Kill() // fails only if it has ended, which is what we want
		<-p.ended
	}
}

func (p *process) pause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = true
	return p.cmd.Process.Signal(syscall.SIGSTOP)
}

func (p *process) resume() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = false
	return p.cmd.Process.Signal(syscall.SIGCONT)
}

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// startFromLastingThread starts cmd from a thread that lives as long as the process. The kernel ties "end with the
// parent" to the thread that started the child, and Go ends a thread whose goroutine ends while locked to it.
func startFromLastingThread(cmd *exec.Cmd) error {
	starter.once.Do(func() {
		starter.jobs = make(chan func())
		go func() {
			runtime.LockOSThread()
			for job := range starter.jobs {
				job()
			}
		}()
	})
	result := make(chan error)
	starter.jobs <- func() { result <- cmd.Start() }
	return <-result
}

var starter struct {
	once sync.Once
	jobs chan func()
}

// freePorts returns a loopback port for a server of version v and one for its cluster bus, both free a moment ago and
// never handed out before in this process.
func freePorts(v Version) (port, busPort int, err error) {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	for range 100 {
		first, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, 0, err
		}
		port := first.Addr().(*net.TCPAddr).Port
		bus := "127.0.0.1:0"
		if v == Redis62 { // has no cluster-port: its bus is where it always was
			bus = fmt.Sprintf("127.0.0.1:%d", port+10000)
		}
		second, err := net.Listen("tcp", bus)
		_ = first.Close()
		if err != nil {
			continue
		}
		busPort := second.Addr().(*net.TCPAddr).Port
		_ = second.Close()
		if ports.used[port] || ports.used[busPort] {
			continue
		}
		ports.used[port], ports.used[busPort] = true, true
		return port, busPort, nil
	}
	return 0, 0, errors.New("no free pair of loopback ports in 100 tries")
}

var ports = struct {
	mu   sync.Mutex
	used map[int]bool
}{used: map[int]bool{}}

func portTaken(err error) bool {
	return strings.Contains(err.Error(), "Address already in use")
}

// permanent marks an error that no further try will mend.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// patience bounds every wait for a server: long, for the machine may be busy, since a wait ends as soon as it can.
const patience = 60 * time.Second

// poll calls f until it returns nil or a permanent error, or patience ends; then the last error is returned.
func poll(f func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return nil
		}
		if errors.As(err, new(permanent)) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v: %w", patience, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu    sync.Mutex
	bytes []byte
}

var _ io.Writer = (*tail)(nil)

const tailBytes = 4096

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes = append(t.bytes, b...)
	if extra := len(t.bytes) - tailBytes; extra > 0 {
		t.bytes = append(t.bytes[:0], t.bytes[extra:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.bytes)
}
