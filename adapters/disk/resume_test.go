package disk_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/node"
)

// locked is a disk that a power cut left in the middle of its erase: it reads and writes nothing before it is resumed.
type locked struct {
	*disk.Memory
	open, foreign bool
}

func (l *locked) Resume(context.Context) error {
	if l.foreign {
		return errors.New("the disk is locked with a password that is not this agent's")
	}
	l.open = true
	return nil
}

func (l *locked) ReadAt(p []byte, offset int64) (int, error) {
	if !l.open {
		return 0, errors.New("locked")
	}
	return l.Memory.ReadAt(p, offset)
}

func (l *locked) WriteAt(p []byte, offset int64) (int, error) {
	if !l.open {
		return 0, errors.New("locked")
	}
	return l.Memory.WriteAt(p, offset)
}

func TestAWipeGoesOnWhereAnEraseWasCutShort(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		info := disk.Info{Disk: node.Disk{Path: "/dev/sda", Serial: "s", Bytes: 32 << 20}}
		d := &locked{Memory: disk.NewMemory(info, disk.Means{SecureErase: true}), foreign: foreign}
		got, err := disk.Wipe(t.Context(), []disk.Device{d}, disk.Wiping{Method: node.WipeSecureErase, Seed: 1}, func(float64, string) {})
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		if !foreign && (!got[0].ReadBack || got[0].Reason != "") || foreign && !strings.Contains(got[0].Reason, "password") {
			t.Errorf("foreign %v: %+v", foreign, got[0])
		}
	}
}

// The burn-in comes before the wipe: it must not stop at what the wipe would put right.
func TestABurnInOpensADiskThatAnEraseLeftLocked(t *testing.T) {
	info := disk.Info{Disk: node.Disk{Path: "/dev/sda", Serial: "s", Bytes: 32 << 20}}
	d := &locked{Memory: disk.NewMemory(info, disk.Means{})}
	parts, err := disk.Burn(t.Context(), []disk.Device{d}, agentcommand.Burnin{Bytes: 1 << 20}, 1, func(float64, string) {})
	if err != nil || len(parts) != 1 || parts[0].Errors != 0 {
		t.Errorf("got %+v, %v", parts, err)
	}
}

func TestADiskOnANetworkIsLeftAlone(t *testing.T) {
	info := disk.Info{Disk: node.Disk{Path: "/dev/sdb", Serial: "s", Bytes: 32 << 20}, Remote: true}
	d := disk.NewMemory(info, disk.Means{})
	if _, err := d.WriteAt([]byte("others' data"), 0); err != nil {
		t.Fatal(err)
	}
	got, err := disk.Wipe(t.Context(), []disk.Device{d}, disk.Wiping{Method: node.WipeQuick, Seed: 1}, func(float64, string) {})
	if err != nil || got[0].Method != node.WipeNone || !strings.Contains(got[0].Reason, "network") || d.Allocated() == 0 {
		t.Errorf("got %+v, %v; %d bytes are left", got, err, d.Allocated())
	}
}
