// Package linux is the machine under an agent in an installed OS: what /sys and /proc tell of it, and how it restarts.
// It reads only; what a ramdisk does to disks is not here.
package linux

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os/exec"
	"strings"

	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/adapters/disk/blockdev"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

// Machine is a Linux machine that runs its own OS.
type Machine struct {
	root fs.FS // the file system: sys and proc are below it
	boot string
}

// Open looks at the machine whose file system root is.
func Open(root fs.FS) (*Machine, error) {
	m := &Machine{root: root}
	if m.boot = m.text("proc/sys/kernel/random/boot_id"); m.boot == "" {
		return nil, fault.New(fault.InvalidConfig, "/proc/sys/kernel/random/boot_id can't be read: this is not Linux, or /proc is hidden")
	}
	return m, nil
}

// BootID is the kernel's.
func (m *Machine) BootID() string { return m.boot }

// Claims are the MACs of the real ports, what the firmware says of itself, and GPUs where their driver names them. The serial
// number and UUID are readable by root only.
func (m *Machine) Claims(context.Context) (protocol.Claims, error) {
	claims := protocol.Claims{ProductUUID: m.dmi("product_uuid"), Serial: m.dmi("product_serial"), GPUUUIDs: m.gpuUUIDs()}
	for _, nic := range m.nics() {
		claims.MACs = append(claims.MACs, nic.MAC)
	}
	return claims, nil
}

// Hardware is the inventory.
func (m *Machine) Hardware(context.Context) (node.Hardware, error) {
	threads, memory := m.threads(), kib(m.text("proc/meminfo"), "MemTotal:")
	if threads == 0 || memory == 0 {
		return node.Hardware{}, errors.New("/proc/cpuinfo and /proc/meminfo can't be read")
	}
	chips := m.topology()
	h := node.Hardware{
		Manufacturer: m.dmi("sys_vendor"), Product: m.dmi("product_name"), Serial: m.dmi("product_serial"),
		UUID: strings.ToLower(m.dmi("product_uuid")), Cores: cmp.Or(chips.cores(), threads), CPU: m.cpu(threads, chips),
		MemoryBytes: memory, NUMA: m.numa(chips), Firmware: m.firmware(), TPM: m.tpm(), NICs: m.nics(), Devices: m.devices(),
		Driverless: blockdev.Driverless(m.root),
	}
	disks, err := blockdev.Scan(m.root)
	if err != nil {
		return node.Hardware{}, err
	}
	for _, i := range disks {
		if i.Reported() == "" {
			h.Disks = append(h.Disks, i.Told())
		}
	}
	return h, nil
}

// Disks tells of every disk. Their content is the OS's: it can be neither read nor written here.
func (m *Machine) Disks(context.Context) (out []disk.Device, err error) {
	disks, err := blockdev.Scan(m.root)
	for _, i := range disks {
		out = append(out, seen{i})
	}
	return out, err
}

// Burn is for a ramdisk: the OS that runs here has other work.
func (m *Machine) Burn(context.Context, agentcommand.KindName, agentcommand.Burnin, disk.Progress) (agentcommand.Burned, error) {
	return agentcommand.Burned{}, disk.ErrUnsupported
}

// Kexec is for a ramdisk.
func (m *Machine) Kexec(context.Context, string) error { return disk.ErrUnsupported }

// Reboot asks the OS to restart in order.
func (m *Machine) Reboot(ctx context.Context) error { return m.end(ctx, "reboot") }

// PowerOff asks the OS to switch the machine off in order.
func (m *Machine) PowerOff(ctx context.Context) error { return m.end(ctx, "poweroff") }

// end asks systemd, and where there is none the command of that name.
func (m *Machine) end(ctx context.Context, how string) error {
	if systemctl, err := exec.LookPath("systemctl"); err == nil {
		return run(exec.CommandContext(ctx, systemctl, how)) //nolint:gosec // how is one of two constants
	}
	command, err := exec.LookPath(how)
	if err != nil {
		return fault.Wrap(err, fault.DriverError, "there is neither systemctl nor %s", how)
	}
	return run(exec.CommandContext(ctx, command)) //nolint:gosec // as above
}

func run(c *exec.Cmd) error {
	if out, err := c.CombinedOutput(); err != nil {
		return fault.Wrap(err, fault.DriverError, "%s: %v: %.200s", c.Path, err, out)
	}
	return nil
}

// seen is a disk that is only told of.
type seen struct{ info disk.Info }

func (s seen) Info() disk.Info                  { return s.info }
func (seen) ReadAt([]byte, int64) (int, error)  { return 0, disk.ErrUnsupported }
func (seen) WriteAt([]byte, int64) (int, error) { return 0, disk.ErrUnsupported }
func (seen) Sync(context.Context) error         { return disk.ErrUnsupported }
func (seen) Discard(context.Context, int64, int64) (bool, error) {
	return false, disk.ErrUnsupported
}
func (seen) SecureErase(context.Context, disk.Progress) error { return disk.ErrUnsupported }
func (seen) CryptoErase(context.Context, disk.Progress) error { return disk.ErrUnsupported }
