package qemu

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/better-compute/metal/adapters/sim/bmcsim"
)

// life is one QEMU process: from power-on, or a reset, to the next.
type life struct {
	process *os.Process
	monitor net.Conn
	tpm     *exec.Cmd     // nil: the machine has none
	ended   chan struct{} // the process is gone
	reason  string        // why the machine stopped, as QEMU says; read once ended is closed
	took    time.Duration // of processors; as reason
}

// powerOn starts QEMU. A boot override for once is used up by it. The lock is held.
func (m *Machine) powerOn() error {
	override := m.state.Boot
	if override.Enabled == "Once" {
		m.state.Boot = bmcsim.Boot{Enabled: "Disabled", Target: "None", Mode: override.Mode}
	}
	l, err := m.launch(m.arguments(override))
	if err != nil {
		m.say("no power: " + err.Error())
		return err
	}
	m.life, m.state.On = l, true
	m.state.Boots++
	m.state.Started = time.Now()
	m.say("on, boots from " + bootFrom(override))
	go m.watch(l)
	return nil
}

// watch sees how the machine ends by itself. QEMU ends at a reset too, so that each start is one with its own override.
func (m *Machine) watch(l *life) {
	<-l.ended
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.life != l {
		return // the power was cut
	}
	m.life, m.state.On, m.took = nil, false, m.took+l.took
	m.say("ended: " + l.reason)
	if l.reason == "guest-reset" {
		_ = m.powerOn() // an error is in the history, and the machine is off
	}
}

// cutPower ends QEMU at once, as if the current went away. The lock is held.
func (m *Machine) cutPower() {
	if m.life == nil {
		return
	}
	l := m.life
	m.life, m.state.On = nil, false
	_ = l.process.Kill() // it may have ended
	<-l.ended
	m.took += l.took
	m.say("power cut")
}

// press is the power button: what runs may listen to it. The lock is held.
func (m *Machine) press() {
	if m.life != nil {
		_, _ = io.WriteString(m.life.monitor, `{"execute": "system_powerdown"}`+"\n") // QEMU may have ended
	}
}

// Tell sends QEMU a command of its monitor, such as set_link.
func (m *Machine) Tell(command string, arguments map[string]any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tell(command, arguments)
}

// tell is Tell while the lock is held.
func (m *Machine) tell(command string, arguments map[string]any) error {
	text, err := json.Marshal(map[string]any{"execute": command, "arguments": arguments})
	if err != nil {
		return err
	}
	if m.life == nil {
		return fmt.Errorf("%s: the machine is off", command)
	}
	_, err = m.life.monitor.Write(append(text, '\n'))
	return err
}

// launch runs QEMU until it ends, or the test does.
func (m *Machine) launch(arguments []string) (*life, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close() //nolint:errcheck // QEMU has it
	said, err := os.OpenFile(m.complaints(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer said.Close() //nolint:errcheck // QEMU has it
	fmt.Fprintln(said, strings.Join(arguments, " "))
	c := exec.Command(m.assets.QEMU(), arguments...)
	c.Env = append(os.Environ(), m.assets.Environ()...)
	c.Stdout, c.Stderr = said, said
	c.ExtraFiles = []*os.File{theirs}
	if m.spec.Tap != nil {
		c.ExtraFiles = append(c.ExtraFiles, m.spec.Tap)
	}
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	l := &life{monitor: ours, ended: make(chan struct{})}
	if m.spec.TPM {
		control, err := m.plugTPM(l, said)
		if err != nil {
			return nil, err
		}
		defer control.Close() //nolint:errcheck // QEMU has it
		c.ExtraFiles = append(c.ExtraFiles, control)
	}
	started := make(chan error)
	go l.run(c, started)
	if err := <-started; err != nil {
		_ = ours.Close() // nobody is there
		return nil, err
	}
	return l, nil
}

// run keeps the thread that started QEMU until it ends: the signal at the parent's death comes at the end of that thread.
func (l *life) run(c *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if l.tpm != nil {
		if err := l.tpm.Start(); err != nil {
			started <- err
			return
		}
		defer func() { _ = l.tpm.Wait() }() // it ends with QEMU
	}
	err := c.Start()
	if err == nil {
		l.process = c.Process
	}
	started <- err
	if err != nil {
		return
	}
	read := make(chan string, 1)
	go func() { read <- reason(l.monitor) }()
	err = c.Wait()
	l.took = c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	l.reason = <-read // the monitor's end closes with the process
	if l.reason == "" {
		l.reason = fmt.Sprintf("QEMU ended: %v", err)
	}
	_ = l.monitor.Close() // it was read to its end
	close(l.ended)
}

// reason reads QEMU's monitor to its end, and gives why the machine stopped.
func reason(monitor net.Conn) (why string) {
	if _, err := io.WriteString(monitor, `{"execute": "qmp_capabilities"}`+"\n"); err != nil {
		return ""
	}
	for lines := json.NewDecoder(monitor); ; {
		var event struct {
			Event string `json:"event"`
			Data  struct {
				Reason string `json:"reason"`
			} `json:"data"`
		}
		if err := lines.Decode(&event); err != nil {
			return why
		}
		if event.Event == "SHUTDOWN" {
			why = event.Data.Reason
		}
	}
}

// pair is two ends of a connection, one of them for a process.
func pair() (ours net.Conn, theirs *os.File, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	file := os.NewFile(uintptr(ends[0]), "monitor")
	defer file.Close() //nolint:errcheck // the connection has its own
	theirs = os.NewFile(uintptr(ends[1]), "monitor")
	if ours, err = net.FileConn(file); err != nil {
		_ = theirs.Close() // it is of no use
		return nil, nil, err
	}
	return ours, theirs, nil
}
