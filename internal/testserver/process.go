package testserver

import (
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
)

// Process is a program that may be started many times over, one run at a time. The fields are read by each Start.
type Process struct {
	Path  string
	Args  []string
	Dir   string   // where it runs; "" is the test's own folder
	Env   []string // beside the test's own environment
	Input string   // what it reads from standard input

	mu     sync.Mutex
	cmd    *exec.Cmd // nil before the first run
	ended  chan struct{}
	output *tail
	paused bool
}

// Start starts the program, which must not be running. The error, that there is no such program say, is Permanent.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	cmd, output, ended := exec.Command(p.Path, p.Args...), &tail{}, make(chan struct{})
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = p.Dir, strings.NewReader(p.Input), output, output
	cmd.Env = append(os.Environ(), p.Env...)
	endWithParent(cmd)
	if err := startFromLastingThread(cmd); err != nil {
		return Permanent{err}
	}
	go func() {
		_ = cmd.Wait() // how it ended is in its output
		close(ended)
	}()
	p.cmd, p.output, p.ended, p.paused = cmd, output, ended, false
	return nil
}

// Running says whether the program runs and is not paused.
func (p *Process) Running() bool {
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

// Kill ends the program at once (SIGKILL) and returns when it is gone. It does nothing if it does not run.
func (p *Process) Kill() { p.end(syscall.SIGKILL) }

// Terminate asks the program to end (SIGTERM) and returns when it is gone.
func (p *Process) Terminate() { p.end(syscall.SIGTERM) }

func (p *Process) end(signal os.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(signal) // fails only if it has ended, which is what we want
		<-p.ended
	}
}

// Pause stops the program (SIGSTOP): its connections stay open and nothing answers.
func (p *Process) Pause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = true
	return p.cmd.Process.Signal(syscall.SIGSTOP)
}

// Resume lets a paused program go on (SIGCONT).
func (p *Process) Resume() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = false
	return p.cmd.Process.Signal(syscall.SIGCONT)
}

// PID returns the number of the process that was started last.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// Output returns the last 64 KiB that the last run has written to standard output and standard error.
func (p *Process) Output() string {
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

// tail keeps the end of what is written to it.
type tail struct {
	mu    sync.Mutex
	bytes []byte
}

var _ io.Writer = (*tail)(nil)

const tailBytes = 64 << 10

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
