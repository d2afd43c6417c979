package bootimage_test

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/better-compute/metal/adapters/bootimage"
	"github.com/better-compute/metal/domain/fault"
)

const block = 2048

// bootImage follows the boot catalog of a medium, as firmware does.
func bootImage(t *testing.T, medium []byte) (image []byte, sectors int) {
	t.Helper()
	le := binary.LittleEndian
	if string(medium[16*block:][:6]) != "\x01CD001" || int(le.Uint32(medium[16*block+80:]))*block != len(medium) {
		t.Fatalf("no volume of %d bytes", len(medium))
	}
	record := medium[17*block:]
	if string(record[:30]) != "\x00CD001\x01EL TORITO SPECIFICATION" || string(medium[18*block:][:6]) != "\xffCD001" {
		t.Fatal("no boot record")
	}
	catalog := medium[int(le.Uint32(record[71:]))*block:]
	sum := uint16(0)
	for i := 0; i < 32; i += 2 {
		sum += le.Uint16(catalog[i:])
	}
	if catalog[0] != 1 || catalog[1] != 0xef || sum != 0 || catalog[32] != 0x88 || catalog[33] != 0 {
		t.Fatalf("the catalog is % x", catalog[:64])
	}
	return medium[int(le.Uint32(catalog[40:]))*block:], int(le.Uint16(catalog[38:]))
}

// readFAT gives a file of a FAT16 filesystem by its path, cluster by cluster.
func readFAT(t *testing.T, b []byte, path ...string) []byte {
	t.Helper()
	le := binary.LittleEndian
	cluster, reserved, each := int(b[13])*512, int(le.Uint16(b[14:])), int(le.Uint16(b[22:]))
	rootAt := (reserved + int(b[16])*each) * 512
	dataAt := rootAt + int(le.Uint16(b[17:]))*32
	sectors := int(le.Uint16(b[19:])) + int(le.Uint32(b[32:]))
	if count := (sectors*512 - dataAt) / cluster; count < 4085 || count > 65524 || each*256 < count+2 || dataAt%block != 0 {
		t.Fatalf("%d clusters of %d bytes, in tables of %d sectors, from %d on", count, cluster, each, dataAt)
	}
	if !bytes.Equal(b[reserved*512:][:each*512], b[(reserved+each)*512:][:each*512]) {
		t.Error("the two tables differ")
	}
	chain := func(first int) (out []byte) {
		for n := first; n < 0xfff8; n = int(le.Uint16(b[reserved*512+2*n:])) {
			out = append(out, b[dataAt+(n-2)*cluster:][:cluster]...)
		}
		return out
	}
	directory := b[rootAt:dataAt]
	for _, name := range path {
		at := bytes.Index(directory, []byte(name))
		if at < 0 || at%32 != 0 {
			t.Fatalf("there is no %q", name)
		}
		e := directory[at:]
		directory = chain(int(le.Uint16(e[26:])))
		if size := int(le.Uint32(e[28:])); size > 0 {
			directory = directory[:size]
		}
	}
	return directory
}

func TestMediumHoldsWhatFirmwareStarts(t *testing.T) {
	for _, size := range []int{1, 34 << 20} { // the larger has more sectors than the catalog counts
		kernel, initramfs := []byte("kernel"), bytes.Repeat([]byte{0xa5}, size)
		var medium, again bytes.Buffer
		if err := bootimage.Medium(&medium, stub(), kernel, initramfs, "quiet"); err != nil {
			t.Fatal(err)
		}
		if err := bootimage.Medium(&again, stub(), kernel, initramfs, "quiet"); err != nil || !bytes.Equal(medium.Bytes(), again.Bytes()) {
			t.Fatalf("the same inputs give other bytes, or %v", err)
		}
		words := []byte("metal.ref=x console=ttyS0")
		var place, room int
		if _, err := fmt.Sscanf(medium.String()[:64], "metal-medium 1 %d %d\n", &place, &room); err != nil || room != bootimage.MediumPlace {
			t.Fatalf("the note is %q, %v", medium.Bytes()[:64], err)
		}
		if blank := medium.Bytes()[place:][:room]; strings.Trim(string(blank), " ") != "" {
			t.Errorf("the place holds %q", blank)
		}
		copy(medium.Bytes()[place:], words)

		image, sectors := bootImage(t, medium.Bytes())
		if want := len(image) / 512; sectors != want && (want < 1<<16 || sectors != 1) {
			t.Errorf("the catalog counts %d sectors of %d", sectors, want)
		}
		program, err := pe.NewFile(bytes.NewReader(readFAT(t, image, "EFI        ", "BOOT       ", "BOOTX64 EFI")))
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{
			".cmdline": "quiet " + string(words) + strings.Repeat(" ", room-len(words)), ".linux": "kernel", ".initrd": string(initramfs),
		} {
			s := program.Section(name)
			if data, err := s.Data(); err != nil || string(data[:s.VirtualSize]) != want {
				t.Errorf("%d bytes: %s is not what was given, %v", size, name, err)
			}
		}
	}
}

func TestWhatIsNoMedium(t *testing.T) {
	strange := stub()
	binary.LittleEndian.PutUint16(strange[0x44:], 0x14c)
	for name, test := range map[string]struct {
		stub      []byte
		arguments string
	}{
		"no stub": {nil, ""}, "a processor of 32 bits": {strange, ""}, "long arguments": {stub(), strings.Repeat("a", 511)},
	} {
		if err := bootimage.Medium(&bytes.Buffer{}, test.stub, []byte("k"), []byte("i"), test.arguments); fault.CodeOf(err) != fault.InvalidInput {
			t.Errorf("%s: %v", name, err)
		}
	}
	arm := stub()
	binary.LittleEndian.PutUint16(arm[0x44:], 0xaa64)
	var medium bytes.Buffer
	if err := bootimage.Medium(&medium, arm, []byte("k"), []byte("i"), strings.Repeat("a", 510)); err != nil {
		t.Fatal(err)
	}
	image, _ := bootImage(t, medium.Bytes())
	readFAT(t, image, "EFI        ", "BOOT       ", "BOOTAA64EFI")
}

func TestBuildMakesAMediumToo(t *testing.T) {
	directory := t.TempDir()
	for name, data := range map[string][]byte{"kernel": []byte("kernel"), "stub": stub(), "lib/modules/1/kernel/fat.ko": ko("depends=")} {
		name = filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	source := bootimage.Source{Kernel: filepath.Join(directory, "kernel"), Modules: filepath.Join(directory, "lib")}
	firmware := bootimage.Firmware{Stub: filepath.Join(directory, "stub"), Arguments: "quiet", Medium: true}
	ramdisk := bootimage.Ramdisk{Agent: object(x86, false), Names: []string{"fat"}}
	var sums [2][]string
	for i := range sums {
		files, _, err := bootimage.Build(source, ramdisk, firmware, filepath.Join(directory, fmt.Sprint("out", i)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			sums[i] = append(sums[i], filepath.Base(f.Path)+" "+f.SHA256)
		}
	}
	if got := strings.Join(sums[0], "\n"); len(sums[0]) != 4 || got != strings.Join(sums[1], "\n") || !strings.Contains(got, "ramdisk.iso ") {
		t.Errorf("built %v, then %v", sums[0], sums[1])
	}
}
