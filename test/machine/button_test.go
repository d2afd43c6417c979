//go:build qemu

package machine

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/sim/bmcsim"
	"github.com/better-compute/metal/test/lab"
	"github.com/better-compute/metal/test/machine/qemu"
)

// An orderly shutdown is what a controller is asked for first: the ramdisk switches its machine off in order, though its
// gateway is out of reach.
func TestThePowerButtonEndsTheRamdisk(t *testing.T) {
	sideBySide(t)
	a, dir := openAssets(t), t.TempDir()
	build := exec.Command(lab.Path(t, "bcd"), "image", "build-ramdisk", "--kernel", a.Kernel, "--modules", a.Modules, "--out", dir)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m, err := qemu.New(a, t.TempDir(), qemu.Spec{
		Name: "m", Serial: "LAB-0", UUID: "6f1c0000-0000-4000-8000-000000000000", MAC: "52:54:00:6c:00:01", MemoryMiB: 512, UEFI: true,
		Network: "user", Disks: []qemu.Disk{{Serial: "DISK-0", Bytes: 64 << 20}},
		Arguments: []string{
			"-kernel", filepath.Join(dir, "vmlinuz"), "-initrd", filepath.Join(dir, "initramfs"), "-append",
			kernelArguments + " metal.gateway=https://10.0.2.2:1 metal.site=http://10.0.2.2:1 metal.ref=r metal.ca=" + strings.Repeat("a", 64),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	if err := m.Reset(bmcsim.On); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	until := func(what string, is func() bool) {
		t.Helper()
		for !is() {
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
				t.Fatalf("not in time: %s\n%s", what, m.Story(60))
			}
		}
	}
	says := func(text string) bool {
		console, err := os.ReadFile(m.ConsoleFile()) // it appears once QEMU runs
		return err == nil && strings.Contains(string(console), text)
	}
	until("the ramdisk asks for its token", func() bool { return says("there is no join token yet") })
	if err := m.Reset(bmcsim.GracefulShutdown); err != nil {
		t.Fatal(err)
	}
	until("the machine is off", func() bool { return !m.State().On })
	if !says("the machine is switched off") {
		t.Error(m.Story(60))
	}
}
