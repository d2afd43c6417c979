package sim

import (
	"fmt"
	"path"
	"slices"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/adapters/sim/bmcsim"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
)

// Fault is something that goes wrong. Several may be set at once; each strikes by counting.
type Fault struct {
	Machine string       `json:"machine,omitempty"` // name or glob; empty: every machine
	Rule    *bmcsim.Rule `json:"rule,omitempty"`    // of the controller

	DeadDisk      *DeadDisk `json:"deadDisk,omitempty"`
	HungBoots     int       `json:"hungBoots,omitempty"` // so many of the next boots hang after the self-test
	WrongNICOrder bool      `json:"wrongNicOrder,omitempty"`
	AgentDiesAt   *Death    `json:"agentDiesAt,omitempty"`
	// HangsAt is a kind of order that comes to no end: the agent is at it until it is told to stop.
	HangsAt         agentcommand.KindName `json:"hangsAt,omitempty"`
	NoRejoin        bool                  `json:"noRejoin,omitempty"`        // the installed OS starts, its agent does not
	IgnoresShutdown bool                  `json:"ignoresShutdown,omitempty"` // the power button, and with it every graceful end
	BadMemory       bool                  `json:"badMemory,omitempty"`       // found by trying it
	Heal            bool                  `json:"heal,omitempty"`            // first takes every fault away
}

// DeadDisk is a disk that is broken.
type DeadDisk struct {
	Disk int      `json:"disk"` // its number, from 0
	Mode DiskMode `json:"mode"`
}

// DiskMode is how a disk is broken.
type DiskMode string

// The modes.
const (
	WritesFail   DiskMode = "writes-fail"
	ReadsFail    DiskMode = "reads-fail"
	ReadsGarbage DiskMode = "reads-garbage"
	DiscardLies  DiskMode = "discard-lies" // says that it reads as zeroes, and keeps the bytes
	EraseLies    DiskMode = "erase-lies"
	EraseFails   DiskMode = "erase-fails"
)

// DiskModes lists the modes.
var DiskModes = []DiskMode{WritesFail, ReadsFail, ReadsGarbage, DiscardLies, EraseLies, EraseFails}

// Death is when the agent dies: at the nth order of a kind that a machine gets, before it does anything or once it is done
// and before anybody is told. The machine stays on, with nobody to talk to.
type Death struct {
	Kind  agentcommand.KindName `json:"kind"`
	Nth   int                   `json:"nth,omitempty"`   // from 1; 0 is 1
	After bool                  `json:"after,omitempty"` // the work is done
}

// faults are what is wrong with one machine. Its lock guards them.
type faults struct {
	hungBoots     int
	wrongNICOrder bool
	deaths        []*death
	hangsAt       []agentcommand.KindName
	noRejoin      bool
	deaf          bool
	badMemory     bool
}

type death struct {
	Death
	seen int
}

func (f Fault) check(disks int) error {
	var issues []fault.Issue
	if d := f.DeadDisk; d != nil {
		if !slices.Contains(DiskModes, d.Mode) {
			issues = append(issues, fault.Issue{Path: "deadDisk.mode", Message: fmt.Sprintf("%q is none of %v", d.Mode, DiskModes)})
		}
		if d.Disk < 0 || d.Disk >= disks {
			issues = append(issues, fault.Issue{Path: "deadDisk.disk", Message: fmt.Sprintf("there are %d disks", disks)})
		}
	}
	if f.AgentDiesAt != nil {
		if _, ok := agentcommand.Find(agentcommand.Kinds, f.AgentDiesAt.Kind); !ok {
			issues = append(issues, fault.Issue{Path: "agentDiesAt.kind", Message: fmt.Sprintf("there is no kind %q", f.AgentDiesAt.Kind)})
		}
	}
	if _, ok := agentcommand.Find(agentcommand.Kinds, f.HangsAt); !ok && f.HangsAt != "" {
		issues = append(issues, fault.Issue{Path: "hangsAt", Message: fmt.Sprintf("there is no kind %q", f.HangsAt)})
	}
	if f.HungBoots < 0 {
		issues = append(issues, fault.Issue{Path: "hungBoots", Message: "is negative"})
	}
	if len(issues) > 0 {
		return fault.Invalid(issues...)
	}
	return nil
}

// Inject makes something go wrong on the machines that the fault names, from now on.
func (s *Site) Inject(f Fault) error {
	if _, err := path.Match(f.Machine, ""); err != nil {
		return fault.Invalid(fault.Issue{Path: "machine", Message: "is not a glob"})
	}
	var hit []*Machine
	for _, m := range s.machines {
		if ok, _ := path.Match(f.Machine, m.spec.Name); ok || f.Machine == "" {
			hit = append(hit, m)
		}
	}
	if len(hit) == 0 {
		return fault.New(fault.NotFound, "there is no machine %q", f.Machine).
			WithRemedy("list the machines, and name one or a glob such as machine-*")
	}
	for _, m := range hit {
		if err := f.check(len(m.drives)); err != nil {
			return err
		}
	}
	for _, m := range hit {
		m.inject(f)
	}
	return nil
}

// Inject makes something go wrong on this machine; the fault's Machine does not matter.
func (m *Machine) Inject(f Fault) error {
	if err := f.check(len(m.drives)); err != nil {
		return err
	}
	m.inject(f)
	return nil
}

func (m *Machine) inject(f Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.Heal {
		m.heal()
	}
	if f.Rule != nil {
		m.rules.Add(*f.Rule)
	}
	if f.DeadDisk != nil {
		m.drives[f.DeadDisk.Disk].fail(f.DeadDisk.Mode)
	}
	if f.AgentDiesAt != nil {
		m.faults.deaths = append(m.faults.deaths, &death{Death: *f.AgentDiesAt})
	}
	if f.HangsAt != "" {
		m.faults.hangsAt = append(m.faults.hangsAt, f.HangsAt)
	}
	m.faults.hungBoots += f.HungBoots
	m.faults.wrongNICOrder = m.faults.wrongNICOrder || f.WrongNICOrder
	m.faults.noRejoin = m.faults.noRejoin || f.NoRejoin
	m.faults.deaf = m.faults.deaf || f.IgnoresShutdown
	m.faults.badMemory = m.faults.badMemory || f.BadMemory
}

func (m *Machine) heal() {
	m.faults = faults{}
	m.rules.Clear()
	for _, d := range m.drives {
		d.heal()
	}
}

// dies tells whether an order of a kind is the agent's last, and when.
func (m *Machine) dies(kind agentcommand.KindName) (dies, after bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.faults.deaths {
		if d.Kind != kind {
			continue
		}
		if d.seen++; d.seen == max(d.Nth, 1) {
			m.say(KindFault, "the agent dies at "+string(kind))
			return true, d.After
		}
	}
	return false, false
}

// hangs tells whether orders of a kind come to no end.
func (m *Machine) hangs(kind agentcommand.KindName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.faults.hangsAt, kind)
}

func (d *drive) fail(mode DiskMode) {
	d.mu.Lock()
	defer d.mu.Unlock()
	broken := func(what string) func(int64, int64) error {
		return func(offset, _ int64) error { return fmt.Errorf("%s error at %d: input/output error", what, offset) }
	}
	switch mode {
	case WritesFail:
		d.faults.Write = broken("write")
	case ReadsFail:
		d.faults.Read = broken("read")
	case ReadsGarbage:
		d.garbage = true
	case DiscardLies:
		d.faults.LyingDiscard = true
	case EraseLies:
		d.faults.LyingErase = true
	case EraseFails:
		d.faults.Erase = func() error { return fmt.Errorf("erase: input/output error") }
	}
	d.SetFaults(d.faults)
}

func (d *drive) heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.garbage, d.faults = false, disk.Faults{}
	d.SetFaults(d.faults)
}

func errNoDisk(machine string, number int) error {
	return fault.New(fault.NotFound, "%s has no disk %d", machine, number)
}
