package qemu

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/better-compute/metal/adapters/sim/bmcsim"
)

// The numbers of the files that QEMU inherits.
const (
	monitorFile = 3
	tapFile     = 4
)

// tpmFile is the number of the TPM's.
func tpmFile(s Spec) int {
	if s.Tap == nil {
		return tapFile
	}
	return tapFile + 1
}

// bootFrom is where the firmware looks first.
func bootFrom(b bmcsim.Boot) string {
	if b.Enabled != "Disabled" {
		switch b.Target {
		case "Hdd":
			return "disk"
		case "Cd":
			return "cd"
		}
	}
	return "network"
}

// arguments is QEMU's command line for one start of the machine.
func (m *Machine) arguments(override bmcsim.Boot) []string {
	s := m.spec
	var a []string
	add := func(words ...string) { a = append(a, words...) }
	add("-nodefaults", "-no-user-config", "-machine", cmp.Or(s.Chipset, "q35")+",accel=tcg,graphics=off", "-smp", "1", "-m", strconv.Itoa(s.MemoryMiB))
	for _, dir := range m.assets.Data() {
		add("-L", dir)
	}
	add("-display", "none", "-name", s.Name, "-uuid", s.UUID, "-smbios", "type=1,manufacturer=QEMU,product=lab,serial="+s.Serial)
	add("-action", "reboot=shutdown")
	add("-chardev", "socket,id=monitor,fd="+strconv.Itoa(monitorFile), "-mon", "chardev=monitor,mode=control")
	add("-chardev", "file,id=console,append=on,path="+m.ConsoleFile(), "-serial", "chardev:console")
	add("-device", "virtio-rng-pci") // without entropy DHCP and TLS wait
	if s.UEFI {
		add("-drive", "if=pflash,unit=0,format=raw,readonly=on,file="+m.assets.UEFI())
		add("-drive", "if=pflash,unit=1,format=raw,file="+m.variables())
	}
	from := bootFrom(override)
	network, disk := 1, 2
	switch from {
	case "disk":
		network, disk = len(s.Disks)+1, 1
	case "network":
		add(s.NetworkArguments...)
	}
	add(m.opticalArguments(from == "cd")...)
	netdev := s.Network + ",id=net0"
	if s.Tap != nil {
		netdev += ",fd=" + strconv.Itoa(tapFile)
	}
	card := cmp.Or(s.Card, "virtio-net-pci")
	add("-netdev", netdev, "-device", fmt.Sprintf("%s,id=nic0,netdev=net0,mac=%s,bootindex=%d", card, s.MAC, network))
	for i := range s.Disks {
		add(m.diskArguments(i, disk+i)...)
	}
	if s.TPM {
		add(tpmArguments(tpmFile(s))...)
	}
	return append(a, s.Arguments...)
}

// diskArguments is one of the machine's disks, and its place in what the firmware looks at.
func (m *Machine) diskArguments(i, place int) (a []string) {
	d := m.spec.Disks[i]
	drive := []string{
		"if=none", "format=raw", fmt.Sprintf("id=disk%d", i), "file=" + m.DiskFile(i), "discard=unmap", "cache=writeback",
	}
	if d.Drive != "" {
		drive = append(drive, d.Drive) // of an option given twice the last counts
	}
	model := "virtio-blk-pci"
	switch d.Bus {
	case Virtio: // as it is
	case NVMe:
		model = "nvme"
	case SCSI:
		a = append(a, "-device", fmt.Sprintf("virtio-scsi-pci,id=scsi%d", i))
		model = fmt.Sprintf("scsi-hd,bus=scsi%d.0", i)
	case IDE:
		model = "ide-hd,bus=ide.1" // the optical drive is on ide.0
	}
	return append(a, "-drive", strings.Join(drive, ","),
		"-device", fmt.Sprintf("%s,drive=disk%d,serial=%s,bootindex=%d", model, i, d.Serial, place))
}
