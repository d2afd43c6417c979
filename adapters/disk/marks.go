package disk

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// The ends of a disk hold partition tables, RAID and volume metadata; a superblock may also stand further in.
const ends = 4 << 20

// superblocks are where filesystems and volume managers keep what they are recognised by, beyond the first 4 MiB.
// The first and last 4 MiB cover: MBR and both GPTs; ext (1 KiB), btrfs (64 KiB), XFS, NTFS, FAT, F2FS, swap (end of the
// first page), LVM (first sectors, and what its first volume begins with), LUKS 1 and 2 (0 to 4 MiB), md 1.1 and 1.2 (0,
// 4 KiB), bcache, the first two ZFS labels (0, 256 KiB); at the end md 0.90 and 1.0, DDF and IMSM, the last two ZFS labels and
// the backup of exFAT and NTFS.
var superblocks = []span{
	{64 << 20, 1 << 20},  // btrfs, second copy
	{256 << 30, 1 << 20}, // btrfs, third copy
	{8 << 20, 1 << 20},   // ext, first backup with blocks of 1 KiB
	{32 << 20, 1 << 20},  // ext, first backup with blocks of 2 KiB
	{128 << 20, 1 << 20}, // ext, first backup with blocks of 4 KiB
}

// marks are the ranges that a quick wipe empties and every wipe reads back, on a disk of size bytes. One is where a config drive may
// be: it begins at a whole MiB, a little before the end's range, and holds what nobody else may read.
func marks(size int64) []span {
	out := marksOf(span{0, size}, size)
	if drive, ok := (span{configOffset(size), configReserve}).clip(size); ok {
		out = append(out, drive)
	}
	return merged(out)
}

// marksOf are those of what begins and ends with a range of the disk.
func marksOf(of span, size int64) (out []span) {
	for _, s := range append([]span{{0, ends}, {of.length - ends, ends}}, superblocks...) {
		if s, ok := s.clip(of.length); ok {
			if s, ok := (span{of.offset + s.offset, s.length}).clip(size); ok {
				out = append(out, s)
			}
		}
	}
	return out
}

// tracesOf finds what else a disk is recognised by: what is in its partitions, the copies of superblocks that filesystems keep
// all over themselves, and tables that are not at its ends. They come in levels. Each tells where those before it are, so it goes
// after them: a wipe that is cut short is begun anew, and has to find the rest.
func tracesOf(d Device) (levels [][]span) {
	size := d.Info().Bytes
	found, tables := everyPartition(d)
	if len(found) == 0 {
		found = withoutTable(d)
	}
	var copies, begins []span
	looked := map[int64]bool{} // where a filesystem may begin: tables tell of many partitions, and may tell of one many times
	for _, p := range append([]partition{{length: size}}, found...) {
		if !looked[p.offset] && len(copies) < mostTraces {
			copies = append(append(copies, extCopies(d, p.offset)...), xfsCopies(d, p.offset)...)
		}
		looked[p.offset] = true
	}
	for _, p := range found {
		begins = append(begins, marksOf(span{p.offset, p.length}, size)...)
	}
	levels = [][]span{merged(copies), merged(begins)}
	for _, table := range slices.Backward(tables) {
		if at, ok := table.clip(size); ok {
			levels = append(levels, []span{at})
		}
	}
	return levels
}

// signature is what something writes where it begins, and by which it is recognised.
type signature struct {
	offset int
	magic  string
}

// filesystems, and what else partitions hold. That of btrfs stands further in.
var filesystems = []signature{
	{1080, "\x53\xef"}, {0, "XFSB"}, {3, "NTFS"}, {3, "EXFAT"}, {54, "FAT"}, {82, "FAT32"}, // the first is ext's
	{1024, "\x10\x20\xf5\xf2"}, {1024, "\xe2\xe1\xf5\xe0"}, {0, "hsqs"}, // F2FS, EROFS, squashfs
	{512, "LABELONE"}, {0, "LUKS\xba\xbe"}, {4086, "SWAPSPACE2"}, // LVM, LUKS, swap
}

// untold is how far a disk without a table is looked through. An image whose writing a power cut has ended has left its partitions, and
// its table is what would have been written last.
const untold = 4 << 30

// withoutTable finds what begins at a whole MiB, as partitions do, on a disk that nothing tells of.
func withoutTable(d Device) (out []partition) {
	const mib, btrfs = 1 << 20, 64<<10 + 64
	begin := make([]byte, 4096)
	for at := int64(mib); at+mib <= min(d.Info().Bytes, untold); at += mib {
		clear(begin)
		_, _ = d.ReadAt(begin, at) // what can't be read tells nothing
		is := slices.ContainsFunc(filesystems, func(f signature) bool {
			return string(begin[f.offset:f.offset+len(f.magic)]) == f.magic
		})
		if _, err := d.ReadAt(begin[:8], at+btrfs); is || err == nil && string(begin[:8]) == "_BHRfS_M" {
			out = append(out, partition{offset: at, length: d.Info().Bytes - at})
		}
	}
	return out
}

// How many groups of blocks a filesystem may have to be looked at, and how many copies are emptied of it and in all: more than
// there are. Whoever had the disk may have written whatever he liked, and must not take a ramdisk's memory, or days, by it.
const (
	mostGroups = 1 << 20
	mostTraces = 1 << 17
)

// copyBytes is what is emptied of each copy: the superblock and what stands right behind it.
const copyBytes = 16 << 10

// extCopies are the backups of the superblock of ext2, 3 and 4: one in each group of blocks, in most filesystems in those alone
// whose numbers are powers of 3, 5 and 7.
func extCopies(d Device, start int64) (out []span) {
	const at, sparse, sparse2 = 1024, 1, 0x200
	le, b := binary.LittleEndian, make([]byte, 1024)
	if n, _ := d.ReadAt(b, start+at); n < len(b) || le.Uint16(b[56:]) != 0xef53 || le.Uint32(b[24:]) > 6 {
		return nil
	}
	block, each := int64(1024)<<le.Uint32(b[24:]), int64(le.Uint32(b[32:]))
	first, blocks := int64(le.Uint32(b[20:])), int64(le.Uint32(b[4:]))|int64(le.Uint32(b[0x150:])&0xffff)<<32
	if each < 8 || each > 8*block || blocks/each > mostGroups {
		return nil
	}
	few := le.Uint32(b[100:])&sparse != 0
	for group := int64(1); first+group*each < blocks && len(out) < mostTraces; group++ {
		switch {
		case le.Uint32(b[92:])&sparse2 != 0:
			if n := uint32(group); n != le.Uint32(b[0x24c:]) && n != le.Uint32(b[0x250:]) {
				continue
			}
		case few && !isPower(group, 3) && !isPower(group, 5) && !isPower(group, 7):
			continue
		}
		out = append(out, copyAt(d, start+(first+group*each)*block)...)
	}
	return out
}

// isPower tells of 1 too: that is the zeroth one.
func isPower(n, of int64) bool {
	for n%of == 0 {
		n /= of
	}
	return n == 1
}

// xfsCopies are the superblocks with which each of a filesystem's groups of blocks begins, the first one's aside.
func xfsCopies(d Device, start int64) (out []span) {
	be, b := binary.BigEndian, make([]byte, 512)
	if n, _ := d.ReadAt(b, start); n < len(b) || !bytes.HasPrefix(b, []byte("XFSB")) {
		return nil
	}
	block, each, groups := int64(be.Uint32(b[4:])), int64(be.Uint32(b[84:])), int64(be.Uint32(b[88:]))
	if block < 512 || block > 64<<10 || each < 1 || groups > mostGroups {
		return nil
	}
	for group := int64(1); group < groups && len(out) < mostTraces; group++ {
		out = append(out, copyAt(d, start+group*each*block)...)
	}
	return out
}

func copyAt(d Device, offset int64) []span {
	if s, ok := (span{offset, copyBytes}).clip(d.Info().Bytes); ok {
		return []span{s}
	}
	return nil
}
