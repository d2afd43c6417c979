package ramdisk

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/domain/agentcommand"
)

func TestFindInstalled(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	const grub = "set default=0\nif true; then\n set x=y\nfi\n\nmenuentry 'Debian' --class debian {\n\tinsmod ext2\n" +
		"\tlinux\t/boot/vmlinuz-6.1 root=UUID=1 ro  quiet $extra\n\tinitrd\t/boot/initrd.img-6.1\n}\nmenuentry 'Old' {\n\tlinux /boot/vmlinuz-5\n}\n"
	for _, test := range []struct {
		name  string
		files fstest.MapFS
		want  installed
		found bool
	}{
		{"nothing", fstest.MapFS{"x": file("y")}, installed{}, false},
		{"a boot loader is no kernel", fstest.MapFS{"EFI/BOOT/BOOTX64.EFI": file("MZ")}, installed{}, false},
		{"GRUB", fstest.MapFS{"boot/grub/grub.cfg": file(grub), "boot/vmlinuz-6.1": file("k"), "boot/initrd.img-6.1": file("i")},
			installed{[]byte("k"), []byte("i"), "root=UUID=1 ro quiet"}, true},
		{"GRUB's kernel is on another filesystem", fstest.MapFS{"boot/grub/grub.cfg": file(grub)}, installed{}, false},
		{"the newest entry", fstest.MapFS{
			"loader/entries/a-6.1.conf": file("title x\nlinux /old\n"), "old": file("o"),
			"loader/entries/a-6.2.conf": file("title x\nlinux /VMLINUZ\ninitrd /one\ninitrd /two\noptions root=a\noptions $tuned rw\n"),
			"vmlinuz":                   file("new"), "one": file("1"), "two": file("2"),
		}, installed{[]byte("new"), []byte("1\x00\x00\x002"), "root=a rw"}, true},
		{"an entry whose kernel is gone gives way", fstest.MapFS{
			"loader/entries/b.conf": file("linux /gone\n"), "loader/entries/a.conf": file("linux /here\n"), "here": file("h"),
		}, installed{kernel: []byte("h")}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := findInstalled(test.files)
			if (err == nil) != test.found || err != nil && !errors.Is(err, errNoKernel) {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(installed{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestBurnProcessors(t *testing.T) {
	no := func(float64, string) {}
	with := agentcommand.Burnin{Duration: agentcommand.Seconds(0.05)}
	got := burnProcessors(t.Context(), []int{0, 1}, with, func(int) error { return nil }, no)
	for i, name := range []string{"cpu0", "cpu1"} {
		if p := got.Parts[i]; p.Name != name || p.Errors != 0 || p.Took.Duration() < 50*time.Millisecond {
			t.Errorf("got %+v", p)
		}
	}
	got = burnProcessors(t.Context(), []int{7}, agentcommand.Burnin{}, func(int) error { return errors.New("offline") }, no)
	if got.Parts[0].Errors != 1 || got.Parts[0].Detail == "" {
		t.Errorf("a processor that is not there: %+v", got)
	}
}

func TestBurnMemory(t *testing.T) {
	areas := [][]uint64{make([]uint64, 4096), make([]uint64, 100)}
	last := 0.0
	got := burnMemory(t.Context(), areas, agentcommand.Burnin{}, func(percent float64, _ string) { last = percent })
	if p := got.Parts[0]; p.Name != "memory" || p.Errors != 0 || p.Bytes != 8*4196 || last < 99 {
		t.Errorf("got %+v, %v", p, last)
	}
	// Two areas that are the same memory: what is written to one shows at the other.
	same := make([]uint64, 64)
	if p := burnMemory(t.Context(), [][]uint64{same, same}, agentcommand.Burnin{}, func(float64, string) {}).Parts[0]; p.Errors == 0 || p.Detail == "" {
		t.Errorf("got %+v", p)
	}
	steps := 0
	got = burnMemory(t.Context(), areas, agentcommand.Burnin{Duration: 1e-9}, func(float64, string) { steps++ })
	if p := got.Parts[0]; p.Errors != 0 || p.Bytes != 8*4196 || steps != 2*len(areas) {
		t.Errorf("a time that is over after one pattern: %+v, %d steps", p, steps)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if p := burnMemory(stopped, areas, agentcommand.Burnin{Duration: 3600}, func(float64, string) {}).Parts[0]; p.Bytes != 0 {
		t.Errorf("it does not stop: %+v", p)
	}
}

func TestABitThatIsStuck(t *testing.T) {
	for i, pattern := range patterns {
		words := make([]uint64, 1000)
		fill(words, 5, pattern)
		broken := slices.Clone(words)
		broken[77] ^= 1 << 40
		if n, detail := differences(words, 5, pattern); n != 0 || detail != "" {
			t.Errorf("pattern %d: %d, %s", i, n, detail)
		}
		if n, detail := differences(broken, 5, pattern); n != 1 || detail == "" {
			t.Errorf("pattern %d: %d, %s", i, n, detail)
		}
	}
}
