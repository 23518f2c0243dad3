package testserver

import (
	"os/exec"
	"syscall"
)

// endWithParent has the kernel kill the server when the test process dies, however it dies.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
