package disk

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"slices"
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
	h, ok := gptHeader(d, header)
	if !ok {
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

// mbrOf reads the table in an MBR as that of a disk with sectors of both sizes: it does not tell which they are.
func mbrOf(d Device, size int64) (out []partition) {
	for _, block := range []int64{sector, 4096} {
		found, _ := mbrPartitions(d, block, size)
		out = append(out, found...)
	}
	return out
}

// mbrPartitions lists what a table in an MBR tells of, those in extended partitions too, and where the tables of these are.
func mbrPartitions(d Device, block, size int64) (out []partition, tables []span) {
	const whole = "EE" // the one with which a GPT has its disk look full
	entries, _ := mbrAt(d, 0)
	for _, e := range entries {
		begin := e.first * block
		switch {
		case e.kind == whole || begin <= 0 || begin >= size:
		case extended[e.kind]:
			more, chain := logicalOf(d, begin, block, size)
			out, tables = append(out, more...), append(tables, chain...)
		default:
			out = append(out, partition{begin, e.count * block, e.kind})
		}
	}
	return out, tables
}

// mbrEntry is one entry of a table in an MBR, or of one like it in an extended partition; in sectors.
type mbrEntry struct {
	first, count int64
	kind         string // two hex digits
}

func mbrAt(d Device, at int64) (out []mbrEntry, ok bool) {
	table := make([]byte, sector)
	if _, err := d.ReadAt(table, at); err != nil || !bytes.Equal(table[510:], []byte{0x55, 0xaa}) {
		return nil, false
	}
	for e := range 4 {
		entry := table[446+16*e:][:16]
		first, count := int64(binary.LittleEndian.Uint32(entry[8:])), int64(binary.LittleEndian.Uint32(entry[12:]))
		if entry[4] != 0 && count > 0 {
			out = append(out, mbrEntry{first, count, strings.ToUpper(hex.EncodeToString(entry[4:5]))})
		}
	}
	return out, true
}

// extended are the types of partitions that hold a chain of tables, each with one partition and where the next table is.
var extended = map[string]bool{"05": true, "0F": true, "85": true}

// logicalOf follows such a chain. Tables are where its tables are, each of which tells where the next one is.
func logicalOf(d Device, begin, block, size int64) (out []partition, tables []span) {
	seen := map[int64]bool{}
	for at := begin; at > 0 && at < size && !seen[at] && len(seen) < maxEntries; {
		seen[at] = true
		entries, ok := mbrAt(d, at)
		if !ok {
			return out, tables
		}
		tables = append(tables, span{at, block})
		next := int64(0)
		for _, e := range entries {
			if extended[e.kind] {
				next = begin + e.first*block
			} else if e.first > 0 {
				out = append(out, partition{at + e.first*block, e.count * block, e.kind})
			}
		}
		at = next
	}
	return out, tables
}

// everyPartition lists what any table on the disk tells of, for sectors of both sizes: one that an older table has is still full
// of its data. It is for who empties them: it does not matter if there are too many.
func everyPartition(d Device) (out []partition, tables []span) {
	size := d.Info().Bytes
	for _, block := range []int64{sector, 4096} {
		headers := []int64{block, size - block}
		for _, header := range headers {
			if twin, at, ok := twinOf(d, header, block, size); ok {
				headers, tables = append(headers, twin), append(tables, at)
			}
		}
		for _, header := range headers {
			out = append(out, gptAt(d, header, block, size)...)
		}
		more, chain := mbrPartitions(d, block, size)
		out, tables = append(out, more...), append(tables, chain...)
	}
	slices.SortFunc(out, func(a, b partition) int {
		return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(a.length, b.length))
	})
	return slices.CompactFunc(out, func(a, b partition) bool { return a.offset == b.offset && a.length == b.length }), tables
}

// twinOf is where a GPT says that its other copy is, header and entries: not at the disk's end where the table came with an image
// of a smaller one, and stayed as it was.
func twinOf(d Device, header, block, size int64) (twin int64, at span, ok bool) {
	const entries = 16 << 10 // in front of a backup
	h, ok := gptHeader(d, header)
	if !ok {
		return 0, span{}, false
	}
	twin = int64(binary.LittleEndian.Uint64(h[32:]))
	if twin <= 1 || twin >= size/block {
		return 0, span{}, false
	}
	twin *= block
	_, ok = gptHeader(d, twin)
	return twin, span{twin - entries, entries + block}, ok
}

func gptHeader(d Device, at int64) ([]byte, bool) {
	h := make([]byte, 92)
	_, err := d.ReadAt(h, at)
	return h, err == nil && string(h[:8]) == "EFI PART"
}

// guid writes a GUID as people do; its first three fields are stored the other way round.
func guid(b []byte) string {
	text := hex.EncodeToString([]byte{
		b[3], b[2], b[1], b[0], b[5], b[4], b[7], b[6], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15],
	})
	return strings.ToUpper(text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:])
}
