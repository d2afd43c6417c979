package disk_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/node"
)

// traced is a disk with what people leave on theirs: three tables, of which each tells of partitions that the others do not,
// and filesystems with superblocks all over. It gives where they are.
func traced(t *testing.T, means disk.Means) (d *disk.Memory, places []int64) {
	t.Helper()
	const size, gib = 64 << 30, 1 << 30
	d = newDisk(size, means)
	le := binary.LittleEndian

	table := func(at int64, entries ...[3]uint32) { // kind, first and count in sectors
		p := make([]byte, 512)
		for i, e := range entries {
			p[446+16*i+4] = byte(e[0])
			le.PutUint32(p[446+16*i+8:], e[1])
			le.PutUint32(p[446+16*i+12:], e[2])
		}
		p[510], p[511] = 0x55, 0xaa
		write(t, d, at, p)
		places = append(places, at+510)
	}
	const sectors = gib / 512
	table(0, [3]uint32{0x83, 1 * sectors, 8 * sectors}, [3]uint32{0x0f, 10 * sectors, 10 * sectors})
	table(10*gib, [3]uint32{0x83, 2048, sectors}, [3]uint32{0x05, 2 * sectors, 2 * sectors})
	table(12*gib, [3]uint32{0x83, 4096, sectors / 2}, [3]uint32{0x05, 3*sectors - 2048, 6 * sectors})
	table(13*gib-2048*512, [3]uint32{0x83, 2048, 5 * sectors}, [3]uint32{0x05, 2 * sectors, 2 * sectors}) // it goes round
	logical := []int64{10*gib + 2048*512, 12*gib + 4096*512}

	backup := make([]byte, 33*512) // of a GPT of before, whose beginning was written over
	copy(backup, linuxData)
	le.PutUint64(backup[32:], 30*sectors)
	le.PutUint64(backup[40:], 40*sectors-1)
	h := backup[32*512:]
	copy(h, "EFI PART")
	le.PutUint64(h[72:], size/512-33)
	le.PutUint32(h[80:], 128)
	le.PutUint32(h[84:], 128)
	write(t, d, size-33*512, backup)
	old := int64(30 * gib)

	magic := func(at int64, text string) {
		write(t, d, at, []byte(text))
		places = append(places, at)
	}
	for _, begin := range append(logical, old) {
		magic(begin+1024, "super")
		magic(begin+64<<10, "_BHRfS_M")
		magic(begin+64<<20+64<<10, "_BHRfS_M")
		magic(begin+1<<20+1024, "the first volume's")
	}
	magic(old+10*gib-512, "the end")

	places = append(places, ext(t, d, 1*gib, 8*gib)...)
	return d, append(places, xfs(t, d, 13*gib, 5*gib)...)
}

// ext puts the superblocks of an ext4 filesystem with blocks of 4 KiB on a disk.
func ext(t *testing.T, d disk.Device, begin, bytes int64) (places []int64) {
	t.Helper()
	const block, each = 4096, 32768
	le, b := binary.LittleEndian, make([]byte, 1024)
	le.PutUint32(b[4:], uint32(bytes/block))
	le.PutUint32(b[24:], 2)
	le.PutUint32(b[32:], each)
	le.PutUint16(b[56:], 0xef53)
	le.PutUint32(b[100:], 1)
	write(t, d, begin+1024, b)
	places = append(places, begin+1024+56)
	for _, group := range []int64{1, 3, 5, 7, 9, 25, 27, 49} {
		write(t, d, begin+group*each*block, b)
		places = append(places, begin+group*each*block+56)
	}
	return places
}

// xfs puts those of an XFS filesystem there.
func xfs(t *testing.T, d disk.Device, begin, bytes int64) (places []int64) {
	t.Helper()
	const block, groups = 4096, 5
	be, b := binary.BigEndian, make([]byte, 512)
	copy(b, "XFSB")
	each := bytes / block / groups
	be.PutUint32(b[4:], block)
	be.PutUint32(b[84:], uint32(each))
	be.PutUint32(b[88:], groups)
	for group := range int64(groups) {
		write(t, d, begin+group*each*block, b)
		places = append(places, begin+group*each*block)
	}
	return places
}

// left lists the places that something is still at.
func left(t *testing.T, d disk.Device, places []int64) (out []int64) {
	t.Helper()
	for _, at := range places {
		if !bytes.Equal(read(t, d, at, 2), []byte{0, 0}) {
			out = append(out, at)
		}
	}
	return out
}

func TestAQuickWipeEmptiesEverySuperblock(t *testing.T) {
	for name, means := range map[string]disk.Means{"writes alone": {}, "discards that do nothing": {Discard: true}} {
		t.Run(name, func(t *testing.T) {
			d, places := traced(t, means)
			if len(left(t, d, places)) != len(places) {
				t.Fatal("they are not there to begin with")
			}
			got, err := disk.Wipe(t.Context(), []disk.Device{d}, disk.Wiping{Method: node.WipeQuick, Seed: 1}, quiet)
			if err != nil || !got[0].ReadBack {
				t.Fatal(got, err)
			}
			if still := left(t, d, places); still != nil {
				t.Errorf("of %d something is at %d", len(places), still)
			}
		})
	}
}

// The power goes away while an image is written: its partitions are there, and the table that tells where is not.
func TestAQuickWipeAfterAnImageThatWasCutShort(t *testing.T) {
	const size, begin = 64 << 30, 700 * mib
	for name, put := range map[string]func(t *testing.T, d disk.Device) []int64{
		"ext4": func(t *testing.T, d disk.Device) []int64 { return ext(t, d, begin, 8<<30) },
		"XFS":  func(t *testing.T, d disk.Device) []int64 { return xfs(t, d, begin, 8<<30) },
		"btrfs": func(t *testing.T, d disk.Device) []int64 {
			return magics(t, d, "_BHRfS_M", begin+64<<10+64, begin+64*mib+64<<10+64)
		},
		"LVM": func(t *testing.T, d disk.Device) []int64 { return magics(t, d, "LABELONE", begin+512) },
	} {
		d := newDisk(size, disk.Means{})
		places := put(t, d)
		got, err := disk.Wipe(t.Context(), []disk.Device{d}, disk.Wiping{Method: node.WipeQuick, Seed: 1}, quiet)
		if err != nil || !got[0].ReadBack || left(t, d, places) != nil {
			t.Errorf("%s: %+v, %v, something is at %d", name, got, err, left(t, d, places))
		}
	}
}

func magics(t *testing.T, d disk.Device, magic string, places ...int64) []int64 {
	t.Helper()
	for _, at := range places {
		write(t, d, at, []byte(magic))
	}
	return places
}

// A config drive holds what nobody else may read. Without a table, as of an image that has none and where the power went before it was
// written, nothing tells where the drive is.
func TestAQuickWipeEmptiesTheConfigDrive(t *testing.T) {
	for _, size := range []int64{64 * mib, 64*mib + 777*512, 65*mib - 512} {
		d := newDisk(size, disk.Means{})
		raw, secret := content(), bytes.Repeat([]byte("hunter2 "), 2*mib/8)
		image := imageOf("raw", raw)
		image.Config = &disk.Config{UserData: secret}
		if _, err := disk.WriteImage(t.Context(), d, bytes.NewReader(raw), image, quiet); err != nil {
			t.Fatal(err)
		}
		got, err := disk.Wipe(t.Context(), []disk.Device{d}, disk.Wiping{Method: node.WipeQuick, Seed: 1}, quiet)
		if err != nil || !got[0].ReadBack {
			t.Fatal(got, err)
		}
		if rest := read(t, d, 50*mib, int(size-50*mib)); bytes.Contains(rest, []byte("hunter2")) {
			t.Errorf("a disk of %d bytes still holds %d bytes of the user data", size, 8*bytes.Count(rest, []byte("hunter2 ")))
		}
	}
}

// A burn-in writes over the tables and superblocks that tell of others: the wipe after it misses none all the same.
func TestAWipeAfterABurnInEmptiesEverySuperblock(t *testing.T) {
	d, places := traced(t, disk.Means{})
	parts, err := disk.Burn(t.Context(), []disk.Device{d}, agentcommand.Burnin{Bytes: 16 * mib}, 1, quiet)
	if err != nil || parts[0].Errors != 0 {
		t.Fatal(parts, err)
	}
	got, err := disk.Wipe(t.Context(), []disk.Device{d}, disk.Wiping{Method: node.WipeQuick, Seed: 1}, quiet)
	if err != nil || !got[0].ReadBack {
		t.Fatal(got, err)
	}
	if still := left(t, d, places); still != nil {
		t.Errorf("of %d something is at %d", len(places), still)
	}
}

// XFS on a disk without a table.
func TestAQuickWipeEmptiesAFilesystemOnTheWholeDisk(t *testing.T) {
	for name, put := range map[string]func(*testing.T, disk.Device, int64, int64) []int64{"ext4": ext, "XFS": xfs} {
		d := newDisk(16<<30, disk.Means{})
		places := put(t, d, 0, 16<<30)
		got, err := disk.Wipe(t.Context(), []disk.Device{d}, disk.Wiping{Method: node.WipeQuick, Seed: 1}, quiet)
		if err != nil || !got[0].ReadBack || left(t, d, places) != nil {
			t.Errorf("%s: %+v, %v, something is at %d", name, got, err, left(t, d, places))
		}
	}
}

// An image of a smaller disk was written as it was: the copy of its partition table is in the middle of this one.
func TestAQuickWipeFindsTheOtherCopyOfATable(t *testing.T) {
	const end = 40 * mib
	d := newDisk(64*mib, disk.Means{})
	header := append([]byte("EFI PART"), make([]byte, 84)...)
	binary.LittleEndian.PutUint64(header[32:], end/512-1)
	write(t, d, 512, header)
	write(t, d, end-512, header)
	write(t, d, end-512-16<<10, []byte("entries"))
	got, err := disk.Wipe(t.Context(), []disk.Device{d}, disk.Wiping{Method: node.WipeQuick, Seed: 1}, quiet)
	if err != nil || !got[0].ReadBack || left(t, d, []int64{512, end - 512, end - 512 - 16<<10}) != nil {
		t.Errorf("%+v, %v, something is at %d", got, err, left(t, d, []int64{512, end - 512, end - 512 - 16<<10}))
	}
}

// A wipe that is cut short, wherever that is, is begun anew, and misses nothing: what tells of the rest is emptied last.
func TestAQuickWipeThatIsCutShort(t *testing.T) {
	for cut, whole := 0, false; !whole; cut++ {
		d, places := traced(t, disk.Means{})
		writes := 0
		d.SetFaults(disk.Faults{Write: func(int64, int64) error {
			if writes++; writes > cut {
				return errors.New("the power is gone")
			}
			return nil
		}})
		got, err := disk.Wipe(t.Context(), []disk.Device{d}, disk.Wiping{Method: node.WipeQuick, Seed: 1}, quiet)
		if err != nil {
			t.Fatal(err)
		}
		whole = got[0].ReadBack
		d.SetFaults(disk.Faults{})
		if got, err = disk.Wipe(t.Context(), []disk.Device{d}, disk.Wiping{Method: node.WipeQuick, Seed: 2}, quiet); err != nil || !got[0].ReadBack {
			t.Fatal(got, err)
		}
		if still := left(t, d, places); still != nil {
			t.Fatalf("cut after %d writes: something is at %d", cut, still)
		}
	}
}

// What says that it is a superblock and makes no sense is no reason to fail, or to work for ever.
func TestSuperblocksThatMakeNoSense(t *testing.T) {
	for name, change := range map[string]func(ext, xfs []byte){
		"nothing but ones": func(ext, xfs []byte) {
			copy(ext, bytes.Repeat([]byte{0xff}, 56))
			copy(xfs[4:], bytes.Repeat([]byte{0xff}, 100))
		},
		"nothing but zeroes": func(ext, xfs []byte) { clear(ext[:56]); clear(xfs[4:]) },
		"no end of groups": func(ext, xfs []byte) {
			binary.LittleEndian.PutUint32(ext[4:], 0xffffffff)
			binary.LittleEndian.PutUint32(ext[24:], 0)
			binary.LittleEndian.PutUint32(ext[32:], 8)
			binary.BigEndian.PutUint32(xfs[84:], 1)
			binary.BigEndian.PutUint32(xfs[88:], 0xffffffff)
		},
	} {
		d := newDisk(64*mib, disk.Means{})
		e, x := make([]byte, 1024), make([]byte, 512)
		binary.LittleEndian.PutUint16(e[56:], 0xef53)
		copy(x, "XFSB")
		change(e, x)
		write(t, d, 0, x)
		write(t, d, 1024, e)
		got, err := disk.Wipe(t.Context(), []disk.Device{d}, disk.Wiping{Method: node.WipeQuick, Seed: 1}, quiet)
		if err != nil || !got[0].ReadBack || len(left(t, d, []int64{0, 1024 + 56})) != 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// writeTable writes a GPT of partitions for Linux, from their first to their last sectors.
func writeTable(t *testing.T, d disk.Device, partitions int, sectors func(i uint64) (first, last uint64)) {
	t.Helper()
	le := binary.LittleEndian
	header, entries := append([]byte("EFI PART"), make([]byte, 84)...), make([]byte, partitions*128)
	le.PutUint64(header[72:], 2)
	le.PutUint32(header[80:], uint32(partitions))
	le.PutUint32(header[84:], 128)
	for i := range partitions {
		first, last := sectors(uint64(i))
		copy(entries[i*128:], linuxData)
		le.PutUint64(entries[i*128+32:], first)
		le.PutUint64(entries[i*128+40:], last)
	}
	write(t, d, 512, header)
	write(t, d, 1024, entries)
}

// A table may tell of hundreds of partitions, each with the superblock of a filesystem that claims a million copies. Whoever had
// the machine before must not be able to keep it from being wiped.
func TestATableOfSuperblocksWithoutEnd(t *testing.T) {
	const size, partitions, most = 64 << 30, 32, 300_000
	d := newDisk(size, disk.Means{})
	le := binary.LittleEndian
	writeTable(t, d, partitions, func(i uint64) (first, last uint64) { return 2048 * (1 + i/2), size/512 - 100 - i }) // two begin at one place
	for i := range partitions {
		fs := make([]byte, 1024)
		le.PutUint32(fs[4:], size/1024) // blocks of 1 KiB, and a copy every 64 KiB
		le.PutUint32(fs[32:], 64)
		le.PutUint16(fs[56:], 0xef53)
		write(t, d, int64(1+i/2)<<20+1024, fs)
	}
	writes := 0
	d.SetFaults(disk.Faults{Write: func(int64, int64) error { writes++; return nil }})
	got, err := disk.Wipe(t.Context(), []disk.Device{d}, disk.Wiping{Method: node.WipeQuick, Seed: 1}, quiet)
	if err != nil || !got[0].ReadBack || writes > most {
		t.Errorf("%d writes, %+v, %v", writes, got, err)
	}
}

// Whatever is at the ends of a disk, and where a partition begins: a wipe ends, and nothing is left there.
func FuzzTables(f *testing.F) {
	gpt := gptImage(64*mib, linuxData)
	f.Add(gpt[:1024+2*128], gpt[64*mib-512:], []byte("XFSB\x00\x00\x10\x00"))
	f.Add(make([]byte, 512), []byte{}, []byte("\x53\xef"))
	extended := make([]byte, 512)
	extended[446+4], extended[446+9], extended[446+12], extended[510], extended[511] = 0x0f, 0x10, 0xff, 0x55, 0xaa
	f.Add(extended, []byte("EFI PART"), extended)
	f.Fuzz(func(t *testing.T, begin, end, inside []byte) {
		const most = 10_000
		begin, end, inside = begin[:min(len(begin), mib)], end[:min(len(end), mib)], inside[:min(len(inside), mib)]
		d := newDisk(64*mib, disk.Means{})
		for at, p := range map[int64][]byte{0: begin, 2 * mib: inside, 64*mib - int64(len(end)): end} {
			if len(p) > 0 {
				write(t, d, at, p)
			}
		}
		writes := 0
		d.SetFaults(disk.Faults{Write: func(int64, int64) error { writes++; return nil }})
		got, err := disk.Wipe(t.Context(), []disk.Device{d}, disk.Wiping{Method: node.WipeQuick, Seed: 1}, quiet)
		shared := err == nil && writes == 0 && strings.Contains(got[0].Reason, "share")
		if err != nil || got[0].ReadBack == shared || writes > most {
			t.Errorf("%d writes, %+v, %v", writes, got, err)
		}
		if !shared && d.Allocated() > 0 && !bytes.Equal(read(t, d, 0, 4*mib), make([]byte, 4*mib)) {
			t.Error("something is left at the beginning")
		}
	})
}

// Tables may tell of one range a thousand times; it is emptied and read once.
func TestRangesThatOverlapAreEmptiedOnce(t *testing.T) {
	const size, partitions = 1 << 30, 512
	d := newDisk(size, disk.Means{})
	// All of them begin within the same 256 KiB.
	writeTable(t, d, partitions, func(i uint64) (first, last uint64) { return 100<<11 + i, 900<<11 - i })
	var wrote, read int64
	d.SetFaults(disk.Faults{
		Write: func(_, length int64) error { wrote += length; return nil },
		Read:  func(_, length int64) error { read += length; return nil },
	})
	got, err := disk.Wipe(t.Context(), []disk.Device{d}, disk.Wiping{Method: node.WipeQuick, Seed: 1}, quiet)
	if err != nil || !got[0].ReadBack || wrote > 100*mib || read > 100*mib {
		t.Errorf("wrote %d MiB, read %d MiB, %+v, %v", wrote/mib, read/mib, got, err)
	}
}
