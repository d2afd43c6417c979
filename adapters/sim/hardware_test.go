package sim_test

import (
	"testing"

	"github.com/better-compute/metal/adapters/sim"
	"github.com/better-compute/metal/adapters/sim/bmcsim"
	"github.com/better-compute/metal/domain/node"
)

// From inside, a machine tells all that a real one does, and what its controller tells is the same.
func TestTheInventoryFromInside(t *testing.T) {
	m, runs, a := installed(t, sim.Config{})
	h, err := a.o.Machine.Hardware(t.Context())
	if err != nil || h.CPU == nil || h.Firmware == nil || h.Firmware.SecureBoot == nil || h.TPM == nil || h.TPM.Version != "2.0" {
		t.Fatalf("%+v, %v", h, err)
	}
	if facts := m.Facts(); h.Cores != facts.Cores || h.CPU.Threads != h.Cores || h.MemoryBytes != facts.MemoryBytes {
		t.Errorf("%+v, and the controller says %+v", h, facts)
	}
	cores, memory := 0, int64(0)
	for _, part := range h.NUMA {
		cores, memory = cores+part.Cores, memory+part.MemoryBytes
	}
	if len(h.NUMA) != h.CPU.Sockets || cores != h.Cores || memory != h.MemoryBytes {
		t.Errorf("%d cores and %d bytes in %+v", h.Cores, h.MemoryBytes, h.NUMA)
	}
	ports := map[string]bool{}
	for _, p := range h.NICs {
		if p.Driver == "" || p.Link != node.LinkUp || p.SpeedMbps == 0 || p.LLDP == nil || p.LLDP.SystemName == "" {
			t.Errorf("%+v", p)
			continue
		}
		ports[p.LLDP.ChassisID+" "+p.LLDP.PortID] = true
	}
	if len(ports) != len(h.NICs) || len(h.Devices) != len(h.NICs) {
		t.Errorf("%d ports in %v, with %+v", len(h.NICs), ports, h.Devices)
	}
	for i, d := range h.Disks {
		info := m.Spec().Disks[i].Info
		if d.Key() != info.Key() || d.Transport != info.Transport || d.Rotational == nil || *d.Rotational != info.Rotational {
			t.Errorf("%+v of %+v", d, info)
		}
	}
	if h.Firmware.BootMode != node.BootUEFI {
		t.Errorf("%+v", h.Firmware)
	}
	m.SetBoot(bmcsim.Boot{Enabled: "Once", Target: "Hdd", Mode: "Legacy"})
	reset(t, m, bmcsim.ForceRestart)
	if h, err = runs.next(t).o.Machine.Hardware(t.Context()); err != nil || h.Firmware.BootMode != node.BootBIOS || h.Firmware.SecureBoot != nil {
		t.Errorf("%+v, %v", h.Firmware, err)
	}
}

// What is odd is still shared out whole.
func TestAnOddMachine(t *testing.T) {
	m, _, a := installed(t, sim.Config{Machines: []sim.MachineSpec{{Cores: 7, MemoryBytes: 1<<30 + 1}}})
	h, err := a.o.Machine.Hardware(t.Context())
	if err != nil || h.NUMA[0].Cores != 4 || h.NUMA[1].Cores != 3 || h.NUMA[0].MemoryBytes+h.NUMA[1].MemoryBytes != m.Spec().MemoryBytes {
		t.Errorf("%+v, %v", h.NUMA, err)
	}
}
