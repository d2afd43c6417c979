// Package iso9660 lays out small ISO 9660 filesystems: one directory of a few files, whose names Rock Ridge keeps as they are,
// and from one of which UEFI firmware may start (El Torito). It reads them back, too. No time is told: the same input gives
// the same bytes.
package iso9660

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/better-compute/metal/domain/fault"
)

// Block is how many bytes are read at once: everything begins with a block.
const Block = 2048

// Volume is a filesystem.
type Volume struct {
	Label string // at most 32 bytes
	Files []File
	Boot  bool // firmware starts from the first file, which is a filesystem that it can read
}

// File is one file. Name is at most 64 bytes.
type File struct {
	Name string
	Size int
}

// The blocks of a volume, in their order, behind those that belong to whoever makes one.
const (
	primary    = 16 + iota
	bootRecord // else the end of the descriptors
	end
	root
	pathsLittle
	pathsBig
	catalog
	content
)

// entry is a file in its place.
type entry struct {
	File
	block int
}

// Head is what comes before the files: after it each of them follows, in the order of Files, filled up with zeros to whole
// blocks. Its first 16 blocks are empty, and the caller's.
//
// Names that can't be, too many files for one directory of a block, and a volume to boot from without a file are INVALID_INPUT.
func (v Volume) Head() ([]byte, error) {
	if v.Boot && len(v.Files) == 0 {
		return nil, fault.New(fault.InvalidInput, "there is no file that firmware could start from")
	}
	next := content
	entries := make([]entry, 0, len(v.Files))
	for _, f := range v.Files {
		if len(f.Name) > 64 || strings.ContainsAny(f.Name, "/\x00") {
			return nil, fault.New(fault.InvalidInput, "%q can't be the name of a file of an ISO 9660 filesystem", f.Name)
		}
		entries = append(entries, entry{f, next})
		next += (f.Size + Block - 1) / Block
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(plainName(a.Name), plainName(b.Name)) })
	directory := append(record("\x00", root, Block, folder, append(fieldSP(), fieldER()...)), record("\x01", root, Block, folder, nil)...)
	for _, e := range entries {
		directory = append(directory, record(plainName(e.Name), e.block, e.Size, 0, append(fieldPX(0o100444), fieldNM(e.Name)...))...)
	}
	if len(directory) > Block {
		return nil, fault.New(fault.InvalidInput, "%d files are too many for one block of a directory", len(v.Files))
	}
	head := make([]byte, content*Block)
	at := func(block int) []byte { return head[block*Block:][:Block] }
	v.describe(at(primary), next)
	copy(at(bootRecord), "\xffCD001\x01")
	if v.Boot {
		copy(at(bootRecord), "\x00CD001\x01EL TORITO SPECIFICATION")
		binary.LittleEndian.PutUint32(at(bootRecord)[71:], catalog)
		copy(at(end), "\xffCD001\x01")
		writeCatalog(at(catalog), v.Files[0].Size)
	}
	copy(at(root), directory)
	copy(at(pathsLittle), []byte{1, 0, root, 0, 0, 0, 1, 0})
	copy(at(pathsBig), []byte{1, 0, 0, 0, 0, root, 0, 1})
	return head, nil
}

// describe writes the primary volume descriptor.
func (v Volume) describe(b []byte, blocks int) {
	copy(b, "\x01CD001\x01")
	for _, text := range []struct{ from, to int }{{8, 72}, {190, 813}} {
		copy(b[text.from:text.to], strings.Repeat(" ", text.to-text.from))
	}
	copy(b[40:72], v.Label)
	both32(b[80:], blocks)
	both16(b[120:], 1) // one volume, which is the first
	both16(b[124:], 1)
	both16(b[128:], Block)
	both32(b[132:], 10) // bytes of a path table
	binary.LittleEndian.PutUint32(b[140:], pathsLittle)
	binary.BigEndian.PutUint32(b[148:], pathsBig)
	copy(b[156:], record("\x00", root, Block, folder, nil))
	for i := range 4 { // it was made, changed, … at no time
		copy(b[813+17*i:], "0000000000000000")
	}
	b[881] = 1
}

// writeCatalog says what firmware starts from: a medium of its own kind, of so many bytes, at the beginning of the content.
// UEFI firmware takes a one for "as far as the medium goes", where there are more sectors than the catalog can count.
func writeCatalog(b []byte, bytes int) {
	const platformEFI, sector = 0xef, 512
	le := binary.LittleEndian
	b[0], b[1], b[30], b[31] = 1, platformEFI, 0x55, 0xaa
	sum := uint16(0)
	for i := 0; i < 32; i += 2 {
		sum += le.Uint16(b[i:])
	}
	le.PutUint16(b[28:], -sum)
	sectors := bytes / sector
	if sectors > 1<<16-1 {
		sectors = 1
	}
	b[32] = 0x88
	le.PutUint16(b[38:], uint16(sectors))
	le.PutUint32(b[40:], content)
}

// plainName is the name for readers that know no Rock Ridge.
func plainName(name string) string {
	name = strings.ToUpper(name)
	if !strings.Contains(name, ".") {
		name += "."
	}
	return name + ";1"
}

// folder is the flag of a directory's record.
const folder = 2

// record is one entry of a directory, with its Rock Ridge fields.
func record(name string, block, size int, flags byte, fields []byte) []byte {
	r := make([]byte, 33, 128)
	both32(r[2:], block)
	both32(r[10:], size)
	r[18], r[19], r[20] = 80, 1, 1 // 1 January 1980
	r[25] = flags
	both16(r[28:], 1)
	r[32] = byte(len(name))
	r = even(append(even(append(r, name...)), fields...))
	r[0] = byte(len(r))
	return r
}

// even adds a byte where there are an odd number of them.
func even(b []byte) []byte { return append(b, make([]byte, len(b)%2)...) }

// The fields of SUSP and Rock Ridge that are needed: that they are used, mode, and name.
func fieldSP() []byte { return []byte{'S', 'P', 7, 1, 0xbe, 0xef, 0} }

func fieldER() []byte { return append([]byte{'E', 'R', 18, 1, 10, 0, 0, 1}, "RRIP_1991A"...) }

func fieldPX(mode int) []byte {
	f := append([]byte{'P', 'X', 36, 1}, make([]byte, 32)...)
	both32(f[4:], mode)
	both32(f[12:], 1)
	return f
}

func fieldNM(name string) []byte {
	return append([]byte{'N', 'M', byte(5 + len(name)), 1, 0}, name...)
}

// both32 writes a number in the orders of both kinds of processors, as the standard wants it.
func both32(b []byte, n int) {
	binary.LittleEndian.PutUint32(b, uint32(n))
	binary.BigEndian.PutUint32(b[4:], uint32(n))
}

func both16(b []byte, n int) {
	binary.LittleEndian.PutUint16(b, uint16(n))
	binary.BigEndian.PutUint16(b[2:], uint16(n))
}
