package disk

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"slices"

	"github.com/better-compute/metal/domain/fault"
)

// gptTail is what the backup of a GPT needs at the end of a disk: 128 entries and the header.
const gptTail = 33 * sector

// linuxData is the type of a partition with a Linux filesystem, as it is stored.
var linuxData = []byte{0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4}

// withPartition adds a partition to the table in the first MiB of a disk of size bytes. A GPT is told how large the disk is,
// and its backup (tail) belongs at the disk's end. nil: there is no table, or no room in it.
func withPartition(first []byte, size int64, at span) (changed, tail []byte) {
	if len(first) < 34*sector {
		return nil, nil
	}
	if string(first[sector:sector+8]) == "EFI PART" {
		return withGPT(slices.Clone(first), size, at)
	}
	return withMBR(slices.Clone(first), at), nil
}

// tableFits refuses an image whose GPT counts in sectors of another size than the disk's: no firmware finds it there.
func (w *writing) tableFits() error {
	block := w.device.Info().BlockBytes
	has := func(at int64) bool { return int64(len(w.first)) >= at+8 && string(w.first[at:at+8]) == "EFI PART" }
	for _, other := range []int64{sector, 4096} {
		if block > 0 && other != block && has(other) && !has(block) {
			return fault.New(fault.DriverError, "the image's partition table is for sectors of %d bytes, and those of %s have %d", other,
				w.device.Info().Path, block).
				WithRemedy("have the deployment's hints choose another disk, or use an image that was made for such a disk")
		}
	}
	return nil
}

// withGPT changes first, which is a copy.
func withGPT(first []byte, size int64, at span) (changed, tail []byte) {
	header := first[sector : sector+92]
	le := binary.LittleEndian
	if le.Uint64(header[72:]) != 2 || le.Uint32(header[80:]) != 128 || le.Uint32(header[84:]) != 128 || le.Uint32(header[12:]) != 92 {
		return nil, nil
	}
	entries := first[2*sector : 34*sector]
	free := -1
	for i := range 128 {
		if isZero(entries[i*128 : i*128+16]) {
			free = i
			break
		}
	}
	if free < 0 {
		return nil, nil
	}
	entry := entries[free*128:][:128]
	unique := sha256.Sum256(append([]byte("config drive of "), header[56:72]...))
	copy(entry, linuxData)
	copy(entry[16:], unique[:16])
	entry[16+7], entry[16+8] = entry[16+7]&0x0f|0x40, entry[16+8]&0x3f|0x80
	le.PutUint64(entry[32:], uint64(at.offset/sector))
	le.PutUint64(entry[40:], uint64((at.offset+at.length)/sector-1))
	for i, c := range "config" {
		le.PutUint16(entry[56+2*i:], uint16(c))
	}
	last := uint64(size/sector - 1)
	le.PutUint64(header[32:], last)                             // where the other header is
	le.PutUint64(header[48:], last-33)                          // the last sector for partitions
	le.PutUint32(first[446+12:], uint32(min(last, 0xffffffff))) // the protective MBR covers the disk
	le.PutUint32(header[88:], crc32.ChecksumIEEE(entries))
	seal(header)

	tail = make([]byte, gptTail)
	copy(tail, entries)
	backup := tail[gptTail-sector:][:92]
	copy(backup, header)
	le.PutUint64(backup[24:], last)
	le.PutUint64(backup[32:], 1)
	le.PutUint64(backup[72:], last-32)
	seal(backup)
	return first, tail
}

// seal writes a header's own checksum.
func seal(header []byte) {
	clear(header[16:20])
	binary.LittleEndian.PutUint32(header[16:], crc32.ChecksumIEEE(header))
}

// withMBR changes first, which is a copy. A disk beyond 2 TiB can't be told of in such a table.
func withMBR(first []byte, at span) []byte {
	if !bytes.Equal(first[510:512], []byte{0x55, 0xaa}) || (at.offset+at.length)/sector > 0xffffffff || !plausibleMBR(first) {
		return nil
	}
	for i := range 4 {
		entry := first[446+16*i:][:16]
		if !isZero(entry) {
			continue
		}
		copy(entry[1:4], []byte{0xfe, 0xff, 0xff})
		entry[4] = 0x83
		copy(entry[5:8], []byte{0xfe, 0xff, 0xff})
		binary.LittleEndian.PutUint32(entry[8:], uint32(at.offset/sector))
		binary.LittleEndian.PutUint32(entry[12:], uint32(at.length/sector))
		return first
	}
	return nil
}

// plausibleMBR tells a table from the boot sector of a filesystem, which ends with the same two bytes, and from the one with which a GPT
// has its disk look full.
func plausibleMBR(first []byte) bool {
	used := 0
	for i := range 4 {
		entry := first[446+16*i:][:16]
		if entry[0]&0x7f != 0 || entry[4] == 0xee {
			return false
		}
		if entry[4] != 0 {
			used++
		}
	}
	return used > 0
}
