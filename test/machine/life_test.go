//go:build qemu

package machine

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/better-compute/metal/test/machine/qemu"
)

// soil fills a disk with what a wipe has to take away: a partition table and a filesystem, and a mark in the middle.
func soil(t *testing.T, b *Bench, m *Machine) {
	t.Helper()
	image := OSImage(t)
	b.Write(m, 0, 0, image)
	b.Write(m, 0, int64(len(image)), []byte("what the customer left"))
}

// isOff fails where a machine still has power.
func isOff(t *testing.T, m *Machine) {
	t.Helper()
	if m.State().On {
		t.Errorf("%s still has power", m.Name)
	}
}

// isWiped fails where a disk holds any of what firmware or an OS looks for.
func isWiped(t *testing.T, b *Bench, m *Machine) {
	t.Helper()
	disk := b.Disk(m, 0)
	ends := bytes.Join([][]byte{disk[:1<<20], disk[len(disk)-1<<20:]}, nil)
	if i := bytes.IndexFunc(ends, func(r rune) bool { return r != 0 }); i >= 0 {
		t.Errorf("%s: there is something at %d of the ends of its disk", m.Name, i)
	}
	for _, mark := range []string{"EFI PART", "FAT32   ", "cidata", "CD001"} {
		if at := bytes.Index(disk, []byte(mark)); at >= 0 {
			t.Errorf("%s: %q is on its disk, at %d", m.Name, mark, at)
		}
	}
}

// Firmware of the old kind, network boot, wipe, image, kexec; and back.
func TestALifeUnderBIOS(t *testing.T) {
	b := Start(t)
	m := b.Add(func(*qemu.Spec) {})
	soil(t, b, m)
	b.Enroll(m)
	n := b.WaitState(m.Node, "ready")
	isOff(t, m)
	isWiped(t, b, m)
	if n.Hardware.InBand == nil || len(n.Hardware.InBand.Disks) != 1 || n.Hardware.InBand.Disks[0].Serial != m.Facts().Disks[0].Serial {
		t.Errorf("the inventory from inside is %+v", n.Hardware.InBand)
	}
	proven(t, b, m)

	b.Deploy(m.Node)
	b.WaitState(m.Node, "deployed")
	if !m.State().On {
		t.Error("the machine is deployed and has no power")
	}
	isDeployed(t, b, m)

	b.Undeploy(m.Node, "quick")
	b.WaitState(m.Node, "ready")
	isOff(t, m)
	isWiped(t, b, m)
	proven(t, b, m)
	b.Verify()
}

// isDeployed holds the disk against the image: all of it is there but what the OS wrote itself, and the config drive; and the
// OS has said that it runs.
func isDeployed(t *testing.T, b *Bench, m *Machine) {
	t.Helper()
	const from, to = 1 << 20, (imageMiB - 2) << 20 // the partition that the firmware starts
	image, disk := OSImage(t), b.Disk(m, 0)
	if sha256.Sum256(disk[from:to]) != sha256.Sum256(image[from:to]) {
		t.Error("the disk holds something else than the image")
	}
	if own := string(disk[to:][:32]); !strings.HasPrefix(own, "labos booted 1 times") {
		t.Errorf("the OS says %q", own)
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
