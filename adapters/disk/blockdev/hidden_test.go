package blockdev_test

import (
	"strings"
	"testing"

	"github.com/better-compute/metal/adapters/disk/blockdev"
)

// What somebody set apart with the means of the disk itself is wiped by nobody: it has to be told.
func TestWhatAnATADiskHides(t *testing.T) {
	const by48bits, hasArea, hasOverlay, sectors = 1 << 10, 1 << 10, 1 << 11, 1000
	words := func(w82, w83 uint16) map[int]uint16 { return map[int]uint16{82: w82, 83: w83, 100: sectors} }
	for name, c := range map[string]struct {
		d    ata
		want string
		err  bool
	}{
		"it is as large as it is":             {ata{words: words(hasArea, by48bits), native: sectors - 1}, "", false},
		"a host protected area":               {ata{words: words(hasArea, by48bits), native: sectors + 99}, "100 sectors", false},
		"by the newer command":                {ata{words: words(0, by48bits), native: sectors + 9}, "10 sectors", false},
		"it knows neither":                    {ata{words: words(0, by48bits)}, "", false},
		"an overlay":                          {ata{words: words(hasArea, by48bits|hasOverlay), native: sectors - 1, overlay: sectors + 49}, "50 sectors", false},
		"the firmware froze the overlay":      {ata{words: words(hasArea, by48bits|hasOverlay), native: sectors - 1}, "", false},
		"registers that are cut to 24 bits":   {ata{words: words(hasArea, by48bits), native: 7}, "", false},
		"it counts with 28 bits":              {ata{words: words(hasArea, 0), native: sectors + 99}, "", false},
		"it fails at what it says it has":     {ata{words: words(hasArea, by48bits), fails: 0x27}, "", true},
		"it fails at what it never spoke of":  {ata{words: words(0, by48bits), fails: 0x78}, "", false},
		"it fails at the overlay":             {ata{words: words(hasArea, by48bits|hasOverlay), native: sectors - 1, fails: 0xb1}, "", true},
		"a disk that is asked for nothing":    {ata{}, "", false},
		"an area, with a frozen security set": {ata{words: words(hasArea, by48bits), native: sectors}, "1 sectors", false},
	} {
		got, err := blockdev.HiddenATA(&c.d)
		if (err != nil) != c.err || (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// A namespace that is attached to no controller is full of whatever it was, and no block device shows it.
func TestWhatAnNVMeControllerHides(t *testing.T) {
	const manages = 8
	for name, c := range map[string]struct {
		c    controller
		want string
	}{
		"all are attached":             {controller{optional: manages, namespaces: []uint32{1, 2}, allocated: []uint32{1, 2}}, ""},
		"one is another controller's":  {controller{optional: manages, namespaces: []uint32{1}, allocated: []uint32{1, 2}}, ""},
		"two are attached to none":     {controller{optional: manages, namespaces: []uint32{1}, allocated: []uint32{1, 2, 7}, detached: []uint32{2, 7}}, "namespaces [2 7]"},
		"it can't make any":            {controller{namespaces: []uint32{1}, allocated: []uint32{1, 2}, detached: []uint32{2}}, ""},
		"its list is as long as it is": {controller{optional: manages, namespaces: many(1024), allocated: many(1024)}, ""},
	} {
		if got, err := blockdev.HiddenNVMe(&c.c); err != nil || (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// mute is a controller that answers nothing: what it hides is not known.
type mute struct{}

func (mute) Namespace() (uint32, error)                { return 1, nil }
func (mute) Admin(blockdev.AdminCommand, []byte) error { return errBroken }

func TestAControllerThatTellsNothing(t *testing.T) {
	if got, err := blockdev.HiddenNVMe(mute{}); err == nil {
		t.Errorf("it hides %q", got)
	}
}

func many(n uint32) (out []uint32) {
	for i := range n {
		out = append(out, i+1)
	}
	return out
}
