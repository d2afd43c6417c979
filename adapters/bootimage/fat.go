package bootimage

import (
	"encoding/binary"

	"github.com/better-compute/metal/adapters/iso9660"
	"github.com/better-compute/metal/domain/fault"
)

const (
	fatSector   = 512
	fatRoot     = 512   // entries of the root directory
	fatFewest   = 4096  // clusters: with fewer than 4085 it is another kind of FAT
	fatMost     = 65000 // clusters: with more than 65524 too
	fatEnd      = 0xffff
	fatEntry    = 32 // bytes of an entry of a directory
	fatFolder   = 0x10
	fatFile     = 0x20
	fatFirstDay = 1<<5 | 1 // 1 January 1980

	clusterFolder  = 2 // of \EFI
	clusterBoot    = 3 // of \EFI\BOOT
	clusterFile    = 4
	clusterLeast   = iso9660.Block // bytes
	clusterLargest = 32 << 10
)

// fatImage is a FAT16 filesystem with one file, \EFI\BOOT\<name>, whose clusters follow each other: its head, then the file,
// then nothing but zeros.
type fatImage struct {
	head []byte
	size int
}

// newFAT lays out a filesystem for a file of so many bytes. name is as FAT has it: eight characters and three.
func newFAT(name string, bytes int) (fatImage, error) {
	cluster := clusterLeast
	for clusterFile+bytes/cluster >= fatMost {
		if cluster *= 2; cluster > clusterLargest {
			return fatImage{}, fault.New(fault.InvalidInput, "an image of %d bytes is too large to boot from", bytes)
		}
	}
	needed := (bytes + cluster - 1) / cluster
	clusters := max(clusterFile-2+needed, fatFewest)
	each := (2*(clusters+2) + fatSector - 1) / fatSector // sectors of a table
	reserved := 1
	for (reserved+2*each+fatRoot*fatEntry/fatSector)%(iso9660.Block/fatSector) != 0 {
		reserved++ // clusters begin with a block of the medium
	}
	rootAt := (reserved + 2*each) * fatSector
	dataAt := rootAt + fatRoot*fatEntry
	f := fatImage{head: make([]byte, dataAt+(clusterFile-2)*cluster), size: dataAt + clusters*cluster}
	f.writeBootSector(cluster/fatSector, reserved, each)
	for n := range 2 {
		table := f.head[(reserved+n*each)*fatSector:]
		set := func(cluster, to int) { binary.LittleEndian.PutUint16(table[2*cluster:], uint16(to)) }
		set(0, 0xfff8)
		set(1, fatEnd)
		set(clusterFolder, fatEnd)
		set(clusterBoot, fatEnd)
		for i := range needed {
			set(clusterFile+i, clusterFile+i+1)
		}
		set(clusterFile+max(needed, 1)-1, fatEnd)
	}
	fatName(f.head[rootAt:], "EFI        ", fatFolder, clusterFolder, 0)
	folder, boot := f.head[dataAt:], f.head[dataAt+cluster:]
	fatName(folder, ".          ", fatFolder, clusterFolder, 0)
	fatName(folder[fatEntry:], "..         ", fatFolder, 0, 0)
	fatName(folder[2*fatEntry:], "BOOT       ", fatFolder, clusterBoot, 0)
	fatName(boot, ".          ", fatFolder, clusterBoot, 0)
	fatName(boot[fatEntry:], "..         ", fatFolder, clusterFolder, 0)
	fatName(boot[2*fatEntry:], name, fatFile, clusterFile, bytes)
	return f, nil
}

func (f fatImage) writeBootSector(perCluster, reserved, each int) {
	le, b, sectors := binary.LittleEndian, f.head, f.size/fatSector
	copy(b, "\xeb\x3c\x90BCD     ")
	le.PutUint16(b[11:], fatSector)
	b[13] = byte(perCluster)
	le.PutUint16(b[14:], uint16(reserved))
	b[16] = 2 // tables
	le.PutUint16(b[17:], fatRoot)
	if b[21] = 0xf8; sectors < 1<<16 {
		le.PutUint16(b[19:], uint16(sectors))
	} else {
		le.PutUint32(b[32:], uint32(sectors))
	}
	le.PutUint16(b[22:], uint16(each))
	le.PutUint16(b[24:], 32) // of a track
	le.PutUint16(b[26:], 64) // heads
	b[36], b[38] = 0x80, 0x29
	copy(b[39:], "\x01\x00CBRAMDISK    FAT16   ")
	b[510], b[511] = 0x55, 0xaa
}

// fatName writes one entry of a directory.
func fatName(e []byte, name string, attributes byte, cluster, size int) {
	le := binary.LittleEndian
	copy(e, name)
	e[11] = attributes
	for _, at := range []int{16, 18, 24} {
		le.PutUint16(e[at:], fatFirstDay)
	}
	le.PutUint16(e[26:], uint16(cluster))
	le.PutUint32(e[28:], uint32(size))
}
