package sim

import (
	"context"
	"slices"
	"sync"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/adapters/sim/bmcsim"
	"github.com/better-compute/metal/domain/node"
)

// Machine is one simulated machine.
type Machine struct {
	site        *Site
	spec        MachineSpec
	address     string // of the controller: https://host:port
	host        string
	fingerprint string
	drives      []*drive
	service     *bmcsim.Service
	rules       *bmcsim.Rules

	mu      sync.Mutex
	state   bmcsim.State
	running Running
	os      string
	bootID  string
	boots   int // every start of a program, for boot ids
	life    *life
	asking  func(ending) // the running system's answer to the power button; the lock is held
	faults  faults
	entries []Entry
	orders  []Ordered
	changed chan struct{}
}

// Running is what runs on a machine.
type Running string

// What may run.
const (
	Nothing  Running = ""         // off, or nothing to boot
	Firmware Running = "firmware" // POST, or looking for something to boot
	Ramdisk  Running = "ramdisk"
	OS       Running = "os"
)

// View is a machine as it is now.
type View struct {
	Power   node.Power  `json:"power"`
	Running Running     `json:"running,omitempty"`
	OS      string      `json:"os,omitempty"` // its name
	BootID  string      `json:"bootId,omitempty"`
	Boots   int         `json:"boots"` // programs started
	Boot    bmcsim.Boot `json:"boot"`
	Media   string      `json:"media,omitempty"`
}

func (m *Machine) view() View {
	v := View{Power: node.PowerOff, Running: m.running, OS: m.os, BootID: m.bootID, Boots: m.boots, Boot: m.state.Boot}
	if m.state.On {
		v.Power = node.PowerOn
	}
	for _, media := range m.state.Media {
		if media.Inserted {
			v.Media = media.Image
		}
	}
	return v
}

// View is the machine as it is now.
func (m *Machine) View() View {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view()
}

// Power tells whether the machine is on.
func (m *Machine) Power() node.Power { return m.View().Power }

// Spec is what the machine is made of, with everything filled in.
func (m *Machine) Spec() MachineSpec { return m.spec }

// Name is the machine's name in its site.
func (m *Machine) Name() string { return m.spec.Name }

// BMC is the controller's address: https://host:port.
func (m *Machine) BMC() string { return m.address }

// Fingerprint is the SHA-256 of the controller's certificate, in lower-case hex.
func (m *Machine) Fingerprint() string { return m.fingerprint }

// MACs lists the addresses of the machine's ports.
func (m *Machine) MACs() []string {
	macs := make([]string, 0, len(m.spec.NICs))
	for _, n := range m.spec.NICs {
		macs = append(macs, n.MAC)
	}
	return macs
}

// BMCSessions tells how many logins at the controller are open, and how many were at most.
func (m *Machine) BMCSessions() (open, most int) { return m.service.Sessions() }

// BMCRequests tells how many requests the controller has seen.
func (m *Machine) BMCRequests() int { return m.rules.Requests() }

// newMachine makes a machine that is off, its controller not yet serving.
func newMachine(site *Site, spec MachineSpec) (*Machine, error) {
	m := &Machine{site: site, spec: spec, changed: make(chan struct{})}
	m.state.Boot = bmcsim.Boot{Enabled: "Disabled", Target: "None", Mode: "UEFI"}
	m.rules = &bmcsim.Rules{Sleep: site.config.Clock.Sleep}
	for i, d := range spec.Disks {
		drive, err := newDrive(site.config.DiskDir, spec.Name, i, d)
		if err != nil {
			return m, err
		}
		m.drives = append(m.drives, drive)
	}
	return m, nil
}

// Facts is what the controller tells about the machine.
func (m *Machine) Facts() bmcsim.Facts {
	s := m.spec
	f := bmcsim.Facts{
		Serial: s.Serial, UUID: s.UUID, Tag: "SIM-1U", Host: m.host, Username: s.Username, Password: s.Password,
		Cores: s.Cores, MemoryBytes: s.MemoryBytes, TPM: "TPM2_0",
	}
	if s.Personality == bmcsim.Dell { // the board's serial number; what the machine itself calls its own is the service tag
		f.Serial, f.Tag = "CNSIM00"+s.Serial, s.Serial
	}
	for _, n := range s.NICs {
		f.NICs = append(f.NICs, bmcsim.NIC{Name: n.Name, MAC: n.MAC, SpeedMbps: n.SpeedMbps})
	}
	for _, d := range s.Disks {
		f.Disks = append(f.Disks, bmcsim.Disk{
			Name: d.Info.Path, Model: d.Info.Model, Serial: d.Info.Serial, WWN: d.Info.WWN, Bytes: d.Info.Bytes,
			Rotational: d.Info.Rotational, Transport: d.Info.Transport,
		})
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
	m.say(KindBoot, "override "+b.Enabled+" "+b.Target+" "+b.Mode)
}

// SetMedia changes what is in a virtual drive.
func (m *Machine) SetMedia(slot int, media bmcsim.Media) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.Media[slot] = media
	m.say(KindBoot, "virtual drive holds "+orNothing(media.Image))
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

// ReadDisk reads from a disk as if it had been taken out: past faults and without power.
func (m *Machine) ReadDisk(number int, offset, length int64) ([]byte, error) {
	if number < 0 || number >= len(m.drives) {
		return nil, errNoDisk(m.spec.Name, number)
	}
	b := make([]byte, length)
	n, err := m.drives[number].ReadAt(b, offset)
	return b[:n], err
}

// WriteDisk writes to a disk as if it had been taken out.
func (m *Machine) WriteDisk(number int, offset int64, b []byte) error {
	if number < 0 || number >= len(m.drives) {
		return errNoDisk(m.spec.Name, number)
	}
	_, err := m.drives[number].WriteAt(b, offset)
	return err
}

// await waits until the machine's life is over.
func (l *life) await() {
	if l != nil {
		<-l.done
	}
}

// life is the time from one power-on to the next power-off.
type life struct {
	ctx  context.Context
	end  context.CancelCauseFunc
	on   *current
	done chan struct{}
}

// order is where a machine looks for something to boot.
func (m *Machine) order(first Device) []Device {
	if first == "" {
		return m.spec.BootOrder
	}
	rest := slices.DeleteFunc(slices.Clone(m.spec.BootOrder), func(d Device) bool { return d == first })
	return append([]Device{first}, rest...)
}

// Disk is one of the machine's disks, from 0, as if it had been taken out: it needs no power. Nil where there is none.
func (m *Machine) Disk(number int) disk.Device {
	if number < 0 || number >= len(m.drives) {
		return nil
	}
	return port{m.drives[number], &current{}}
}
