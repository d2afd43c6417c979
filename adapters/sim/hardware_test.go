package sim_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/adapters/bmc"
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

// toldAlike checks that the controller tells what the machine itself does, as far as its kind tells at all.
func (d driven) toldAlike(t *testing.T, h node.Hardware) {
	t.Helper()
	kind := d.Spec().Personality
	cpu := node.CPU{Model: "Simulated CPU", Architecture: "x86_64", Sockets: 2, Threads: d.Spec().Cores}
	if h.CPU == nil || *h.CPU != cpu {
		t.Errorf("%+v; want %+v", h.CPU, cpu)
	}
	if h.Firmware == nil || h.Firmware.BootMode != node.BootUEFI || h.Firmware.SecureBoot == nil || *h.Firmware.SecureBoot || h.Firmware.Version == "" {
		t.Errorf("%+v", h.Firmware)
	}
	if (h.TPM == nil) != (kind == bmcsim.Supermicro) || h.TPM != nil && h.TPM.Version != "2.0" {
		t.Errorf("%+v", h.TPM)
	}
	for i, n := range h.NICs {
		want := map[bmcsim.Name]node.LinkState{bmcsim.HPE: "", bmcsim.Supermicro: node.LinkDown, bmcsim.AMI: node.LinkDown}
		if link, other := want[kind]; other && (n.Link != link || n.SpeedMbps != 0) {
			t.Errorf("%+v; want %q", n, link)
		} else if inside := d.Spec().NICs[i]; !other && (n.Link != inside.Link || n.SpeedMbps != inside.SpeedMbps) {
			t.Errorf("%+v; inside it is %+v", n, inside)
		}
	}
	if kind == bmcsim.AMI || kind == bmcsim.Supermicro {
		return
	}
	for i, disk := range h.Disks {
		if diff := cmp.Diff(d.Spec().Disks[i].Info.Told(), disk, cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "Path" }, cmp.Ignore())); diff != "" {
			t.Error(diff)
		}
	}
}

// How a controller says that the machine boots follows what it was told; what it does not know, it leaves open.
func TestTheBootModeFromOutside(t *testing.T) {
	eachDriven(t, func(t *testing.T, d driven) {
		d.SetBoot(bmcsim.Boot{Enabled: "Disabled", Target: "None", Mode: "Legacy"})
		found, err := d.bmc.(bmc.Inspector).Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := node.BootBIOS
		if d.Spec().Personality == bmcsim.AMI {
			want = "" // its settings do not tell
		}
		if f := found.Hardware.Firmware; f == nil || f.BootMode != want || want == node.BootBIOS && f.SecureBoot != nil {
			t.Errorf("%+v; want %q", f, want)
		}
	})
}
