//go:build qemu

package machine

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/sim/bmcsim"
	"github.com/better-compute/metal/test/lab"
	"github.com/better-compute/metal/test/machine/netns"
	"github.com/better-compute/metal/test/machine/qemu"
)

func TestMain(m *testing.M) { netns.Main(func() { lab.Main(m) }) }

// places are for tests with one machine, which take turns in pairs. Those whose machines are on the bridge come before them, each
// alone: the bridge has one DHCP server.
var places = make(chan struct{}, 2)

func sideBySide(t *testing.T) {
	t.Helper()
	t.Parallel()
	places <- struct{}{}
	t.Cleanup(func() { <-places })
}

// The image is one that firmware starts, before anything of the product has to do with it: an OS without a config drive says
// so, and switches its machine off.
func TestFirmwareStartsTheImage(t *testing.T) {
	sideBySide(t)
	m, err := qemu.New(openAssets(t), t.TempDir(), qemu.Spec{
		Name: "m", Serial: "LAB-0", UUID: "6f1c0000-0000-4000-8000-000000000000", MAC: "52:54:00:6c:00:01", MemoryMiB: 512, UEFI: true,
		Network: "user", Disks: []qemu.Disk{{Serial: "DISK-0", Bytes: 64 << 20}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	disk, err := os.OpenFile(m.DiskFile(0), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := disk.Write(OSImage(t, openAssets(t))); err != nil {
		t.Fatal(err)
	}
	if err := disk.Close(); err != nil {
		t.Fatal(err)
	}
	m.SetBoot(bmcsim.Boot{Enabled: "Once", Target: "Hdd", Mode: "UEFI"})
	if err := m.Reset(bmcsim.On); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for m.State().On {
		changed := m.Changed()
		if !m.State().On {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatal(m.Story(40))
		}
	}
	console, err := os.ReadFile(m.ConsoleFile())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(console), "labos: the end: NOT_FOUND: the disk has no config drive") || m.State().Boot.Enabled != "Disabled" {
		t.Errorf("%+v\n%s", m.State(), m.Story(60))
	}
}
