package sim

import (
	"fmt"
	"strings"

	"github.com/better-compute/metal/adapters/sim/bmcsim"
	"github.com/better-compute/metal/domain/node"
)

// sockets is how many processors a machine has; its controller says the same.
const sockets = 2

// hardware is the inventory from inside.
func (m *Machine) hardware() node.Hardware {
	s := m.spec
	manufacturer, product := bmcsim.Maker(s.Personality)
	out := node.Hardware{
		Manufacturer: manufacturer, Product: product, Serial: s.Serial, UUID: s.UUID, Cores: s.Cores,
		CPU:         &node.CPU{Model: "Simulated CPU", Architecture: "x86_64", Sockets: sockets, Threads: s.Cores},
		MemoryBytes: s.MemoryBytes, TPM: &node.TPM{Version: "2.0"}, NICs: m.nics(),
		Firmware: &node.Firmware{Vendor: manufacturer, Version: "1.0", Date: "01/01/2026", BootMode: m.bootMode()},
	}
	if out.Firmware.BootMode == node.BootUEFI {
		enforced := false
		out.Firmware.SecureBoot = &enforced
	}
	for n := range sockets {
		share := func(all int64) int64 { return all/sockets + all%sockets*int64(1-min(n, 1)) } // the first has what is odd
		cores := int(share(int64(s.Cores)))
		out.NUMA = append(out.NUMA, node.NUMANode{Node: n, Cores: cores, Threads: cores, MemoryBytes: share(s.MemoryBytes)})
	}
	for _, d := range s.Disks {
		out.Disks = append(out.Disks, d.Info.Told())
	}
	for n := range out.NICs {
		out.Devices = append(out.Devices, node.Device{
			Class: "network", Vendor: "15b3", Product: "1017", Address: fmt.Sprintf("0000:%02x:00.0", 0x10+n),
		})
	}
	return out
}

// bootMode is how the firmware starts the machine: what its controller was told last.
func (m *Machine) bootMode() node.BootMode {
	m.mu.Lock()
	defer m.mu.Unlock()
	if strings.EqualFold(m.state.Boot.Mode, "Legacy") {
		return node.BootBIOS
	}
	return node.BootUEFI
}
