package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Some filesystems are on disks that several machines use at once. Such a disk looks local, and emptying it takes the data of
// machines that nobody spoke of.

// sharedKinds are the types of partitions that such filesystems live on.
var sharedKinds = map[string]string{
	"AA31E02A-400F-11DB-9590-000C2911D1B8": "VMFS",
	"FB":                                   "VMFS",
	"37AFFC90-EF7D-4E96-91C3-2D7AE055B174": "GPFS",
}

// sharedMagics are what they write where they begin, on a partition or on the whole disk.
var sharedMagics = []struct {
	name   string
	offset int64
	magic  []byte
}{
	{"VMFS", 1 << 20, []byte{0x0d, 0xd0, 0x01, 0xc0}}, // volume
	{"VMFS", 2 << 20, []byte{0x5e, 0xf1, 0xab, 0x2f}}, // filesystem
	{"OCFS2", 1 << 10, []byte("OCFSV2")},              // the third of its blocks, of any of four sizes
	{"OCFS2", 2 << 10, []byte("OCFSV2")},
	{"OCFS2", 4 << 10, []byte("OCFSV2")},
	{"OCFS2", 8 << 10, []byte("OCFSV2")},
	{"GFS2", 64 << 10, []byte{0x01, 0x16, 0x19, 0x70, 0, 0, 0, 1}},
}

// sharedBy names the shared filesystem that a device holds, or nothing. Where it can't be told, nothing may be written.
func sharedBy(d Device, partitions []partition) (string, error) {
	starts := []int64{0}
	for _, p := range partitions {
		if name := sharedKinds[p.kind]; name != "" {
			return name, nil
		}
		starts = append(starts, p.offset)
	}
	buffer := make([]byte, 8)
	for _, start := range starts {
		for _, m := range sharedMagics {
			found := buffer[:len(m.magic)]
			switch _, err := d.ReadAt(found, start+m.offset); {
			case errors.Is(err, io.EOF): // a small disk, or a partition that is not where its table says
			case err != nil:
				return "", fmt.Errorf("read at %d, for traces of a filesystem that other machines share: %w", start+m.offset, err)
			case bytes.Equal(found, m.magic):
				return m.name, nil
			}
		}
	}
	return "", nil
}
