package bootimage

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"github.com/better-compute/metal/domain/fault"
)

// An image for a virtual drive is the same for every machine but for a place in the kernel's command line, which whoever hands
// it out fills in. Blanks are there until then, and a note at the image's very beginning says where.
const (
	// MediumPlace is how long that place is.
	MediumPlace = 1536
	// mostArguments is what kernels read of a command line, without the zero at its end.
	mostArguments = 2047
)

// Medium writes an image that UEFI firmware boots from a virtual drive: ISO 9660 with the boot catalog of El Torito, and in it
// kernel and initramfs as Unified joins them. arguments are the kernel's on every machine.
func Medium(to io.Writer, stub, kernel, initramfs []byte, arguments string) error {
	if most := mostArguments - MediumPlace - 1; len(arguments) > most {
		return fault.New(fault.InvalidInput, "the kernel's arguments have %d bytes; what a machine is told besides leaves room for %d",
			len(arguments), most)
	}
	program, err := Unified(stub, kernel, initramfs, arguments+strings.Repeat(" ", MediumPlace+1))
	if err != nil {
		return err
	}
	file, err := pe.NewFile(bytes.NewReader(program))
	if err != nil {
		return fault.Wrap(err, fault.InvalidInput, "the stub can't be used: %v", err)
	}
	name, ok := map[uint16]string{
		pe.IMAGE_FILE_MACHINE_AMD64: "BOOTX64 EFI", pe.IMAGE_FILE_MACHINE_ARM64: "BOOTAA64EFI",
	}[file.Machine]
	if !ok {
		return fault.New(fault.InvalidInput, "the stub is for a processor that is not known: %#x", file.Machine)
	}
	boot, err := newFAT(name, len(program))
	if err != nil {
		return err
	}
	place := isoBootAt*isoBlock + len(boot.head) + int(file.Section(".cmdline").Offset) + len(arguments) + 1
	return writeISO(to, fmt.Sprintf("metal-medium 1 %d %d\n", place, MediumPlace), boot, program)
}

// isoBlock is how a medium is read: in blocks of so many bytes.
const isoBlock = 2048

// The blocks of an image, in their order, behind those that are nobody's.
const (
	isoVolume = 16 + iota
	isoBootRecord
	isoEnd
	isoRoot
	isoPathsLittle
	isoPathsBig
	isoCatalog
	isoBootAt // the filesystem that firmware starts from
)

// isoSectorsMost is the largest number that the boot catalog has room for. UEFI firmware takes a one for "as far as the medium
// goes".
const isoSectorsMost = 1<<16 - 1

// writeISO writes an image whose one file is a filesystem that firmware starts from. There are no times in it.
func writeISO(to io.Writer, note string, boot fatImage, program []byte) error {
	head := make([]byte, isoBootAt*isoBlock)
	at := func(block int) []byte { return head[block*isoBlock:][:isoBlock] }
	copy(head, note) // the first blocks are for whoever makes an image
	writeVolume(at(isoVolume), isoBootAt+boot.size/isoBlock)
	copy(at(isoBootRecord), "\x00CD001\x01EL TORITO SPECIFICATION")
	binary.LittleEndian.PutUint32(at(isoBootRecord)[71:], isoCatalog)
	copy(at(isoEnd), "\xffCD001\x01")
	root := at(isoRoot)
	for _, r := range [][]byte{
		isoRecord("\x00", isoRoot, isoBlock, true), isoRecord("\x01", isoRoot, isoBlock, true),
		isoRecord("EFI.IMG;1", isoBootAt, boot.size, false),
	} {
		root = root[copy(root, r):]
	}
	copy(at(isoPathsLittle), []byte{1, 0, isoRoot, 0, 0, 0, 1, 0})
	copy(at(isoPathsBig), []byte{1, 0, 0, 0, 0, isoRoot, 0, 1})
	writeCatalog(at(isoCatalog), boot.size/fatSector)
	for _, part := range [][]byte{head, boot.head, program, make([]byte, boot.size-len(boot.head)-len(program))} {
		if _, err := to.Write(part); err != nil {
			return err
		}
	}
	return nil
}

func writeVolume(b []byte, blocks int) {
	copy(b, "\x01CD001\x01")
	for _, text := range []struct{ from, to int }{{8, 72}, {190, 813}} {
		copy(b[text.from:text.to], bytes.Repeat([]byte{' '}, text.to-text.from))
	}
	copy(b[40:], "RAMDISK")
	both32(b[80:], blocks)
	both16(b[120:], 1)
	both16(b[124:], 1)
	both16(b[128:], isoBlock)
	both32(b[132:], 10) // bytes of a path table
	binary.LittleEndian.PutUint32(b[140:], isoPathsLittle)
	binary.BigEndian.PutUint32(b[148:], isoPathsBig)
	copy(b[156:], isoRecord("\x00", isoRoot, isoBlock, true))
	for i := range 4 { // it was made, changed, … at no time
		copy(b[813+17*i:], "0000000000000000")
	}
	b[881] = 1
}

// isoRecord is an entry of a directory.
func isoRecord(name string, block, size int, folder bool) []byte {
	b := make([]byte, 33+len(name)+(len(name)+1)%2)
	b[0] = byte(len(b))
	both32(b[2:], block)
	both32(b[10:], size)
	b[18], b[19], b[20] = 80, 1, 1 // 1 January 1980
	if folder {
		b[25] = 2
	}
	both16(b[28:], 1)
	b[32] = byte(len(name))
	copy(b[33:], name)
	return b
}

// writeCatalog says what firmware starts from: a medium of its own kind, from a block on.
func writeCatalog(b []byte, sectors int) {
	const platformEFI = 0xef
	le := binary.LittleEndian
	b[0], b[1], b[30], b[31] = 1, platformEFI, 0x55, 0xaa
	sum := uint16(0)
	for i := 0; i < 32; i += 2 {
		sum += le.Uint16(b[i:])
	}
	le.PutUint16(b[28:], -sum)
	if sectors > isoSectorsMost {
		sectors = 1
	}
	b[32] = 0x88
	le.PutUint16(b[38:], uint16(sectors))
	le.PutUint32(b[40:], isoBootAt)
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
