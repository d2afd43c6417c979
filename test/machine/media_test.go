//go:build qemu

package machine

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/better-compute/metal/test/lab"
	"github.com/better-compute/metal/test/machine/qemu"
)

// Nobody tells the machine what to boot from the network: its controller reads an image that the site's agent has made for it,
// and the firmware starts that, each time by an override for once.
func TestALifeByVirtualMedia(t *testing.T) {
	sideBySide(t)
	b := StartUser(t, func(o *lab.Options) {
		o.Profiles = func(step map[string]any) {
			if step["use"] == "metal.ensureRamdisk" {
				step["with"] = map[string]any{"device": "cd"}
			}
		}
	})
	m := b.Add(func(s *qemu.Spec) { s.UEFI, s.Network = true, "user" })
	ready(t, b, m)
	isEjected(t, b, m, 1)
	deployed(t, b, m)
	isEjected(t, b, m, 2)
	released(t, b, m, "quick")
	isEjected(t, b, m, 3)
	b.Verify()
}

// isEjected fails where the drive is not empty, or was not filled so many times; or where the token can still be had with what
// the controller was given.
func isEjected(t *testing.T, b *Bench, m *Machine, times int) {
	t.Helper()
	if media := m.State().Media[0]; media.Inserted {
		t.Errorf("the virtual drive still holds %+v", media)
	}
	var filled int
	for _, line := range strings.Split(m.History(), "\n") {
		if strings.Contains(line, "virtual drive holds http://") && strings.HasSuffix(line, "/ramdisk.iso") {
			filled++
		}
	}
	if filled != times {
		t.Errorf("the virtual drive was filled %d times, not %d:\n%s", filled, times, m.History())
	}
	medium, err := os.ReadFile(m.MediaFile())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(medium, []byte("metal.ref=")) || bytes.Contains(medium, []byte("jtk_")) {
		t.Error("the medium holds no reference, or the token itself")
	}
}
