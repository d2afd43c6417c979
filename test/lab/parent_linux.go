package lab

import (
	"os/exec"
	"syscall"
)

// endWithParent lets a program die with the test that started it, however that ends.
func endWithParent(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
