//go:build !linux

package testserver

import "os/exec"

// endWithParent does nothing where the kernel has no such service: there a killed test process leaves its servers, and
// servers that the tests of a package share end only by Run.
func endWithParent(*exec.Cmd) {}
