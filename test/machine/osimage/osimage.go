// Package osimage makes the disk image of a small OS: a partition that UEFI firmware boots from, with a kernel and an
// initramfs in one file, and a partition that the OS keeps who it is in. The same inputs give the same bytes.
package osimage

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"unicode/utf16"
)

const (
	sector = 512
	mib    = 1 << 20

	bootAt     = 1 * mib
	stateBytes = 1 * mib
	tailBytes  = 1 * mib // the backup of the partition table is at its end
)

// StateName is the name of the partition that is the OS's own.
const StateName = "labos-state"

// Build makes an image of so many MiB whose only file is started by the firmware.
func Build(uki []byte, size int) ([]byte, error) {
	image := make([]byte, size*mib)
	stateAt := len(image) - tailBytes - stateBytes
	if err := writeFAT(image[bootAt:stateAt], uki); err != nil {
		return nil, err
	}
	writeTable(image, []partition{
		{kind: kindBoot, id: [16]byte{0x4c, 0x42, 1, 15: 1}, name: "EFI", first: bootAt, end: stateAt},
		{kind: kindData, id: [16]byte{0x4c, 0x42, 1, 15: 2}, name: StateName, first: stateAt, end: stateAt + stateBytes},
	})
	return image, nil
}

type partition struct {
	kind, id   [16]byte
	name       string
	first, end int // bytes
}

// The types of partitions, as they are stored.
var (
	kindBoot = [16]byte{0x28, 0x73, 0x2a, 0xc1, 0x1f, 0xf8, 0xd2, 0x11, 0xba, 0x4b, 0x00, 0xa0, 0xc9, 0x3e, 0xc9, 0x3b}
	kindData = [16]byte{0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4}
)

const (
	entryBytes   = 128
	entryCount   = 128
	entrySectors = entryBytes * entryCount / sector
)

// writeTable writes a GUID partition table, its backup, and the old kind of table that protects it.
func writeTable(image []byte, partitions []partition) {
	sectors := len(image) / sector
	old := image[446:sector]
	copy(old, []byte{0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0})
	binary.LittleEndian.PutUint32(old[12:], uint32(sectors-1))
	old[64], old[65] = 0x55, 0xaa

	entries := make([]byte, entryBytes*entryCount)
	for i, p := range partitions {
		e := entries[i*entryBytes:]
		copy(e, p.kind[:])
		copy(e[16:], p.id[:])
		binary.LittleEndian.PutUint64(e[32:], uint64(p.first/sector))
		binary.LittleEndian.PutUint64(e[40:], uint64(p.end/sector-1))
		for j, unit := range utf16.Encode([]rune(p.name)) {
			binary.LittleEndian.PutUint16(e[56+2*j:], unit)
		}
	}
	header := func(at, other, entriesAt int) {
		h := image[at*sector:][:92]
		copy(h, "EFI PART\x00\x00\x01\x00\x5c")
		binary.LittleEndian.PutUint64(h[24:], uint64(at))
		binary.LittleEndian.PutUint64(h[32:], uint64(other))
		binary.LittleEndian.PutUint64(h[40:], 2+entrySectors)
		binary.LittleEndian.PutUint64(h[48:], uint64(sectors-2-entrySectors))
		copy(h[56:], []byte{0x4c, 0x42, 0, 15: 1})
		binary.LittleEndian.PutUint64(h[72:], uint64(entriesAt))
		binary.LittleEndian.PutUint32(h[80:], entryCount)
		binary.LittleEndian.PutUint32(h[84:], entryBytes)
		binary.LittleEndian.PutUint32(h[88:], crc32.ChecksumIEEE(entries))
		binary.LittleEndian.PutUint32(h[16:], crc32.ChecksumIEEE(h))
		copy(image[entriesAt*sector:], entries)
	}
	header(1, sectors-1, 2)
	header(sectors-1, 1, sectors-1-entrySectors)
}

const (
	fatReserved = 32
	fatCopies   = 2
	fatEnd      = 0x0fffffff
	fatLeast    = 65525 // clusters; with fewer it is another kind of FAT
	entryFolder = 0x10
	entryFile   = 0x20
)

// writeFAT makes a FAT32 filesystem with one file, \EFI\BOOT\BOOTX64.EFI. A cluster is a sector.
func writeFAT(volume, file []byte) error {
	sectors := len(volume) / sector
	fatSectors := (sectors - fatReserved + 2*sector/4) / (sector/4 + fatCopies)
	fatSectors++ // rounded up
	dataAt := fatReserved + fatCopies*fatSectors
	clusters := sectors - dataAt
	const root, efi, boot, first = 2, 3, 4, 5
	needed := (len(file) + sector - 1) / sector
	if clusters < fatLeast || first+needed > clusters {
		return fmt.Errorf("a file of %d bytes and a filesystem of %d do not go together", len(file), len(volume))
	}
	b := volume[:sector]
	copy(b, "\xeb\x58\x90LABOS   ")
	binary.LittleEndian.PutUint16(b[11:], sector)
	b[13] = 1
	binary.LittleEndian.PutUint16(b[14:], fatReserved)
	b[16], b[21] = fatCopies, 0xf8
	binary.LittleEndian.PutUint16(b[24:], 32)
	binary.LittleEndian.PutUint16(b[26:], 64)
	binary.LittleEndian.PutUint32(b[28:], bootAt/sector)
	binary.LittleEndian.PutUint32(b[32:], uint32(sectors))
	binary.LittleEndian.PutUint32(b[36:], uint32(fatSectors))
	binary.LittleEndian.PutUint32(b[44:], root)
	binary.LittleEndian.PutUint16(b[48:], 1)
	binary.LittleEndian.PutUint16(b[50:], 6)
	b[64], b[66] = 0x80, 0x29
	copy(b[67:], "\x01\x00\x42\x4cLABOS      FAT32   ")
	b[510], b[511] = 0x55, 0xaa
	info := volume[sector : 2*sector]
	copy(info, "RRaA")
	copy(info[484:], "rrAa\xff\xff\xff\xff\xff\xff\xff\xff")
	info[510], info[511] = 0x55, 0xaa
	copy(volume[6*sector:], volume[:2*sector])

	for n := range fatCopies {
		fat := volume[(fatReserved+n*fatSectors)*sector:]
		set := func(cluster, to int) { binary.LittleEndian.PutUint32(fat[4*cluster:], uint32(to)) }
		set(0, 0x0ffffff8)
		for _, cluster := range []int{1, root, efi, boot, first + needed - 1} {
			set(cluster, fatEnd)
		}
		for i := range needed - 1 {
			set(first+i, first+i+1)
		}
	}
	cluster := func(n int) []byte { return volume[(dataAt+n-2)*sector:] }
	folder(cluster(root), "EFI        ", entryFolder, efi, 0)
	folder(cluster(efi), ".          ", entryFolder, efi, 0)
	folder(cluster(efi)[32:], "..         ", entryFolder, 0, 0)
	folder(cluster(efi)[64:], "BOOT       ", entryFolder, boot, 0)
	folder(cluster(boot), ".          ", entryFolder, boot, 0)
	folder(cluster(boot)[32:], "..         ", entryFolder, efi, 0)
	folder(cluster(boot)[64:], "BOOTX64 EFI", entryFile, first, len(file))
	copy(cluster(first), file)
	return nil
}

// folder writes one entry of a folder.
func folder(e []byte, name string, attributes byte, cluster, size int) {
	copy(e, name)
	e[11] = attributes
	for _, at := range []int{16, 18, 24} {
		binary.LittleEndian.PutUint16(e[at:], 1<<5|1) // the first day there is
	}
	binary.LittleEndian.PutUint16(e[20:], uint16(cluster>>16))
	binary.LittleEndian.PutUint16(e[26:], uint16(cluster))
	binary.LittleEndian.PutUint32(e[28:], uint32(size))
}
