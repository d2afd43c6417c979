package disk_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/kdomanski/iso9660"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/domain/fault"
)

func packed(t testing.TB, format string, p []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	var err error
	switch _, compression, _ := strings.Cut(format, "."); compression {
	case "":
		return p
	case "gz":
		w = gzip.NewWriter(&out)
	case "xz":
		w, err = xz.NewWriter(&out)
	case "zst":
		w, err = zstd.NewWriter(&out)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(p); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func imageOf(format string, served []byte) disk.Image {
	sum := sha256.Sum256(served)
	return disk.Image{Digest: "sha256:" + hex.EncodeToString(sum[:]), Format: format, Bytes: int64(len(served)), ReadBack: true}
}

// content is an image that ends in the middle of a chunk and has holes.
func content() []byte {
	p := garbage(3*mib+12345, 7)
	clear(p[mib : 2*mib])
	return p
}

func TestWriteImage(t *testing.T) {
	raw := content()
	padded := append(bytes.Clone(raw), make([]byte, 65536-len(raw)%65536)...)
	for _, format := range []string{"raw", "raw.gz", "raw.xz", "raw.zst", "qcow2", "qcow2.gz", "qcow2.zst"} {
		t.Run(format, func(t *testing.T) {
			want, file := raw, raw
			if format == "raw.xz" { // whose packing takes long
				want, file = raw[:200_000], raw[:200_000]
			}
			if strings.HasPrefix(format, "qcow2") {
				want, file = padded, qcow2File(padded, false)
			}
			served := packed(t, format, file)
			d := newDisk(64*mib, disk.Means{})
			write(t, d, 2*mib, garbage(8*mib, 9)) // of before
			done, err := disk.WriteImage(t.Context(), d, iotest.HalfReader(bytes.NewReader(served)), imageOf(format, served), quiet)
			if err != nil || done.Bytes != int64(len(want)) || !done.ReadBack {
				t.Fatalf("got %+v, %v", done, err)
			}
			if !bytes.Equal(read(t, d, 0, len(want)), want) {
				t.Error("the disk holds something else")
			}
		})
	}
}

func TestQcow2WithPackedClusters(t *testing.T) {
	raw := bytes.Repeat([]byte("something that packs well. "), 3*mib/27)
	raw = append(raw, make([]byte, 65536-len(raw)%65536)...)
	file := qcow2File(raw, true)
	if len(file) > len(raw)/2 {
		t.Fatal("the test's own file is not packed")
	}
	d := newDisk(64*mib, disk.Means{})
	if _, err := disk.WriteImage(t.Context(), d, bytes.NewReader(file), imageOf("qcow2", file), quiet); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(read(t, d, 0, len(raw)), raw) {
		t.Error("the disk holds something else")
	}
	if d.Allocated() > int64(len(raw))+mib {
		t.Error("the spooled file is still there")
	}
}

// bootable tells whether there is anything where firmware looks.
func bootable(t *testing.T, d disk.Device) bool {
	t.Helper()
	size := d.Info().Bytes
	return !bytes.Equal(read(t, d, 0, mib), make([]byte, mib)) || !bytes.Equal(read(t, d, size-mib, mib), make([]byte, mib))
}

func TestAnImageThatFailsLeavesNothingThatBoots(t *testing.T) {
	raw := content()
	signer, key := newSigner(t)
	_, other := newSigner(t)
	sum := sha256.Sum256(raw)
	for name, c := range map[string]struct {
		change func(i *disk.Image)
		source io.Reader
		size   int64
		faults disk.Faults
		want   string
	}{
		"short":                  {nil, bytes.NewReader(raw[:len(raw)-1]), 0, disk.Faults{}, "were promised"},
		"long":                   {nil, bytes.NewReader(append(bytes.Clone(raw), 1)), 0, disk.Faults{}, "more bytes"},
		"nothing":                {nil, bytes.NewReader(nil), 0, disk.Faults{}, "were promised"},
		"broken off":             {nil, io.MultiReader(bytes.NewReader(raw[:2*mib]), iotest.ErrReader(io.ErrUnexpectedEOF)), 0, disk.Faults{}, "broke off"},
		"another digest":         {func(i *disk.Image) { i.Digest = "sha256:" + strings.Repeat("0", 64) }, nil, 0, disk.Faults{}, "digest"},
		"too large":              {nil, nil, 8*mib - 1, disk.Faults{}, "full"},
		"disk much too small":    {nil, nil, 5 * mib, disk.Faults{}, "only"},
		"another's signature":    {func(i *disk.Image) { i.Signer, i.Signature = signer, ed25519.Sign(other, sum[:]) }, nil, 0, disk.Faults{}, "signed"},
		"no signature":           {func(i *disk.Image) { i.Signer = signer }, nil, 0, disk.Faults{}, "signed"},
		"no signer":              {func(i *disk.Image) { i.Signature = ed25519.Sign(key, sum[:]) }, nil, 0, disk.Faults{}, "signed"},
		"not what it says":       {func(i *disk.Image) { i.Format = "raw.gz" }, nil, 0, disk.Faults{}, "unpack"},
		"not a qcow2":            {func(i *disk.Image) { i.Format = "qcow2" }, nil, 0, disk.Faults{}, "begin"},
		"an unknown format":      {func(i *disk.Image) { i.Format = "vmdk" }, nil, 0, disk.Faults{}, "vmdk"},
		"an unknown packing":     {func(i *disk.Image) { i.Format = "raw.lz4" }, nil, 0, disk.Faults{}, "lz4"},
		"a disk that fails":      {nil, nil, 0, disk.Faults{Write: func(at, _ int64) error { return failAt(at, 2*mib) }}, "medium error"},
		"a disk that can't read": {nil, nil, 0, disk.Faults{Read: func(at, _ int64) error { return failAt(at, 3*mib) }}, "read back"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.size == 0 {
				c.size = 64 * mib
			}
			if name == "too large" {
				c.change = func(i *disk.Image) { i.Config = &disk.Config{} }
			}
			d := newDisk(c.size, disk.Means{})
			write(t, d, 0, garbage(4096, 1))
			write(t, d, c.size-4096, garbage(4096, 2))
			d.SetFaults(c.faults)
			image, source := imageOf("raw", raw), c.source
			if c.change != nil {
				c.change(&image)
			}
			if source == nil {
				source = bytes.NewReader(raw)
			}
			done, err := disk.WriteImage(t.Context(), d, source, image, quiet)
			if err == nil || !strings.Contains(err.Error(), c.want) || fault.CodeOf(err) == fault.Internal {
				t.Errorf("got %+v, %v", done, err)
			}
			d.SetFaults(disk.Faults{})
			if name != "disk much too small" && bootable(t, d) {
				t.Error("something is left that may boot")
			}
		})
	}
}

func TestAnImageThatIsBrokenOffByItsContext(t *testing.T) {
	raw := content()
	ctx, cancel := context.WithCancel(t.Context())
	d := newDisk(64*mib, disk.Means{})
	_, err := disk.WriteImage(ctx, d, bytes.NewReader(raw), imageOf("raw", raw), func(percent float64, _ string) {
		if percent > 50 {
			cancel()
		}
	})
	if err == nil || bootable(t, d) {
		t.Errorf("got %v", err)
	}
}

// Until the very end nothing on the disk boots: a machine that loses power in between has no half of an OS.
func TestTheFirstBlockIsWrittenLast(t *testing.T) {
	raw := content()
	d := newDisk(64*mib, disk.Means{})
	var order []int64
	d.SetFaults(disk.Faults{Write: func(at, _ int64) error {
		order = append(order, at)
		return nil
	}})
	if _, err := disk.WriteImage(t.Context(), d, bytes.NewReader(raw), imageOf("raw", raw), quiet); err != nil {
		t.Fatal(err)
	}
	if len(order) < 6 || order[0] != 0 || order[len(order)-1] != 0 {
		t.Errorf("written in this order: %v", order)
	}
	for _, at := range order[1 : len(order)-1] {
		if at < mib {
			t.Errorf("written in this order: %v", order)
		}
	}
}

// The backup of a partition table is at the very end of a disk, and firmware mends a missing table by it: an image that reaches
// there, and a table that is fitted to the disk, are not to be booted by it either before all is proven.
func TestTheEndOfTheDiskIsWrittenOnceAllIsProven(t *testing.T) {
	const size = 16 * mib
	whole := garbage(size, 3)
	table := gptImage(8*mib, linuxData)
	for name, c := range map[string]struct {
		raw    []byte
		format string
		config *disk.Config
	}{
		"an image as large as the disk": {whole, "raw", nil},
		"packed":                        {whole, "raw.zst", nil},
		"a table for a config drive":    {table, "raw", &disk.Config{UserData: []byte("x")}},
	} {
		t.Run(name, func(t *testing.T) {
			served := packed(t, c.format, c.raw)
			d := newDisk(size, disk.Means{})
			image := imageOf(c.format, served)
			image.Config = c.config
			source := &ending{Reader: bytes.NewReader(served)}
			last := false
			d.SetFaults(disk.Faults{Write: func(at, n int64) error {
				if at+n > size-mib && n < 4*mib { // not the zeroes of before
					last = true
				}
				return nil
			}})
			source.atEnd = func() {
				if at := size - int64(mib); !bytes.Equal(read(t, d, at, mib), make([]byte, mib)) {
					t.Error("the end is written, and nothing is proven yet")
				}
			}
			if _, err := disk.WriteImage(t.Context(), d, source, image, quiet); err != nil || !source.ended || !last {
				t.Fatal(err, source.ended, last)
			}
			d.SetFaults(disk.Faults{})
			if c.config == nil && !bytes.Equal(read(t, d, 0, size), c.raw) {
				t.Error("the disk holds something else")
			}
		})
	}
}

// ending tells when a source has ended: from then on the image can be proven.
type ending struct {
	io.Reader
	atEnd func()
	ended bool
}

func (e *ending) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if err == io.EOF && !e.ended {
		e.ended = true
		e.atEnd()
	}
	return n, err
}

// What does not hold what was written is found, wherever it is: in the config drive and at the end of the disk too.
func TestEverythingIsReadBack(t *testing.T) {
	const size = 16 * mib
	for name, c := range map[string]struct {
		at  int64
		raw []byte
	}{
		"the config drive": {size - 4*mib + 16*2048, gptImage(8*mib, linuxData)}, "the table's backup": {size - 512, gptImage(8*mib, linuxData)},
		"the image's end": {size - 512, garbage(size, 3)}, "the image's beginning": {0, content()},
	} {
		d := &forgetful{Memory: newDisk(size, disk.Means{}), at: c.at}
		image := imageOf("raw", c.raw)
		if len(c.raw) < size {
			image.Config = &disk.Config{UserData: []byte("x")}
		}
		_, err := disk.WriteImage(t.Context(), d, bytes.NewReader(c.raw), image, quiet)
		if err == nil || !strings.Contains(err.Error(), "does not hold") {
			t.Errorf("%s: %v", name, err)
		}
		if bootable(t, d) {
			t.Errorf("%s: something is left that may boot", name)
		}
	}
}

// forgetful is a disk that keeps nothing at one place but zeroes.
type forgetful struct {
	*disk.Memory
	at int64
}

func (f *forgetful) WriteAt(p []byte, offset int64) (int, error) {
	if f.at < offset || f.at >= offset+int64(len(p)) {
		return f.Memory.WriteAt(p, offset)
	}
	p = bytes.Clone(p)
	clear(p[f.at-offset:][:min(512, offset+int64(len(p))-f.at)])
	return f.Memory.WriteAt(p, offset)
}

// An image must not cost a ramdisk its memory: what wants to look back at too much is refused before anything is set aside.
func TestAnImageThatWantsTooMuchMemory(t *testing.T) {
	raw := content()[:100_000]
	for dictionary, ok := range map[byte]bool{22: true, 26: true, 33: false, 34: false, 39: false, 40: false, 63: false} {
		served := packed(t, "raw.xz", raw)
		at := bytes.Index(served[:64], []byte{0x21, 1}) + 2 // LZMA2, with one byte
		if at < 2 {
			t.Fatal("the test's own file is not known")
		}
		served[at] = dictionary
		head := served[12:][:4*(int(served[12])+1)]
		binary.LittleEndian.PutUint32(head[len(head)-4:], crc32.ChecksumIEEE(head[:len(head)-4]))
		d := newDisk(16*mib, disk.Means{})
		_, err := disk.WriteImage(t.Context(), d, bytes.NewReader(served), imageOf("raw.xz", served), quiet)
		if ok && (err != nil || !bytes.Equal(read(t, d, 0, len(raw)), raw)) {
			t.Errorf("%d: %v", dictionary, err)
		}
		if !ok && (err == nil || !strings.Contains(err.Error(), "memory") || bootable(t, d)) {
			t.Errorf("%d: %v", dictionary, err)
		}
	}
	for _, n := range []int{0, 1, 6, 11, 12, 13, 14, 15, 20} { // a head that is cut short
		served := packed(t, "raw.xz", raw)[:n]
		_, err := disk.WriteImage(t.Context(), newDisk(16*mib, disk.Means{}), bytes.NewReader(served), imageOf("raw.xz", served), quiet)
		if err == nil {
			t.Errorf("%d bytes are an image", n)
		}
	}
}

func newSigner(t *testing.T) (string, ed25519.PrivateKey) {
	t.Helper()
	public, key, err := ed25519.GenerateKey(crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return publicPEM(t, public), key
}

func publicPEM(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func TestSignatures(t *testing.T) {
	raw := content()
	sum := sha256.Sum256(raw)
	signer, key := newSigner(t)
	p256, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	by := func(k *ecdsa.PrivateKey) []byte {
		s, err := ecdsa.SignASN1(crand.Reader, k, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for name, c := range map[string]struct {
		signer    string
		signature []byte
		ok        bool
	}{
		"Ed25519":        {signer, ed25519.Sign(key, sum[:]), true},
		"ECDSA P-256":    {publicPEM(t, p256.Public()), by(p256), true},
		"ECDSA P-384":    {publicPEM(t, p384.Public()), by(p384), false},
		"over the image": {signer, ed25519.Sign(key, raw), false},
		"no PEM":         {"hello", ed25519.Sign(key, sum[:]), false},
	} {
		image := imageOf("raw", raw)
		image.Signer, image.Signature = c.signer, c.signature
		_, err := disk.WriteImage(t.Context(), newDisk(64*mib, disk.Means{}), bytes.NewReader(raw), image, quiet)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestConfigDrive(t *testing.T) {
	for name, c := range map[string]struct {
		raw    []byte
		config disk.Config
		files  map[string]string
		label  string
	}{
		"cloud-init, no table": {content(), disk.Config{UserData: []byte("#cloud-config\n"), Hostname: "h1", Instance: "i1"},
			map[string]string{"user-data": "#cloud-config\n", "meta-data": "instance-id: \"i1\"\nlocal-hostname: \"h1\"\n"}, "cidata"},
		"cloud-init, GPT": {gptImage(16*mib, linuxData), disk.Config{Kind: disk.KindNoCloud, UserData: garbage(2*mib, 3), Instance: "i1"},
			map[string]string{"user-data": string(garbage(2*mib, 3)), "meta-data": "instance-id: \"i1\"\n"}, "cidata"},
		"ignition, MBR": {mbrImage(), disk.Config{Kind: disk.KindIgnition, UserData: []byte(`{"ignition":{}}`)},
			map[string]string{"config.ign": `{"ignition":{}}`}, "ignition"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(64*mib+777*512, disk.Means{})
			image := imageOf("raw", c.raw)
			image.Config = &c.config
			if _, err := disk.WriteImage(t.Context(), d, bytes.NewReader(c.raw), image, quiet); err != nil {
				t.Fatal(err)
			}
			files, err := disk.ReadConfigDrive(d)
			if err != nil || len(files) != len(c.files) {
				t.Fatalf("got %v, %v", files, err)
			}
			// Another reader finds the same, with the names as they are.
			iso, err := iso9660.OpenImage(io.NewSectionReader(d, 60*mib, 3*mib))
			if err != nil {
				t.Fatal(err)
			}
			if label, err := iso.Label(); err != nil || label != c.label {
				t.Errorf("the label is %q, %v", label, err)
			}
			root, err := iso.RootDir()
			if err != nil {
				t.Fatal(err)
			}
			children, err := root.GetChildren()
			if err != nil || len(children) != len(c.files) {
				t.Fatalf("another reader finds %v, %v", children, err)
			}
			for _, f := range children {
				text, err := io.ReadAll(f.Reader())
				if err != nil || string(text) != c.files[f.Name()] || string(files[f.Name()]) != c.files[f.Name()] {
					t.Errorf("%s differs: %v", f.Name(), err)
				}
			}
		})
	}
}

// The drive's partition is in the table, whose backup moves to the end of the disk.
func TestTheConfigDriveHasAPartition(t *testing.T) {
	raw := gptImage(16*mib, linuxData)
	d := newDisk(64*mib, disk.Means{})
	image := imageOf("raw", raw)
	image.Config = &disk.Config{UserData: []byte("x")}
	if _, err := disk.WriteImage(t.Context(), d, bytes.NewReader(raw), image, quiet); err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	for _, at := range []int64{512, 64*mib - 512} {
		h := read(t, d, at, 92)
		sum := le.Uint32(h[16:])
		clear(h[16:20])
		if string(h[:8]) != "EFI PART" || crc32.ChecksumIEEE(h) != sum || int64(le.Uint64(h[24:]))*512 != at {
			t.Fatalf("the header at %d is not right", at)
		}
		entries := read(t, d, int64(le.Uint64(h[72:]))*512, 128*128)
		if crc32.ChecksumIEEE(entries) != le.Uint32(h[88:]) {
			t.Errorf("the entries of the header at %d are not right", at)
		}
		first, last := int64(le.Uint64(entries[128+32:])), int64(le.Uint64(entries[128+40:]))
		if first*512 != 60*mib || (last+1)*512 != 63*mib || uint64(last) > le.Uint64(h[48:]) {
			t.Errorf("the partition is at %d to %d", first, last)
		}
		if !bytes.Equal(read(t, d, first*512+16*2048, 6), []byte("\x01CD001")) {
			t.Error("the partition does not hold the drive")
		}
	}
}

// native is an image for disks with sectors of 4 KiB, as far as its table tells.
func native() []byte {
	raw := gptImage(16*mib, linuxData)
	copy(raw[4096:], raw[512:1024])
	clear(raw[512:1024])
	return raw
}

// A table counts in sectors. On a disk whose sectors have another size it is where nobody looks.
func TestATableForOtherSectors(t *testing.T) {
	packed := qcow2File(gptImage(16*mib, linuxData), false)
	for name, c := range map[string]struct {
		format string
		served []byte
		block  int64
		fits   bool
	}{
		"512 on 512":         {"raw", gptImage(16*mib, linuxData), 512, true},
		"512 on 4096":        {"raw", gptImage(16*mib, linuxData), 4096, false},
		"512 on 4096, qcow2": {"qcow2", packed, 4096, false},
		"512 on 512, qcow2":  {"qcow2", packed, 512, true},
		"4096 on 512":        {"raw", native(), 512, false},
		"4096 on 4096":       {"raw", native(), 4096, true},
		"512 on who knows":   {"raw", gptImage(16*mib, linuxData), 0, true},
		"no table":           {"raw", content(), 4096, true},
	} {
		info := newDisk(64*mib, disk.Means{}).Info()
		info.BlockBytes = c.block
		d := disk.NewMemory(info, disk.Means{})
		_, err := disk.WriteImage(t.Context(), d, bytes.NewReader(c.served), imageOf(c.format, c.served), quiet)
		if (err == nil) != c.fits || err != nil && (!strings.Contains(err.Error(), "sectors of") || bootable(t, d)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The config drive's partition is not put into the table with which a GPT has its disk look full.
func TestAProtectiveTableStaysAsItIs(t *testing.T) {
	raw := native()
	info := newDisk(64*mib, disk.Means{}).Info()
	info.BlockBytes = 4096
	d, image := disk.NewMemory(info, disk.Means{}), imageOf("raw", raw)
	image.Config = &disk.Config{UserData: []byte("x")}
	if _, err := disk.WriteImage(t.Context(), d, bytes.NewReader(raw), image, quiet); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(read(t, d, 0, 512), raw[:512]) {
		t.Error("it was changed")
	}
	if files, err := disk.ReadConfigDrive(d); err != nil || string(files["user-data"]) != "x" {
		t.Errorf("the drive holds %v, %v", files, err)
	}
}

func TestNoConfigDrive(t *testing.T) {
	for _, size := range []int64{1000, 64 * mib} {
		if files, err := disk.ReadConfigDrive(newDisk(size, disk.Means{})); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("got %v, %v", files, err)
		}
	}
}

func FuzzReadConfigDrive(f *testing.F) {
	raw := content()
	d := newDisk(64*mib, disk.Means{})
	image := imageOf("raw", raw)
	image.Config = &disk.Config{UserData: []byte("x")}
	if _, err := disk.WriteImage(f.Context(), d, bytes.NewReader(raw), image, quiet); err != nil {
		f.Fatal(err)
	}
	drive := make([]byte, 24*2048)
	_, _ = d.ReadAt(drive, 60*mib)
	f.Add(drive[16*2048:])
	f.Fuzz(func(_ *testing.T, p []byte) {
		d := newDisk(64*mib, disk.Means{})
		_, _ = d.WriteAt(p[:min(len(p), 3*mib-16*2048)], 60*mib+16*2048)
		_, _ = disk.ReadConfigDrive(d)
	})
}

func FuzzQcow2(f *testing.F) {
	f.Add(qcow2File(garbage(65536*2, 1), false))
	f.Add(qcow2File(make([]byte, 65536*2), true))
	f.Fuzz(func(_ *testing.T, p []byte) {
		if len(p) == 0 {
			return
		}
		d := newDisk(64*mib, disk.Means{})
		_, _ = disk.WriteImage(context.Background(), d, bytes.NewReader(p), imageOf("qcow2", p), quiet)
	})
}

// Whatever an image is: where it can't be written, nothing can boot from the disk.
func FuzzImage(f *testing.F) {
	formats := []string{"raw", "raw.gz", "raw.xz", "raw.zst", "qcow2", "qcow2.gz"}
	for i, format := range formats {
		raw := content()[:200_000]
		if strings.HasPrefix(format, "qcow2") {
			raw = qcow2File(garbage(65536*2, 1), false)
		}
		f.Add(byte(i), packed(f, format, raw), true)
	}
	f.Fuzz(func(t *testing.T, format byte, p []byte, readBack bool) {
		if len(p) == 0 {
			return
		}
		d := newDisk(64*mib, disk.Means{})
		write(t, d, 0, []byte("what booted before"))
		image := imageOf(formats[int(format)%len(formats)], p)
		image.ReadBack = readBack
		_, err := disk.WriteImage(context.Background(), d, bytes.NewReader(p), image, quiet)
		if err != nil && bootable(t, d) {
			t.Errorf("%v, and it boots", err)
		}
	})
}

var linuxData = []byte{0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4}

// gptImage is a disk of size bytes with one partition of a kind, from 2 MiB to 4 MiB.
func gptImage(size int64, kind []byte) []byte {
	p := make([]byte, size)
	le := binary.LittleEndian
	p[446+4], p[510], p[511] = 0xee, 0x55, 0xaa
	le.PutUint32(p[446+8:], 1)
	le.PutUint32(p[446+12:], uint32(size/512-1))
	entries := p[1024:][:128*128]
	copy(entries, kind)
	copy(entries[16:], garbage(16, 4))
	le.PutUint64(entries[32:], 2*mib/512)
	le.PutUint64(entries[40:], 4*mib/512-1)
	h := p[512:][:92]
	copy(h, "EFI PART\x00\x00\x01\x00")
	le.PutUint32(h[12:], 92)
	le.PutUint64(h[24:], 1)
	le.PutUint64(h[32:], uint64(size/512-1))
	le.PutUint64(h[40:], 34)
	le.PutUint64(h[48:], uint64(size/512-34))
	copy(h[56:], garbage(16, 5))
	le.PutUint64(h[72:], 2)
	le.PutUint32(h[80:], 128)
	le.PutUint32(h[84:], 128)
	le.PutUint32(h[88:], crc32.ChecksumIEEE(entries))
	le.PutUint32(h[16:], crc32.ChecksumIEEE(h))
	return p
}

func mbrImage() []byte {
	p := garbage(4*mib, 6)
	clear(p[446:510])
	p[446], p[446+4] = 0x80, 0x83
	binary.LittleEndian.PutUint32(p[446+8:], 2048)
	binary.LittleEndian.PutUint32(p[446+12:], 2048)
	p[510], p[511] = 0x55, 0xaa
	return p
}

// qcow2File writes raw, of whole clusters, as a version 3 file with clusters of 64 KiB. Clusters of zeroes are left out.
func qcow2File(raw []byte, pack bool) []byte {
	const cluster = 65536
	be := binary.BigEndian
	header := make([]byte, cluster)
	copy(header, "QFI\xfb")
	be.PutUint32(header[4:], 3)
	be.PutUint32(header[20:], 16)
	be.PutUint64(header[24:], uint64(len(raw)))
	be.PutUint32(header[36:], 1)
	be.PutUint64(header[40:], cluster)
	be.PutUint32(header[96:], 4)
	be.PutUint32(header[100:], 112)
	level1, level2 := make([]byte, cluster), make([]byte, cluster)
	be.PutUint64(level1, 2*cluster|1<<63)
	var data []byte
	for i := 0; i*cluster < len(raw); i++ {
		part := raw[i*cluster:][:cluster]
		at := uint64(3*cluster + len(data))
		switch {
		case bytes.Equal(part, make([]byte, cluster)):
		case pack:
			var out bytes.Buffer
			w, _ := flate.NewWriter(&out, 6)
			_, _ = w.Write(part)
			_ = w.Close()
			sectors := (at%512+uint64(out.Len())+511)/512 - 1
			be.PutUint64(level2[8*i:], 1<<62|sectors<<54|at)
			data = append(data, out.Bytes()...)
		default:
			be.PutUint64(level2[8*i:], at|1<<63)
			data = append(data, part...)
		}
	}
	return slices.Concat(header, level1, level2, data)
}
