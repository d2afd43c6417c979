//go:build qemu

package machine

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/test/machine/netns"
	"github.com/better-compute/metal/test/machine/qemu"
)

// soil fills every disk with what a wipe has to take away: a partition table and a filesystem, and a mark in the middle.
func soil(t *testing.T, b *Bench, m *Machine) {
	t.Helper()
	for i := range m.spec.Disks {
		b.Write(m, i, 0, b.image)
		b.Write(m, i, int64(len(b.image)), []byte("what the customer left"))
	}
}

// isOff fails where a machine still has power.
func isOff(t *testing.T, m *Machine) {
	t.Helper()
	if m.State().On {
		t.Errorf("%s still has power", m.Name)
	}
}

// isWiped fails where a disk holds any of what firmware or an OS looks for. What is in the middle of a disk that gives no blocks
// back, and that nothing tells of any more, a quick wipe leaves there.
func isWiped(t *testing.T, b *Bench, m *Machine) {
	t.Helper()
	for n, d := range m.spec.Disks {
		disk := b.Disk(m, n)
		ends := bytes.Join([][]byte{disk[:1<<20], disk[len(disk)-1<<20:]}, nil)
		if i := bytes.IndexFunc(ends, func(r rune) bool { return r != 0 }); i >= 0 {
			t.Errorf("%s: there is something at %d of the ends of disk %d", m.Name, i, n)
		}
		if strings.Contains(d.Drive, ignoresDiscard) {
			continue
		}
		for _, mark := range []string{"EFI PART", "FAT32   ", "cidata", "CD001"} {
			if at := bytes.Index(disk, []byte(mark)); at >= 0 {
				t.Errorf("%s: %q is on disk %d, at %d", m.Name, mark, n, at)
			}
		}
	}
}

// ignoresDiscard has QEMU give no block back, and say that it did.
const ignoresDiscard = "discard=ignore"

// Two machines side by side have lives: there are no more than two processors to emulate them on.
func TestLives(t *testing.T) {
	b := Start(t)
	old := b.Add(func(*qemu.Spec) {})
	modern := b.Add(func(s *qemu.Spec) { s.UEFI, s.TPM, s.Disks[0].Bus = true, true, qemu.NVMe })
	late := b.Add(func(s *qemu.Spec) { s.Arguments = append(s.Arguments, "-rtc", "base=2041-05-06T07:08:09") })
	t.Run("side by side", func(t *testing.T) {
		t.Run("BIOS", func(t *testing.T) {
			t.Parallel()
			lifeUnderBIOS(t, b.on(t), old)
			// A clock that is years ahead makes every certificate look expired: the machine takes the gateway's time, and joins.
			ready(t, b.on(t), late)
		})
		t.Run("UEFI", func(t *testing.T) {
			t.Parallel()
			lifeUnderUEFI(t, b.on(t), modern)
		})
	})
	b.Verify()
}

// Firmware of the old kind, network boot, wipe, image, kexec; and back.
func lifeUnderBIOS(t *testing.T, b *Bench, m *Machine) {
	t.Helper()
	ready(t, b, m)
	deployed(t, b, m)
	released(t, b, m, "quick")
}

// Firmware of the new kind, a disk of the kind that erases itself, and the OS started once more, by the firmware.
func lifeUnderUEFI(t *testing.T, b *Bench, m *Machine) {
	t.Helper()
	ready(t, b, m)
	deployed(t, b, m)

	first, starts := b.osBoot(m, ""), m.State().Boots
	_, err := b.Client.Power(t.Context(), m.Node, contract.Power{Action: "reset"})
	b.must(err)
	b.osBoot(m, first)
	if said := osSaid(b, m); !strings.HasPrefix(said, "labos booted 2 times") || m.State().Boots != starts+1 {
		t.Errorf("the OS says %q, and the machine had %d starts, then %d", said, starts, m.State().Boots)
	}
	released(t, b, m, "secure-erase")
}

// ready hands a machine with a used disk over.
func ready(t *testing.T, b *Bench, m *Machine) {
	t.Helper()
	soil(t, b, m)
	b.Enroll(m)
	n := b.WaitState(m.Node, "ready")
	isOff(t, m)
	isWiped(t, b, m)
	isInventoried(t, m, n.Hardware.InBand)
	proven(t, b, m)
}

// isInventoried holds the inventory from inside against what the machine is made of.
func isInventoried(t *testing.T, m *Machine, h *node.Hardware) {
	t.Helper()
	if h == nil || len(h.Disks) != len(m.spec.Disks) || len(h.NICs) != 1 || len(h.NUMA) != 1 || h.CPU == nil || h.Firmware == nil {
		t.Errorf("the inventory from inside is %+v", h)
		return
	}
	for _, d := range m.spec.Disks {
		isListed(t, d, h.Disks)
	}
	driver := "virtio_net"
	if strings.HasPrefix(m.spec.Card, "e1000") {
		driver = "e1000"
	}
	if p := h.NICs[0]; p.MAC != m.spec.MAC || p.Driver != driver || p.Link != node.LinkUp {
		t.Errorf("the port is %+v", p)
	}
	var neighbor *node.LLDPNeighbor
	if m.Port != "" {
		neighbor = &node.LLDPNeighbor{ChassisID: netns.SwitchID, PortID: m.Port, SystemName: netns.Bridge}
	}
	if diff := cmp.Diff(neighbor, h.NICs[0].LLDP); diff != "" {
		t.Error(diff)
	}
	if part := h.NUMA[0]; h.Cores != 1 || h.CPU.Threads != 1 || h.CPU.Sockets != 1 || h.CPU.Architecture != "x86_64" || h.CPU.Model == "" ||
		part.Cores != 1 || part.MemoryBytes == 0 || part.MemoryBytes > h.MemoryBytes+h.MemoryBytes/10 {
		t.Errorf("the processors are %d of %+v, %+v", h.Cores, h.CPU, h.NUMA)
	}
	mode := node.BootBIOS
	if m.spec.UEFI {
		mode = node.BootUEFI
	}
	if f := h.Firmware; f.Vendor == "" || f.Version == "" || f.BootMode != mode || (f.SecureBoot != nil) != m.spec.UEFI ||
		f.SecureBoot != nil && *f.SecureBoot {
		t.Errorf("the firmware is %+v", f)
	}
	if (h.TPM != nil) != m.spec.TPM || h.TPM != nil && h.TPM.Version != "2.0" {
		t.Errorf("the TPM is %+v", h.TPM)
	}
}

// transports are how disks are reached: those on SCSI through a virtio adapter.
var transports = map[qemu.Bus]string{qemu.Virtio: "virtio", qemu.NVMe: "nvme", qemu.SCSI: "virtio", qemu.IDE: "sata"}

func isListed(t *testing.T, want qemu.Disk, listed []node.Disk) {
	t.Helper()
	at := slices.IndexFunc(listed, func(d node.Disk) bool { return d.Serial == want.Serial })
	if at < 0 {
		t.Errorf("there is no disk %s in %+v", want.Serial, listed)
		return
	}
	d := listed[at]
	if d.Transport != transports[want.Bus] || d.Bytes != want.Bytes || d.Rotational == nil || *d.Rotational == (want.Bus == qemu.NVMe) {
		t.Errorf("the disk is %+v", d)
	}
}

func deployed(t *testing.T, b *Bench, m *Machine) {
	t.Helper()
	b.Deploy(m.Node)
	b.WaitState(m.Node, "deployed")
	if !m.State().On {
		t.Error("the machine is deployed and has no power")
	}
	isDeployed(t, b, m)
}

func released(t *testing.T, b *Bench, m *Machine, wipe string) {
	t.Helper()
	b.Undeploy(m.Node, wipe)
	b.WaitState(m.Node, "ready")
	isOff(t, m)
	isWiped(t, b, m)
	proven(t, b, m)
}

// osSaid is what the OS has written about itself.
func osSaid(b *Bench, m *Machine) string {
	return string(b.Disk(m, m.System)[(imageMiB-2)<<20:][:32])
}

// isDeployed holds the disk against the image: all of it is there but what the OS wrote itself, and the config drive; and the
// OS has said that it runs.
func isDeployed(t *testing.T, b *Bench, m *Machine) {
	t.Helper()
	const from, to = 1 << 20, (imageMiB - 2) << 20 // the partition that the firmware starts
	if sha256.Sum256(b.Disk(m, m.System)[from:to]) != sha256.Sum256(b.image[from:to]) {
		t.Error("the disk holds something else than the image")
	}
	if said := osSaid(b, m); !strings.HasPrefix(said, "labos booted 1 times") {
		t.Errorf("the OS says %q", said)
	}
}

// proven fails where no signed wipe of the machine is known.
func proven(t *testing.T, b *Bench, m *Machine) {
	t.Helper()
	out, err := b.Metalctl("attestation", m.Node, "-o", "json")
	if err != nil || !strings.Contains(out, `"verified": true`) {
		t.Errorf("the proof of the wipe: %v\n%s", err, out)
	}
}
