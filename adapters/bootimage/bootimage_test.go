package bootimage_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/pe"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/better-compute/metal/adapters/bootimage"
	"github.com/better-compute/metal/domain/fault"
)

// object is an ELF file with one section .modinfo, or a program that wants a loader.
func object(machine uint16, loader bool, info ...string) []byte {
	le := binary.LittleEndian
	names := "\x00.modinfo\x00.shstrtab\x00"
	data := strings.Join(info, "\x00") + "\x00"
	b := make([]byte, 64, 1024)
	copy(b, "\x7fELF\x02\x01\x01")
	le.PutUint16(b[16:], 1)
	le.PutUint16(b[18:], machine)
	le.PutUint32(b[20:], 1)
	le.PutUint16(b[52:], 64)
	le.PutUint16(b[54:], 56)
	le.PutUint16(b[58:], 64)
	if loader {
		le.PutUint64(b[32:], 64)
		le.PutUint16(b[56:], 1)
		header := make([]byte, 56)
		le.PutUint32(header, 3) // PT_INTERP
		b = append(b, header...)
	}
	dataAt := len(b)
	b = append(b, data...)
	namesAt := len(b)
	b = append(b, names...)
	for len(b)%8 != 0 {
		b = append(b, 0)
	}
	le.PutUint64(b[40:], uint64(len(b)))
	le.PutUint16(b[60:], 3)
	le.PutUint16(b[62:], 2)
	section := func(name uint32, kind uint32, at, size int) {
		s := make([]byte, 64)
		le.PutUint32(s, name)
		le.PutUint32(s[4:], kind)
		le.PutUint64(s[24:], uint64(at))
		le.PutUint64(s[32:], uint64(size))
		b = append(b, s...)
	}
	section(0, 0, 0, 0)
	section(1, 1, dataAt, len(data))
	section(10, 3, namesAt, len(names))
	return b
}

const x86 = 62

func ko(info ...string) []byte { return object(x86, false, append(info, "vermagic=6.1.0-t SMP")...) }

func zipped(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(b)
	_ = z.Close()
	return out.Bytes()
}

// kernelTree is a kernel whose network driver needs others, packed and not.
func kernelTree() map[string][]byte {
	return map[string][]byte{
		"lib/modules/6.1.0-t/kernel/drivers/net/quick-net.ko":  ko("depends=failover,virt_io", "alias=virtio:d00000001v*", "softdep=pre: sums post: late"),
		"lib/modules/6.1.0-t/kernel/net/failover.ko.gz":        zipped(ko("depends=")),
		"lib/modules/6.1.0-t/kernel/drivers/virtio/virt_io.ko": ko("depends=failover"),
		"lib/modules/6.1.0-t/kernel/crypto/sums.ko":            ko("depends=", "alias=crypto-sums"),
		"lib/modules/6.1.0-t/kernel/fs/fat/fat.ko":             ko("depends="),
		"lib/modules/6.1.0-t/kernel/fs/fat/vfat.ko":            ko("depends=fat", "alias=fs-vfat"),
		"lib/modules/6.1.0-t/kernel/late.ko":                   ko("depends="),
		"lib/modules/6.1.0-t/modules.builtin":                  []byte("kernel/drivers/nvme/host/nvme.ko\n"),
	}
}

func mapFS(files map[string][]byte) fstest.MapFS {
	out := fstest.MapFS{}
	for name, data := range files {
		out[name] = &fstest.MapFile{Data: data}
	}
	return out
}

// unpack reads an archive as the kernel does.
func unpack(t *testing.T, b []byte) (names []string, files map[string]string) {
	t.Helper()
	files = map[string]string{}
	field := func(n int) int {
		v, err := strconv.ParseUint(string(b[6+8*n:14+8*n]), 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		return int(v)
	}
	round := func(n int) int { return (n + 3) / 4 * 4 }
	for string(b[:6]) == "070701" {
		size, nameSize := field(6), field(11)
		name := string(b[110 : 110+nameSize-1])
		if name == "TRAILER!!!" {
			return names, files
		}
		at := round(110 + nameSize)
		names = append(names, name)
		files[name] = fmt.Sprintf("%o %d.%d %s", field(1), field(9), field(10), b[at:at+size])
		b = b[round(at+size):]
	}
	t.Fatal("there is no trailer")
	return nil, nil
}

func TestInitramfs(t *testing.T) {
	agent := object(x86, false)
	r := bootimage.Ramdisk{
		Agent: agent, Modules: mapFS(kernelTree()), Certificates: []byte("pem"),
		Names: []string{"quick_net", "nvme", "vfat", "absent", "sums"},
	}
	var first, second bytes.Buffer
	built, err := r.Initramfs(&first)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Initramfs(&second); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("the same inputs give other bytes, or %v", err)
	}
	if diff := cmp.Diff(bootimage.Built{
		Release: "6.1.0-t", Modules: []string{"failover", "virt_io", "sums", "quick_net", "fat", "vfat"}, Missing: []string{"absent"},
	}, built); diff != "" {
		t.Error(diff)
	}
	names, files := unpack(t, first.Bytes())
	seen := map[string]bool{}
	for _, name := range names {
		if directory := filepath.Dir(name); directory != "." && !seen[directory] {
			t.Errorf("%s comes before its directory", name)
		}
		if seen[name] {
			t.Errorf("%s is there twice", name)
		}
		seen[name] = true
	}
	if files["init"] != "100755 0.0 "+string(agent) || files["dev/console"] != "20600 5.1 " || files["proc"] != "40755 0.0 " ||
		files["etc/ssl/certs/ca-certificates.crt"] != "100644 0.0 pem" {
		t.Errorf("got %q", names)
	}
	if diff := cmp.Diff("100644 0.0 "+`asked /lib/modules/kernel/net/failover.ko -
asked /lib/modules/kernel/drivers/virtio/virt_io.ko failover
always /lib/modules/kernel/crypto/sums.ko -
device /lib/modules/kernel/drivers/net/quick-net.ko failover,virt_io,sums virtio:d00000001v*
asked /lib/modules/kernel/fs/fat/fat.ko -
asked /lib/modules/kernel/fs/fat/vfat.ko fat
`, files[bootimage.ModuleList]); diff != "" {
		t.Error(diff)
	}
	var packed bytes.Buffer
	r.Compress = true
	if _, err := r.Initramfs(&packed); err != nil {
		t.Fatal(err)
	}
	z, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	if got, err := z.DecodeAll(packed.Bytes(), nil); err != nil || !bytes.Equal(got, first.Bytes()) {
		t.Errorf("compressed it is another one, or %v", err)
	}
}

func TestWhatCanNotBeARamdisk(t *testing.T) {
	other := kernelTree()
	other["lib/modules/6.2/kernel/other.ko"] = object(x86, false, "vermagic=6.2 SMP")
	for name, r := range map[string]bootimage.Ramdisk{
		"no program":          {Agent: []byte("#!/bin/sh"), Modules: mapFS(kernelTree())},
		"shared libraries":    {Agent: object(x86, true), Modules: mapFS(kernelTree())},
		"no modules":          {Agent: object(x86, false), Modules: fstest.MapFS{}},
		"another processor":   {Agent: object(183, false), Modules: mapFS(kernelTree()), Names: []string{"fat"}},
		"two kernels":         {Agent: object(x86, false), Modules: mapFS(other), Names: []string{"fat", "other"}},
		"not a module at all": {Agent: object(x86, false), Modules: mapFS(map[string][]byte{"kernel/a.ko": []byte("x")}), Names: []string{"a"}},
	} {
		if _, err := r.Initramfs(&bytes.Buffer{}); fault.CodeOf(err) != fault.InvalidInput {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// deb is a Debian package with these files.
func deb(t *testing.T, files map[string][]byte) string {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	w := tar.NewWriter(z)
	for name, data := range files {
		if err := w.WriteHeader(&tar.Header{Name: "./" + name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	out := []byte("!<arch>\n")
	member := func(name string, data []byte) {
		out = fmt.Appendf(out, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", name, 0, 0, 0, "100644", len(data))
		if out = append(out, data...); len(data)%2 != 0 {
			out = append(out, '\n')
		}
	}
	member("debian-binary", []byte("2.0\n"))
	member("control.tar.gz", []byte("odd"))
	member("data.tar.gz", packed.Bytes())
	name := filepath.Join(t.TempDir(), "kernel.deb")
	if err := os.WriteFile(name, out, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// stub is a small image for firmware, with room for sections.
func stub() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0x600)
	copy(b, "MZ")
	le.PutUint32(b[0x3c:], 0x40)
	copy(b[0x40:], "PE\x00\x00")
	coff := b[0x44:]
	le.PutUint16(coff, 0x8664)
	le.PutUint16(coff[2:], 1)
	le.PutUint16(coff[16:], 240)
	optional := coff[20:]
	le.PutUint16(optional, 0x20b)
	le.PutUint32(optional[32:], 0x1000)
	le.PutUint32(optional[36:], 0x200)
	le.PutUint32(optional[56:], 0x2000)
	le.PutUint32(optional[60:], 0x400)
	le.PutUint32(optional[108:], 16)
	section := optional[240:]
	copy(section, ".text")
	le.PutUint32(section[8:], 0x10)
	le.PutUint32(section[12:], 0x1000)
	le.PutUint32(section[16:], 0x200)
	le.PutUint32(section[20:], 0x400)
	return b
}

// Some cards do not work before they were handed a file of their maker's. What the modules ask for comes, and nothing else.
func TestFirmwareComesWithTheModules(t *testing.T) {
	tree := kernelTree()
	tree["lib/modules/6.1.0-t/kernel/drivers/net/card.ko"] = ko("depends=", "alias=pci:v1*", "firmware=card/one.bin", "firmware=card/two.bin",
		"firmware=card/gone.bin", "firmware=card/pack-*.bin")
	tree["lib/modules/6.1.0-t/kernel/drivers/net/twin.ko"] = ko("depends=", "alias=pci:v2*", "firmware=card/one.bin", "firmware=../../etc/shadow")
	tree["lib/modules/6.1.0-t/kernel/drivers/net/poor.ko"] = ko("depends=", "alias=pci:v3*", "firmware=poor.bin")
	r := bootimage.Ramdisk{
		Agent: object(x86, false), Modules: mapFS(tree), Names: []string{"twin", "card", "poor", "fat"},
		Firmware: mapFS(map[string][]byte{
			"card/one.bin": []byte("one"), "card/two.bin.xz": xzipped(t, []byte("two")), "card/pack-7.bin": []byte("seven"),
			"card/other.bin": []byte("other"), "poor.bin/x": nil,
		}),
	}
	var out, again bytes.Buffer
	built, err := r.Initramfs(&out)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"card/one.bin", "card/pack-7.bin", "card/two.bin"}, built.Firmware); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"poor"}, built.NoFirmware); diff != "" {
		t.Error(diff)
	}
	_, files := unpack(t, out.Bytes())
	for name, want := range map[string]string{
		"lib/firmware/card/one.bin": "100644 0.0 one", "lib/firmware/card/two.bin": "100644 0.0 two",
		"lib/firmware/card/pack-7.bin": "100644 0.0 seven", "lib/firmware/card": "40755 0.0 ", "lib/firmware/card/other.bin": "",
	} {
		if files[name] != want {
			t.Errorf("%s is %q", name, files[name])
		}
	}
	if _, err := r.Initramfs(&again); err != nil || !bytes.Equal(out.Bytes(), again.Bytes()) {
		t.Errorf("the same inputs give other bytes, or %v", err)
	}
	r.Firmware = nil
	if built, err = r.Initramfs(&again); err != nil || built.Firmware != nil || len(built.NoFirmware) != 3 {
		t.Errorf("without any: %+v, %v", built, err)
	}
}

func xzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := xz.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestBuildFromPackages(t *testing.T) {
	files := kernelTree()
	files["boot/vmlinuz-6.1.0-t"] = []byte("kernel")
	files["usr/share/doc/changelog"] = []byte("x")
	r := bootimage.Ramdisk{Agent: object(x86, false), Names: []string{"quick_net"}}
	directory := t.TempDir()
	stubFile := filepath.Join(directory, "stub")
	if err := os.WriteFile(stubFile, stub(), 0o600); err != nil {
		t.Fatal(err)
	}
	source, firmware := bootimage.Source{Packages: []string{deb(t, files)}}, bootimage.Firmware{Stub: stubFile, Arguments: "quiet"}
	written, _, err := bootimage.Build(source, r, firmware, filepath.Join(directory, "a"))
	if err != nil || len(written) != 3 {
		t.Fatal(written, err)
	}
	again, _, err := bootimage.Build(source, r, firmware, filepath.Join(directory, "b"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range written {
		if written[i].SHA256 != again[i].SHA256 || written[i].Bytes == 0 {
			t.Errorf("%+v, then %+v", written[i], again[i])
		}
	}
	if b, err := os.ReadFile(written[0].Path); err != nil || string(b) != "kernel" {
		t.Errorf("the kernel is %q, %v", b, err)
	}
	left, err := os.ReadDir(filepath.Join(directory, "a"))
	if err != nil || len(left) != 3 {
		t.Errorf("left are %v, %v", left, err)
	}
	checkUnified(t, written[2].Path, written[1].Path)

	for name, packages := range map[string][]string{
		"no kernel": {deb(t, kernelTree())}, "two kernels": {deb(t, files), deb(t, map[string][]byte{"boot/vmlinuz-7": nil})},
		"no package": {stubFile}, "not there": {filepath.Join(directory, "gone")},
	} {
		_, _, err := bootimage.Build(bootimage.Source{Packages: packages}, r, bootimage.Firmware{}, filepath.Join(directory, "c"))
		if fault.CodeOf(err) != fault.InvalidInput {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// checkUnified reads the image as firmware and stub do.
func checkUnified(t *testing.T, image, initramfs string) {
	t.Helper()
	file, err := pe.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	want, err := os.ReadFile(initramfs)
	if err != nil {
		t.Fatal(err)
	}
	end := uint32(0)
	for _, s := range file.Sections {
		if s.VirtualAddress < end || s.VirtualAddress%0x1000 != 0 || s.Offset%0x200 != 0 {
			t.Errorf("section %s is at %#x and %#x; the one before ends at %#x", s.Name, s.VirtualAddress, s.Offset, end)
		}
		end = s.VirtualAddress + s.VirtualSize
	}
	for name, want := range map[string]string{".cmdline": "quiet", ".linux": "kernel", ".initrd": string(want)} {
		s := file.Section(name)
		if s == nil {
			t.Errorf("there is no %s", name)
			continue
		}
		if data, err := s.Data(); err != nil || string(data[:s.VirtualSize]) != want {
			t.Errorf("%s is not what was given, %v", name, err)
		}
	}
	if header, ok := file.OptionalHeader.(*pe.OptionalHeader64); !ok || header.SizeOfImage < end || header.SizeOfImage%0x1000 != 0 {
		t.Errorf("the image's size is wrong: %+v", file.OptionalHeader)
	}
}

func TestWhatIsNoStub(t *testing.T) {
	full := stub()
	binary.LittleEndian.PutUint32(full[0x44+20+60:], 0x180)
	for _, b := range [][]byte{nil, []byte("MZ"), make([]byte, 4096), stub()[:0x80], full} {
		if _, err := bootimage.Unified(b, []byte("k"), []byte("i"), ""); fault.CodeOf(err) != fault.InvalidInput {
			t.Errorf("%d bytes: %v", len(b), err)
		}
	}
}

// A disk that no driver shows is not in the inventory, so nothing misses it in a wipe.
func TestTheRamdiskHasDriversForServersDisks(t *testing.T) {
	has := map[string]bool{}
	for _, name := range bootimage.Modules() {
		if has[name] {
			t.Errorf("%s is named twice", name)
		}
		has[name] = true
	}
	for name, what := range map[string]string{
		"vmd": "NVMe behind a processor's own controller", "nvme": "NVMe", "ahci": "SATA", "mpt3sas": "SAS of 6 and 12 Gbit/s",
		"mpi3mr": "SAS of 24 Gbit/s", "megaraid_sas": "MegaRAID", "smartpqi": "Smart Array", "hpsa": "older Smart Array",
		"aacraid": "Adaptec", "pm80xx": "Adaptec's plain controllers", "arcmsr": "Areca", "virtio_blk": "virtual disks",
	} {
		if !has[name] {
			t.Errorf("without %s nobody sees the disks of %s", name, what)
		}
	}
}
