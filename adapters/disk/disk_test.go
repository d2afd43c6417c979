package disk_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/node"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mib = 1 << 20

func quiet(float64, string) {}

func newDisk(bytes int64, means disk.Means) *disk.Memory {
	return disk.NewMemory(disk.Info{Disk: node.Disk{Path: "/dev/sda", Serial: "S1", Bytes: bytes}}, means)
}

// garbage is what nobody wrote twice.
func garbage(n int, seed uint64) []byte {
	p := make([]byte, n)
	random := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = random.Read(p)
	return p
}

func write(t *testing.T, d disk.Device, at int64, p []byte) {
	t.Helper()
	if _, err := d.WriteAt(p, at); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, d disk.Device, at int64, n int) []byte {
	t.Helper()
	p := make([]byte, n)
	if _, err := d.ReadAt(p, at); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return p
}

// A Memory holds what a plain slice of bytes would.
func TestMemoryIsLikeASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 100_000
		model, d := make([]byte, size), newDisk(size, disk.Means{Discard: true, DiscardsToZero: true})
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			at := rapid.Int64Range(0, size-1).Draw(t, "at")
			n := rapid.Int64Range(0, size-at).Draw(t, "n")
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				p := bytes.Repeat([]byte{byte(rapid.IntRange(0, 2).Draw(t, "byte"))}, int(n))
				copy(model[at:], p)
				if _, err := d.WriteAt(p, at); err != nil {
					t.Fatal(err)
				}
			case 1:
				clear(model[at : at+n])
				if err := d.WriteZeroes(context.Background(), at, n); err != nil {
					t.Fatal(err)
				}
			case 2:
				clear(model[at : at+n])
				if zero, err := d.Discard(context.Background(), at, n); err != nil || !zero {
					t.Fatal(zero, err)
				}
			}
		}
		got := make([]byte, size)
		if _, err := d.ReadAt(got, 0); err != nil || !bytes.Equal(got, model) {
			t.Fatalf("it differs; %v", err)
		}
	})
}

func TestMemoryEndsAsADiskDoes(t *testing.T) {
	d := newDisk(1000, disk.Means{})
	if n, err := d.WriteAt(make([]byte, 20), 990); n != 10 || !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("write: %d, %v", n, err)
	}
	if n, err := d.ReadAt(make([]byte, 20), 990); n != 10 || !errors.Is(err, io.EOF) {
		t.Errorf("read: %d, %v", n, err)
	}
	if n, err := d.ReadAt(make([]byte, 1), 1000); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("read beyond: %d, %v", n, err)
	}
}

func TestMemoryCostsWhatWasWritten(t *testing.T) {
	d := newDisk(1<<40, disk.Means{})
	write(t, d, 1<<39, garbage(mib, 1))
	if got := d.Allocated(); got > 2*mib {
		t.Errorf("%d bytes for one MiB", got)
	}
	write(t, d, 1<<39, make([]byte, mib))
	if got := d.Allocated(); got > 64<<10 {
		t.Errorf("%d bytes for nothing", got)
	}
}

// fill puts data where superblocks are, and in between.
func fill(t *testing.T, d disk.Device) {
	t.Helper()
	size := d.Info().Bytes
	for i, at := range []int64{0, 1024, 64 << 10, 32 << 20, 64 << 20, 100 << 20, size / 2, size - 64<<10} {
		write(t, d, at, garbage(32<<10, uint64(i)))
	}
}

func TestWipe(t *testing.T) {
	const size = 256 * mib
	for name, c := range map[string]struct {
		method   node.WipeMethod
		means    disk.Means
		faults   disk.Faults
		readBack bool
		reason   string
		empty    bool // nothing at all is left
	}{
		"quick":                       {node.WipeQuick, disk.Means{}, disk.Faults{}, true, "", false},
		"quick, with discard":         {node.WipeQuick, disk.Means{Discard: true, DiscardsToZero: true}, disk.Faults{}, true, "", true},
		"quick, discard lies":         {node.WipeQuick, disk.Means{Discard: true, DiscardsToZero: true}, disk.Faults{LyingDiscard: true}, true, "", false},
		"secure by the device":        {node.WipeSecureErase, disk.Means{SecureErase: true}, disk.Faults{}, true, "", true},
		"secure by overwriting":       {node.WipeSecureErase, disk.Means{}, disk.Faults{}, true, "", true},
		"secure, the device lies":     {node.WipeSecureErase, disk.Means{SecureErase: true}, disk.Faults{LyingErase: true}, false, "still holds", false},
		"secure, the device fails":    {node.WipeSecureErase, disk.Means{SecureErase: true}, disk.Faults{Erase: func() error { return errors.New("frozen") }}, false, "frozen", false},
		"crypto":                      {node.WipeCryptoErase, disk.Means{CryptoErase: true}, disk.Faults{}, true, "", true},
		"crypto, never anything less": {node.WipeCryptoErase, disk.Means{SecureErase: true, Discard: true, DiscardsToZero: true}, disk.Faults{}, false, "nothing weaker", false},
		"crypto, the device lies":     {node.WipeCryptoErase, disk.Means{CryptoErase: true}, disk.Faults{LyingErase: true}, false, "still holds", false},
		"writes fail":                 {node.WipeQuick, disk.Means{}, disk.Faults{Write: func(at, _ int64) error { return failAt(at, 64*mib) }}, false, "medium error", false},
		"reads fail":                  {node.WipeQuick, disk.Means{}, disk.Faults{Read: func(at, _ int64) error { return failAt(at, 64*mib) }}, false, "medium error", false},
		"no such method":              {node.WipeNone, disk.Means{}, disk.Faults{}, false, "no wipe method", false},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(size, c.means)
			fill(t, d)
			d.SetFaults(c.faults)
			disks, err := disk.Wipe(t.Context(), []disk.Device{d}, disk.Wiping{Method: c.method, Seed: 1}, quiet)
			if err != nil || len(disks) != 1 {
				t.Fatal(disks, err)
			}
			got := disks[0]
			if got.ReadBack != c.readBack || !strings.Contains(got.Reason, c.reason) || (c.reason == "") != (got.Reason == "") {
				t.Errorf("got %+v", got)
			}
			if c.readBack && got.Method != c.method {
				t.Errorf("the method is %s", got.Method)
			}
			d.SetFaults(disk.Faults{})
			for _, at := range []int64{0, 1024, 64 << 10, 64 << 20, size - 64<<10} {
				if c.readBack && !bytes.Equal(read(t, d, at, 32<<10), make([]byte, 32<<10)) {
					t.Errorf("at %d there is still something", at)
				}
			}
			if c.empty && d.Allocated() > 0 {
				t.Errorf("%d bytes are left", d.Allocated())
			}
		})
	}
}

// told is a disk that says how it erases itself.
type told struct{ *disk.Memory }

func (told) ErasedBy() string { return node.ByNVMeFormat }

// The method leaves a choice, which whoever audits a wipe wants to know.
func TestAWipeTellsWhatItWasDoneBy(t *testing.T) {
	erases, discards := disk.Means{SecureErase: true, CryptoErase: true}, disk.Means{Discard: true}
	for _, c := range []struct {
		method node.WipeMethod
		d      disk.Device
		want   string
	}{
		{node.WipeQuick, newDisk(16*mib, disk.Means{}), node.ByZeroes},
		{node.WipeQuick, newDisk(16*mib, discards), node.ByDiscard},
		{node.WipeSecureErase, newDisk(16*mib, discards), node.ByOverwrite},
		{node.WipeSecureErase, newDisk(16*mib, erases), node.ByDevice},
		{node.WipeSecureErase, told{newDisk(16*mib, erases)}, node.ByNVMeFormat},
		{node.WipeSecureErase, told{newDisk(16*mib, disk.Means{})}, node.ByOverwrite},
		{node.WipeCryptoErase, told{newDisk(16*mib, erases)}, node.ByNVMeFormat},
		{node.WipeCryptoErase, told{newDisk(16*mib, disk.Means{})}, ""},
	} {
		got, err := disk.Wipe(t.Context(), []disk.Device{c.d}, disk.Wiping{Method: c.method, Seed: 1}, quiet)
		if err != nil || got[0].By != c.want || got[0].ReadBack != (c.want != "") {
			t.Errorf("%s: %+v, %v; want %q", c.method, got, err, c.want)
		}
	}
}

// Who asks for more than a disk can do has lost nothing.
func TestARefusedWipeChangesNothing(t *testing.T) {
	d := newDisk(8*mib, disk.Means{SecureErase: true, Discard: true})
	want := garbage(8*mib, 1)
	write(t, d, 0, want)
	got, err := disk.Wipe(t.Context(), []disk.Device{d}, disk.Wiping{Method: node.WipeCryptoErase, Seed: 1}, quiet)
	if err != nil || got[0].ReadBack || got[0].Method != node.WipeNone || !strings.Contains(got[0].Reason, "nothing weaker") {
		t.Errorf("got %+v, %v", got, err)
	}
	if !bytes.Equal(read(t, d, 0, len(want)), want) {
		t.Error("it is not what it was")
	}
}

// Two ways to one disk look like two disks: they are worked on one after the other, and both are told of.
func TestTwoWaysToOneDisk(t *testing.T) {
	one := newDisk(64*mib, disk.Means{})
	write(t, one, 0, garbage(mib, 1))
	devices := []disk.Device{one, one, one}
	parts, err := disk.Burn(t.Context(), devices, agentcommand.Burnin{Bytes: 8 * mib}, 1, quiet)
	if err != nil || len(parts) != len(devices) {
		t.Fatal(parts, err)
	}
	for _, p := range parts {
		if p.Errors != 0 {
			t.Errorf("burn-in: %+v", p)
		}
	}
	disks, err := disk.Wipe(t.Context(), devices, disk.Wiping{Method: node.WipeSecureErase, Seed: 1}, quiet)
	if err != nil || len(disks) != len(devices) {
		t.Fatal(disks, err)
	}
	for _, d := range disks {
		if !d.ReadBack || d.Reason != "" {
			t.Errorf("wipe: %+v", d)
		}
	}
}

// A disk that does not tell its size is broken or locked, and may be full of data: it is the machine's, and nothing about it is
// proven.
func TestADiskWithoutASizeIsTheMachines(t *testing.T) {
	d := disk.NewMemory(disk.Info{Disk: node.Disk{Path: "/dev/sdb", Serial: "dead"}}, disk.Means{SecureErase: true, CryptoErase: true})
	if why := d.Info().Reported(); why != "" {
		t.Errorf("it is left out: %s", why)
	}
	for _, method := range []node.WipeMethod{node.WipeQuick, node.WipeSecureErase, node.WipeCryptoErase} {
		got, err := disk.Wipe(t.Context(), []disk.Device{d}, disk.Wiping{Method: method, Seed: 1}, quiet)
		if err != nil || got[0].ReadBack || got[0].Method != node.WipeNone || !strings.Contains(got[0].Reason, "size") {
			t.Errorf("%s: %+v, %v", method, got, err)
		}
	}
	parts, err := disk.Burn(t.Context(), []disk.Device{d}, agentcommand.Burnin{}, 1, quiet)
	if err != nil || len(parts) != 1 || parts[0].Errors != 1 || !strings.Contains(parts[0].Detail, "size") {
		t.Errorf("burn-in: %+v, %v", parts, err)
	}
	if got, err := disk.ChooseRoot([]disk.Device{d}, agentcommand.RootDisk{}, 0); err == nil {
		t.Errorf("an image would go to %v", got.Info())
	}
}

func failAt(at, where int64) error {
	if at >= where && at < where+mib {
		return errors.New("medium error")
	}
	return nil
}

// A disk that says it wrote and did not is found out.
func TestAWriteThatDoesNothing(t *testing.T) {
	d := &deaf{Memory: newDisk(64*mib, disk.Means{})}
	write(t, d.Memory, 0, garbage(mib, 1))
	disks, err := disk.Wipe(t.Context(), []disk.Device{d}, disk.Wiping{Method: node.WipeQuick, Seed: 1}, quiet)
	if err != nil || disks[0].ReadBack || !strings.Contains(disks[0].Reason, "not empty") {
		t.Errorf("got %+v, %v", disks, err)
	}
}

// deaf is a disk that takes writes and forgets them.
type deaf struct{ *disk.Memory }

func (d *deaf) WriteAt(p []byte, _ int64) (int, error)          { return len(p), nil }
func (d *deaf) WriteZeroes(context.Context, int64, int64) error { return nil }

// Every device is told of, in its order; what is not the machine's own is left alone.
func TestWipeAccountsForEveryDevice(t *testing.T) {
	devices := []disk.Device{}
	for _, i := range []disk.Info{
		{Disk: node.Disk{Serial: "stick", Bytes: 64 * mib}, Removable: true},
		{Disk: node.Disk{Serial: "agent", Bytes: 64 * mib}, AgentMedia: true},
		{Disk: node.Disk{Serial: "locked", Bytes: 64 * mib}, ReadOnly: true},
		{Disk: node.Disk{Serial: "slot"}},
		{Disk: node.Disk{Serial: "tiny", Bytes: 100_000}},
		{Disk: node.Disk{Serial: "real", Bytes: 64 * mib}},
	} {
		d := disk.NewMemory(i, disk.Means{})
		if i.Bytes > 0 && !i.ReadOnly {
			write(t, d, 0, garbage(4096, 1))
		}
		devices = append(devices, d)
	}
	got, err := disk.Wipe(t.Context(), devices, disk.Wiping{Method: node.WipeQuick, Seed: 1}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{false, false, false, false, true, true} {
		left := !bytes.Equal(read(t, devices[i], 0, 4096), make([]byte, 4096))
		if got[i].Disk != devices[i].Info().Disk || got[i].ReadBack != want || (got[i].Reason == "") != want {
			t.Errorf("got %+v", got[i])
		}
		if i < 2 && !left {
			t.Errorf("%s was touched", got[i].Disk.Serial)
		}
	}
}

// worn is a worn disk: it takes all that is written and keeps none of it, and says that it erased itself.
type worn struct{ *disk.Memory }

func (worn) WriteAt(p []byte, _ int64) (int, error)           { return len(p), nil }
func (worn) WriteZeroes(context.Context, int64, int64) error  { return nil }
func (worn) SecureErase(context.Context, disk.Progress) error { return nil }
func (worn) CryptoErase(context.Context, disk.Progress) error { return nil }

// Its data are where no superblock is: nothing but the canaries tells that it was not erased.
func TestADiskThatKeepsNothingIsNotErased(t *testing.T) {
	for _, method := range []node.WipeMethod{node.WipeSecureErase, node.WipeCryptoErase} {
		d := newDisk(64*mib, disk.Means{})
		write(t, d, 20*mib, garbage(mib, 3))
		got, err := disk.Wipe(t.Context(), []disk.Device{worn{d}}, disk.Wiping{Method: method, Seed: 1}, quiet)
		if err != nil || got[0].ReadBack || !strings.Contains(got[0].Reason, "does not keep it") {
			t.Errorf("%s: %+v, %v", method, got, err)
		}
	}
}

// gfs2 is what GFS2 is recognised by.
var gfs2 = []byte{1, 0x16, 0x19, 0x70, 0, 0, 0, 1}

// mbr writes a table of one partition, which begins at a sector.
func mbr(t *testing.T, d disk.Device, at int64, kind byte, first uint32) {
	t.Helper()
	table := make([]byte, 512)
	table[446+4] = kind
	binary.LittleEndian.PutUint32(table[446+8:], first)
	binary.LittleEndian.PutUint32(table[446+12:], 2048)
	table[510], table[511] = 0x55, 0xaa
	write(t, d, at, table)
}

// A table that can't be read may tell of a partition with a shared filesystem.
func TestADiskWhoseTableCannotBeReadIsNotTouched(t *testing.T) {
	for name, sector := range map[string]int64{"MBR": 0, "GPT": 512, "its backup": 64*mib - 512} {
		d := newDisk(64*mib, disk.Means{})
		writes := 0
		d.SetFaults(disk.Faults{
			Read: func(offset, length int64) error {
				if offset <= sector && sector < offset+length {
					return errors.New("medium error")
				}
				return nil
			},
			Write: func(int64, int64) error { writes++; return nil },
		})
		got, err := disk.Wipe(t.Context(), []disk.Device{d}, disk.Wiping{Method: node.WipeQuick, Seed: 1}, quiet)
		if err != nil || got[0].ReadBack || writes > 0 || !strings.Contains(got[0].Reason, `"shared": true`) {
			t.Errorf("%s: %d writes, %+v, %v", name, writes, got, err)
		}
	}
}

// W32: a disk that other machines may use at the same time is not touched, whatever was asked.
func TestASharedDiskIsNotTouched(t *testing.T) {
	gpt := func(kind []byte) func(t *testing.T, d disk.Device) {
		return func(t *testing.T, d disk.Device) {
			write(t, d, 0, gptImage(d.Info().Bytes, kind)[:mib])
		}
	}
	for name, plant := range map[string]func(t *testing.T, d disk.Device){
		"VMFS on the whole disk":  func(t *testing.T, d disk.Device) { write(t, d, mib, []byte{0x0d, 0xd0, 0x01, 0xc0}) },
		"GFS2 on the whole disk":  func(t *testing.T, d disk.Device) { write(t, d, 64<<10, gfs2) },
		"OCFS2 on the whole disk": func(t *testing.T, d disk.Device) { write(t, d, 8<<10, []byte("OCFSV2")) },
		"VMFS by its partition":   gpt([]byte{0x2a, 0xe0, 0x31, 0xaa, 0x0f, 0x40, 0xdb, 0x11, 0x95, 0x90, 0, 0x0c, 0x29, 0x11, 0xd1, 0xb8}),
		"GPFS by its partition":   gpt([]byte{0x90, 0xfc, 0xaf, 0x37, 0x7d, 0xef, 0x96, 0x4e, 0x91, 0xc3, 0x2d, 0x7a, 0xe0, 0x55, 0xb1, 0x74}),
		"VMFS by an MBR":          func(t *testing.T, d disk.Device) { mbr(t, d, 0, 0xfb, 2048) },
		"GFS2 in a partition of a disk with sectors of 4 KiB, by an MBR": func(t *testing.T, d disk.Device) {
			mbr(t, d, 0, 0x83, 256)
			write(t, d, mib+64<<10, gfs2)
		},
		"GFS2 in a logical partition": func(t *testing.T, d disk.Device) {
			mbr(t, d, 0, 0x05, 2048)
			mbr(t, d, mib, 0x83, 2048)
			write(t, d, 2*mib+64<<10, gfs2)
		},
		"GFS2 in a partition": func(t *testing.T, d disk.Device) {
			gpt(linuxData)(t, d)
			write(t, d, 2*mib+64<<10, gfs2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(64*mib, disk.Means{CryptoErase: true, SecureErase: true, Discard: true, DiscardsToZero: true})
			plant(t, d)
			before := read(t, d, 0, 4*mib)
			for _, method := range []node.WipeMethod{node.WipeQuick, node.WipeSecureErase, node.WipeCryptoErase} {
				got, err := disk.Wipe(t.Context(), []disk.Device{d}, disk.Wiping{Method: method, Seed: 1}, quiet)
				if err != nil || got[0].ReadBack || !strings.Contains(got[0].Reason, "share") {
					t.Errorf("got %+v, %v", got, err)
				}
			}
			parts, err := disk.Burn(t.Context(), []disk.Device{d}, agentcommand.Burnin{Bytes: mib}, 1, quiet)
			if err != nil || parts[0].Errors == 0 {
				t.Errorf("burn-in: %+v, %v", parts, err)
			}
			image := garbage(2*mib, 1)
			_, err = disk.WriteImage(t.Context(), d, bytes.NewReader(image), imageOf("raw", image), quiet)
			if err == nil || !strings.Contains(err.Error(), "share") {
				t.Errorf("image: %v", err)
			}
			if !bytes.Equal(read(t, d, 0, 4*mib), before) {
				t.Error("it was touched")
			}
			parts, err = disk.Burn(t.Context(), []disk.Device{d}, agentcommand.Burnin{Bytes: mib, Shared: true}, 1, quiet)
			if err != nil || parts[0].Errors > 0 {
				t.Errorf("burn-in of what is this machine's alone: %+v, %v", parts, err)
			}
			plant(t, d)
			got, err := disk.Wipe(t.Context(), []disk.Device{d}, disk.Wiping{Method: node.WipeQuick, Shared: true}, quiet)
			if err != nil || !got[0].ReadBack {
				t.Errorf("a wipe of what is this machine's alone: %+v, %v", got, err)
			}
		})
	}
}

func TestBurn(t *testing.T) {
	d := newDisk(64*mib, disk.Means{})
	parts, err := disk.Burn(t.Context(), []disk.Device{d}, agentcommand.Burnin{Bytes: 3 * mib}, 1, quiet)
	if err != nil || parts[0].Errors != 0 || parts[0].Bytes != 3*mib || d.Allocated() > 0 {
		t.Errorf("got %+v, %v; %d bytes are left", parts, err, d.Allocated())
	}
	// Every block goes to the first place: each is fine by itself.
	folded := &folded{newDisk(64*mib, disk.Means{})}
	parts, err = disk.Burn(t.Context(), []disk.Device{folded}, agentcommand.Burnin{Bytes: 3 * mib}, 1, quiet)
	if err != nil || parts[0].Errors != 2 {
		t.Errorf("got %+v, %v", parts, err)
	}
	d.SetFaults(disk.Faults{Read: func(int64, int64) error { return errors.New("medium error") }})
	if parts, _ = disk.Burn(t.Context(), []disk.Device{d}, agentcommand.Burnin{Bytes: mib}, 1, quiet); parts[0].Errors == 0 {
		t.Errorf("got %+v", parts)
	}
}

// slow is a disk that takes its time.
type slow struct {
	*disk.Memory
	each time.Duration
}

func (s slow) WriteAt(p []byte, at int64) (int, error) {
	time.Sleep(s.each)
	return s.Memory.WriteAt(p, at)
}

func (s slow) ReadAt(p []byte, at int64) (int, error) {
	if len(p) == mib {
		time.Sleep(s.each)
	}
	return s.Memory.ReadAt(p, at)
}

// A time is a limit, also for a disk that can't be gone through in it; and one that can is gone through again.
func TestABurnInKeepsToItsTime(t *testing.T) {
	for name, c := range map[string]struct {
		size, most, least int64
		each              time.Duration
	}{
		"too large for it":      {1 << 40, 30 * mib, 29 * mib, time.Second},
		"much too large for it": {1 << 40, mib, mib, time.Hour},
		"small enough":          {4 * mib, 30 * mib, 28 * mib, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := slow{newDisk(c.size, disk.Means{}), c.each}
				last := 0.0
				parts, err := disk.Burn(t.Context(), []disk.Device{d}, agentcommand.Burnin{Duration: 60}, 1, func(percent float64, _ string) {
					if percent < last {
						t.Errorf("%v after %v percent", percent, last)
					}
					last = percent
				})
				if err != nil || parts[0].Errors != 0 || parts[0].Bytes < c.least || parts[0].Bytes > c.most || last < 95 {
					t.Errorf("got %+v, %v, %v", parts, err, last)
				}
				if took := parts[0].Took.Duration(); took > time.Minute+2*c.each {
					t.Errorf("it took %v", took)
				}
				if d.Allocated() > 0 {
					t.Errorf("%d bytes are left", d.Allocated())
				}
			})
		})
	}
}

type folded struct{ *disk.Memory }

func (f *folded) WriteAt(p []byte, _ int64) (int, error) { return f.Memory.WriteAt(p, 0) }
func (f *folded) ReadAt(p []byte, _ int64) (int, error)  { return f.Memory.ReadAt(p, 0) }

// A disk that holds more than anybody reaches is emptied as far as it goes, and not called empty.
func TestADiskThatHidesSomething(t *testing.T) {
	d := newDisk(64*mib, disk.Means{})
	d.SetFaults(disk.Faults{Hidden: "100 sectors are set apart"})
	if _, err := d.WriteAt([]byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	got, err := disk.Wipe(t.Context(), []disk.Device{d}, disk.Wiping{Method: node.WipeQuick, Seed: 1}, quiet)
	if err != nil || got[0].ReadBack || got[0].Reason != "100 sectors are set apart" || read(t, d, 0, 1)[0] != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// Each boot may find the disks in another order.
func TestTheRootDiskIsTheSameAtEachBoot(t *testing.T) {
	for _, paths := range [][2]string{{"/dev/nvme0n1", "/dev/nvme1n1"}, {"/dev/nvme1n1", "/dev/nvme0n1"}} {
		var devices []disk.Device
		for i, serial := range []string{"N1", "N2"} {
			devices = append(devices, disk.NewMemory(disk.Info{Disk: node.Disk{Path: paths[i], Serial: serial, Model: "M", Bytes: 200}}, disk.Means{}))
		}
		if got, err := disk.ChooseRoot(devices, agentcommand.RootDisk{}, 1); err != nil || got.Info().Serial != "N1" {
			t.Errorf("%v: %v, %v", paths, got, err)
		}
	}
}

// Some disks have one serial number: a hint that is one names none of them. Two ways to one disk are one.
func TestASerialNumberThatSeveralDisksHave(t *testing.T) {
	for name, c := range map[string]struct {
		wwns  [2]string
		hints agentcommand.RootDisk
		want  string
	}{
		"two disks":            {[2]string{"1", "2"}, agentcommand.RootDisk{Serial: "S"}, ""},
		"two disks, and a WWN": {[2]string{"1", "2"}, agentcommand.RootDisk{Serial: "S", WWN: "2"}, "2"},
		"two disks, no hint":   {[2]string{"1", "2"}, agentcommand.RootDisk{}, "1"},
		"two ways":             {[2]string{"1", "1"}, agentcommand.RootDisk{Serial: "S"}, "1"},
	} {
		var devices []disk.Device
		for i, wwn := range c.wwns {
			info := disk.Info{Disk: node.Disk{Path: fmt.Sprintf("/dev/sd%c", 'a'+i), Serial: "S", WWN: wwn, Bytes: 200}}
			devices = append(devices, disk.NewMemory(info, disk.Means{}))
		}
		got, err := disk.ChooseRoot(devices, c.hints, 1)
		if (c.want == "") != (err != nil) || err == nil && got.Info().WWN != c.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestChooseRoot(t *testing.T) {
	yes, no := true, false
	var devices []disk.Device
	for _, i := range []disk.Info{
		{Disk: node.Disk{Path: "/dev/sdb", Serial: "BIG", Model: "Acme 9000", WWN: "0x5000c500a", Bytes: 400}, Rotational: true},
		{Disk: node.Disk{Path: "/dev/nvme1n1", Serial: "N2", Model: "Fast", WWN: "eui.0025", Bytes: 200}},
		{Disk: node.Disk{Path: "/dev/nvme0n1", Serial: "N1", Model: "Fast", Bytes: 200}},
		{Disk: node.Disk{Path: "/dev/sdc", Serial: "STICK", Bytes: 100}, Removable: true},
		{Disk: node.Disk{Path: "/dev/sdd", Serial: "LOCKED", Bytes: 150}, ReadOnly: true},
	} {
		devices = append(devices, disk.NewMemory(i, disk.Means{}))
	}
	for name, c := range map[string]struct {
		hints agentcommand.RootDisk
		need  int64
		want  string
	}{
		"the smallest, the first of two": {agentcommand.RootDisk{}, 50, "N1"},
		"that holds the image":           {agentcommand.RootDisk{}, 201, "BIG"},
		"of a least size":                {agentcommand.RootDisk{MinimumBytes: 300}, 1, "BIG"},
		"by serial":                      {agentcommand.RootDisk{Serial: " n2"}, 1, "N2"},
		"by WWN, written otherwise":      {agentcommand.RootDisk{WWN: "5000C500A"}, 1, "BIG"},
		"by part of the model":           {agentcommand.RootDisk{Model: "9000"}, 1, "BIG"},
		"by name":                        {agentcommand.RootDisk{Name: "nvme1n1"}, 1, "N2"},
		"rotational":                     {agentcommand.RootDisk{Rotational: &yes}, 1, "BIG"},
		"not rotational":                 {agentcommand.RootDisk{Rotational: &no}, 1, "N1"},
		"all hints must match":           {agentcommand.RootDisk{Serial: "N1", Rotational: &yes}, 1, ""},
		"never a stick":                  {agentcommand.RootDisk{Serial: "STICK"}, 1, ""},
		"never a read-only one":          {agentcommand.RootDisk{Serial: "LOCKED"}, 1, ""},
		"too large for all":              {agentcommand.RootDisk{}, 1000, ""},
		"no WWN is not a disk without":   {agentcommand.RootDisk{WWN: "0x"}, 1, ""},
		"a blank is no serial":           {agentcommand.RootDisk{Serial: " "}, 1, ""},
		"nor a model":                    {agentcommand.RootDisk{Model: " "}, 1, ""},
	} {
		got, err := disk.ChooseRoot(devices, c.hints, c.need)
		if (c.want == "") != (err != nil) || (err == nil && got.Info().Serial != c.want) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}
