package disk

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// partition is one entry of a partition table.
type partition struct {
	offset, length int64
	kind           string // GPT: the type's GUID, upper case; MBR: two hex digits
}

const (
	sector     = 512
	maxEntries = 512
)

// partitionsOf reads what partition table there is: GPT at either end, for sectors of 512 and 4096 bytes, or MBR. What does
// not make sense is left out: the caller looks for what may be there, it does not trust it.
func partitionsOf(d Device) []partition {
	size := d.Info().Bytes
	for _, block := range []int64{sector, 4096} {
		for _, header := range []int64{block, size - block} {
			if found := gptAt(d, header, block, size); len(found) > 0 {
				return found
			}
		}
	}
	return mbrOf(d, size)
}

func gptAt(d Device, header, block, size int64) (out []partition) {
	h := make([]byte, 92)
	if _, err := d.ReadAt(h, header); err != nil || string(h[:8]) != "EFI PART" {
		return nil
	}
	table := int64(binary.LittleEndian.Uint64(h[72:])) * block
	count, each := binary.LittleEndian.Uint32(h[80:]), binary.LittleEndian.Uint32(h[84:])
	if table <= 0 || table >= size || count > maxEntries || each < 128 || each > 4096 {
		return nil
	}
	entries := make([]byte, count*each)
	if _, err := d.ReadAt(entries, table); err != nil {
		return nil
	}
	for e := range count {
		entry := entries[e*each:][:each]
		first, last := int64(binary.LittleEndian.Uint64(entry[32:])), int64(binary.LittleEndian.Uint64(entry[40:]))
		if isZero(entry[:16]) || first <= 0 || last < first || last >= size/block {
			continue
		}
		out = append(out, partition{first * block, (last - first + 1) * block, guid(entry[:16])})
	}
	return out
}

func mbrOf(d Device, size int64) (out []partition) {
	table := make([]byte, sector)
	if _, err := d.ReadAt(table, 0); err != nil || !bytes.Equal(table[510:], []byte{0x55, 0xaa}) {
		return nil
	}
	for e := range 4 {
		entry := table[446+16*e:][:16]
		first, count := int64(binary.LittleEndian.Uint32(entry[8:]))*sector, int64(binary.LittleEndian.Uint32(entry[12:]))*sector
		if entry[4] != 0 && first > 0 && count > 0 && first < size {
			out = append(out, partition{first, count, strings.ToUpper(hex.EncodeToString(entry[4:5]))})
		}
	}
	return out
}

// guid writes a GUID as people do; its first three fields are stored the other way round.
func guid(b []byte) string {
	text := hex.EncodeToString([]byte{
		b[3], b[2], b[1], b[0], b[5], b[4], b[7], b[6], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15],
	})
	return strings.ToUpper(text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:])
}
