// Package qemu is real machines: each is a QEMU process while it has power, behind a board that a management controller
// drives as it drives a simulated one.
package qemu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/better-compute/metal/adapters/sim/bmcsim"
	"github.com/better-compute/metal/test/machine/assets"
)

// Spec is what a machine is made of.
type Spec struct {
	Name, Serial, UUID string
	Username, Password string // of the controller
	Host               string // authority that clients reach the controller under
	MAC                string
	MemoryMiB          int
	UEFI               bool   // else BIOS
	TPM                bool   // of the second version
	Chipset            string // -machine of QEMU; empty: q35
	Disks              []Disk
	Card               string   // -device of QEMU that is its network card; empty: virtio-net-pci
	Network            string   // -netdev of QEMU, without its id
	Tap                *os.File // of that network; nil: it needs none
	Arguments          []string // further ones
	NetworkArguments   []string // further ones of a start that looks at the network first
}

// Disk is a file that the machine sees as a disk.
type Disk struct {
	Serial string
	Bytes  int64
	Drive  string // further options of QEMU's -drive, such as discard=ignore
	Bus    Bus
}

// Bus is what a disk hangs on.
type Bus string

// The buses. IDE is AHCI with q35, and has room for one disk with pc.
const (
	Virtio Bus = "" // unless another is chosen
	NVMe   Bus = "nvme"
	SCSI   Bus = "scsi"
	IDE    Bus = "ide"
)

// Machine is one machine. It is a bmcsim.Board.
type Machine struct {
	spec   Spec
	assets assets.Assets
	dir    string

	mu      sync.Mutex
	state   bmcsim.State
	life    *life
	changed chan struct{}
	history []string
	began   time.Time
	took    time.Duration // of processors, by what has ended
}

var _ bmcsim.Board = (*Machine)(nil)

// New makes a machine that is off, its empty disks in dir.
func New(a assets.Assets, dir string, spec Spec) (*Machine, error) {
	m := &Machine{spec: spec, assets: a, dir: dir, changed: make(chan struct{}), began: time.Now()}
	m.state.Boot = bmcsim.Boot{Enabled: "Disabled", Target: "None", Mode: "Legacy"}
	if spec.UEFI {
		m.state.Boot.Mode = "UEFI"
		variables, err := os.ReadFile(a.UEFIVariables())
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(m.variables(), variables, 0o600); err != nil {
			return nil, err
		}
	}
	for i, d := range spec.Disks {
		if err := os.WriteFile(m.DiskFile(i), nil, 0o600); err != nil {
			return nil, err
		}
		if err := os.Truncate(m.DiskFile(i), d.Bytes); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// DiskFile is the file with the bytes of a disk.
func (m *Machine) DiskFile(number int) string {
	return filepath.Join(m.dir, fmt.Sprintf("%s-disk%d.raw", m.spec.Name, number))
}

// ConsoleFile is everything that the machine has said on its serial port.
func (m *Machine) ConsoleFile() string { return filepath.Join(m.dir, m.spec.Name+"-console.log") }

func (m *Machine) variables() string { return filepath.Join(m.dir, m.spec.Name+"-variables.fd") }

func (m *Machine) complaints() string { return filepath.Join(m.dir, m.spec.Name+"-qemu.log") }

// Facts is what the controller tells about the machine.
func (m *Machine) Facts() bmcsim.Facts {
	s := m.spec
	f := bmcsim.Facts{
		Serial: s.Serial, UUID: s.UUID, Tag: "QEMU", Host: s.Host, Username: s.Username, Password: s.Password, Cores: 1,
		MemoryBytes: int64(s.MemoryMiB) << 20, NICs: []bmcsim.NIC{{Name: "nic0", MAC: s.MAC}},
	}
	for i, d := range s.Disks {
		f.Disks = append(f.Disks, bmcsim.Disk{Name: fmt.Sprintf("disk%d", i), Model: "QEMU", Serial: d.Serial, Bytes: d.Bytes})
	}
	return f
}

// State is the machine as the controller sees it.
func (m *Machine) State() bmcsim.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// SetBoot changes the boot override.
func (m *Machine) SetBoot(b bmcsim.Boot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.Boot = b
	m.say("override " + b.Enabled + " " + b.Target + " " + b.Mode)
}

// Reset does what a Redfish reset type says. Of the power it tells the truth only: it returns once QEMU runs, or has ended.
func (m *Machine) Reset(t bmcsim.ResetType) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.say("reset " + string(t))
	on := m.state.On
	switch t {
	case bmcsim.On, bmcsim.ForceOn:
		if !on {
			return m.powerOn()
		}
	case bmcsim.ForceOff:
		m.cutPower()
	case bmcsim.GracefulShutdown:
		m.press()
	case bmcsim.ForceRestart, bmcsim.GracefulRestart: // QEMU has no button that asks for a restart
		if !on {
			return errors.New("the machine is off")
		}
		m.cutPower()
		return m.powerOn()
	case bmcsim.PowerCycle:
		m.cutPower()
		return m.powerOn()
	case bmcsim.PushPowerButton:
		if !on {
			return m.powerOn()
		}
		m.press()
	default:
		return errors.New("there is no reset type " + string(t))
	}
	return nil
}

// say notes what happened. The lock is held.
func (m *Machine) say(text string) {
	m.history = append(m.history, fmt.Sprintf("%6.1f s, %5.1f of a processor: %s", time.Since(m.began).Seconds(), m.took.Seconds(), text))
	close(m.changed)
	m.changed = make(chan struct{})
}

// Changed is closed at the next change of the machine.
func (m *Machine) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// History is what happened to the machine: when, and how much of a processor it had taken up to its last start.
func (m *Machine) History() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.spec.Name + ":\n  " + strings.Join(m.history, "\n  ")
}

// Story is what happened to the machine, and what QEMU and the machine itself said of it: for a test that failed.
func (m *Machine) Story(lines int) string {
	return fmt.Sprintf("%s\nQEMU:\n%s\nconsole:\n%s", m.History(), tail(m.complaints(), lines), tail(m.ConsoleFile(), lines))
}

func tail(name string, lines int) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Close takes the power away.
func (m *Machine) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cutPower()
}
