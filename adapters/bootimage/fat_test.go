package bootimage

import (
	"encoding/binary"
	"testing"

	"github.com/better-compute/metal/adapters/iso9660"
	"github.com/better-compute/metal/domain/fault"
)

// What kind of FAT a filesystem is follows from the number of its clusters alone.
func TestEveryFileHasAFilesystemOfTheRightKind(t *testing.T) {
	le := binary.LittleEndian
	for _, size := range []int{1, 8 << 20, 9 << 20, 130 << 20, 140 << 20, 1 << 30, 2000 << 20} {
		for _, bytes := range []int{size - 1, size, size + 1} {
			f, err := newFAT("BOOTX64 EFI", bytes)
			if err != nil {
				t.Fatal(err)
			}
			cluster, tables := int(f.head[13])*fatSector, 2*int(le.Uint16(f.head[22:]))
			dataAt := (int(le.Uint16(f.head[14:]))+tables)*fatSector + fatRoot*fatEntry
			clusters := (f.size - dataAt) / cluster
			if clusters < 4085 || clusters > 65524 || dataAt+2*cluster != len(f.head) || len(f.head)+bytes > f.size || f.size%iso9660.Block != 0 ||
				tables*fatSector/4 < clusters+2 || len(f.head)%iso9660.Block != 0 {
				t.Errorf("%d bytes: %d clusters of %d, from %d on; %d in all", bytes, clusters, cluster, dataAt, f.size)
			}
		}
	}
	if _, err := newFAT("BOOTX64 EFI", 2<<30); fault.CodeOf(err) != fault.InvalidInput {
		t.Errorf("too large: %v", err)
	}
}
