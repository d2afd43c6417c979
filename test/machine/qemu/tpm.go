package qemu

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// plugTPM has an emulated TPM run beside QEMU, and gives the end of their connection that QEMU inherits. What the TPM keeps is in the
// machine's folder.
func (m *Machine) plugTPM(l *life, said *os.File) (control *os.File, err error) {
	state := m.variables() + ".tpm"
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, err
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	control, theirs := os.NewFile(uintptr(ends[0]), "tpm"), os.NewFile(uintptr(ends[1]), "tpm")
	l.tpm = exec.Command(m.assets.TPM(), "socket", "--tpm2", "--terminate", "--tpmstate", "dir="+state, "--ctrl", "type=unixio,clientfd=3")
	l.tpm.Env = append(os.Environ(), m.assets.Environ()...)
	l.tpm.Stdout, l.tpm.Stderr, l.tpm.ExtraFiles = said, said, []*os.File{theirs}
	l.tpm.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return control, nil
}

// tpmArguments has QEMU find its TPM at a file that it inherits.
func tpmArguments(file int) []string {
	return []string{
		"-chardev", "socket,id=tpm,fd=" + strconv.Itoa(file), "-tpmdev", "emulator,id=tpm0,chardev=tpm", "-device", "tpm-tis,tpmdev=tpm0",
	}
}
