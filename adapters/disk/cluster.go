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

// sharedBy names the shared filesystem that a device holds, or nothing. Where it can't be told, nothing may be written: a table that
// can't be read is none that tells of nothing.
func sharedBy(device Device) (string, error) {
	d := &attentive{Device: device}
	starts := []int64{0}
	for _, p := range partitionsOf(d) {
		if name := sharedKinds[p.kind]; name != "" {
			return name, nil
		}
		starts = append(starts, p.offset)
	}
	buffer := make([]byte, 8)
	for _, start := range starts {
		for _, m := range sharedMagics {
			found := buffer[:len(m.magic)]
			if _, err := d.ReadAt(found, start+m.offset); err == nil && bytes.Equal(found, m.magic) {
				return m.name, nil
			}
		}
	}
	return "", d.failed
}

// attentive is a device of which it is noted what could not be read. Its end is none of that: a small disk has it early, and a
// partition need not be where its table says.
type attentive struct {
	Device
	failed error
}

func (a *attentive) ReadAt(p []byte, offset int64) (int, error) {
	n, err := a.Device.ReadAt(p, offset)
	if err != nil && !errors.Is(err, io.EOF) && a.failed == nil {
		a.failed = fmt.Errorf("read at %d, for traces of a filesystem that other machines share: %w; %s", offset, err, ifAlone)
	}
	return n, err
}

// ifAlone is what an operator can do about a disk that may be shared, and is not.
const ifAlone = `where the disk is this machine's alone, have the profile's step say "shared": true`
