package iso9660_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	other "github.com/kdomanski/iso9660"

	"github.com/better-compute/metal/adapters/iso9660"
	"github.com/better-compute/metal/domain/fault"
)

// written is a volume with its files, whose bytes are their names again and again.
func written(t testing.TB, v iso9660.Volume) (image []byte, files map[string][]byte) {
	t.Helper()
	image, err := v.Head()
	if err != nil || len(image)%iso9660.Block != 0 {
		t.Fatalf("%d bytes, %v", len(image), err)
	}
	files = map[string][]byte{}
	for _, f := range v.Files {
		data := bytes.Repeat([]byte(f.Name), f.Size/len(f.Name)+1)[:f.Size]
		files[f.Name] = data
		image = append(image, data...)
		image = append(image, make([]byte, (iso9660.Block-f.Size%iso9660.Block)%iso9660.Block)...)
	}
	return image, files
}

func TestEveryReaderFindsTheFiles(t *testing.T) {
	v := iso9660.Volume{Label: "cidata", Files: []iso9660.File{
		{"user-data", 2*iso9660.Block + 1}, {"meta-data", iso9660.Block}, {"Config.d with spaces", 1}, {strings.Repeat("n", 64), 7},
	}}
	for _, boot := range []bool{false, true} {
		v.Boot = boot
		image, files := written(t, v)
		if again, _ := written(t, v); !bytes.Equal(image, again) {
			t.Error("the same volume has other bytes")
		}
		if strings.Trim(string(image[:16*iso9660.Block]), "\x00") != "" {
			t.Error("the caller's blocks are not empty")
		}
		label, read, err := iso9660.Read(bytes.NewReader(image), len(image))
		if err != nil || label != v.Label {
			t.Fatalf("label %q, %v", label, err)
		}
		if diff := cmp.Diff(files, read); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(files, readByAnother(t, image, v.Label)); diff != "" {
			t.Error(diff)
		}
	}
}

func readByAnother(t *testing.T, image []byte, label string) map[string][]byte {
	t.Helper()
	iso, err := other.OpenImage(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := iso.Label(); err != nil || got != label {
		t.Errorf("the label is %q, %v", got, err)
	}
	root, err := iso.RootDir()
	if err != nil {
		t.Fatal(err)
	}
	children, err := root.GetChildren()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, f := range children {
		if files[f.Name()], err = io.ReadAll(f.Reader()); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// Firmware is led to the first file, whatever its place in the directory is.
func TestFirmwareIsLedToTheFirstFile(t *testing.T) {
	le := binary.LittleEndian
	for size, sectors := range map[int]uint16{512: 1, 3 * iso9660.Block: 12, 65535 * 512: 65535, 65536 * 512: 1} {
		image, files := written(t, iso9660.Volume{Files: []iso9660.File{{"z.img", size}, {"a.txt", 5}}, Boot: true})
		record := image[17*iso9660.Block:]
		if string(record[:30]) != "\x00CD001\x01EL TORITO SPECIFICATION" || string(image[18*iso9660.Block:][:6]) != "\xffCD001" {
			t.Fatal("there is no boot record, or no end behind it")
		}
		catalog := image[int(le.Uint32(record[71:]))*iso9660.Block:]
		sum := uint16(0)
		for i := 0; i < 32; i += 2 {
			sum += le.Uint16(catalog[i:])
		}
		if catalog[0] != 1 || catalog[1] != 0xef || sum != 0 || catalog[32] != 0x88 || le.Uint16(catalog[38:]) != sectors {
			t.Errorf("%d bytes: the catalog is % x", size, catalog[:64])
		}
		if at := int(le.Uint32(catalog[40:])) * iso9660.Block; !bytes.HasPrefix(image[at:], files["z.img"]) {
			t.Errorf("at %d there is not what is started from", at)
		}
	}
}

func TestWhatCanNotBeLaidOut(t *testing.T) {
	many := make([]iso9660.File, 30)
	for i := range many {
		many[i].Name = fmt.Sprint("file", i)
	}
	for name, v := range map[string]iso9660.Volume{
		"a long name": {Files: []iso9660.File{{Name: strings.Repeat("n", 65)}}}, "a path": {Files: []iso9660.File{{Name: "a/b"}}},
		"a zero": {Files: []iso9660.File{{Name: "a\x00"}}}, "many files": {Files: many}, "nothing to boot from": {Boot: true},
	} {
		if head, err := v.Head(); fault.CodeOf(err) != fault.InvalidInput || head != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatIsNoVolume(t *testing.T) {
	image, files := written(t, iso9660.Volume{Label: "x", Files: []iso9660.File{{"a", 3000}}})
	for name, test := range map[string]struct {
		image []byte
		limit int
	}{
		"nothing": {nil, 1 << 20}, "zeros": {make([]byte, len(image)), 1 << 20}, "cut in the head": {image[:20*iso9660.Block], 1 << 20},
		"cut in a file": {image[:len(image)-iso9660.Block], 1 << 20}, "more than may be read": {image, len(files["a"]) - 1},
	} {
		if _, got, err := iso9660.Read(bytes.NewReader(test.image), test.limit); !errors.Is(err, iso9660.ErrNone) || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	image, _ := written(f, iso9660.Volume{Label: "cidata", Files: []iso9660.File{{"user-data", 10}}})
	f.Add(image[16*iso9660.Block:])
	f.Fuzz(func(_ *testing.T, p []byte) {
		_, _, _ = iso9660.Read(bytes.NewReader(append(make([]byte, 16*iso9660.Block), p...)), 1<<20)
	})
}
