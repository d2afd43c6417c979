package blockdev_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/adapters/disk/blockdev"
)

// controller is an NVMe controller that says of itself what a test wants.
type controller struct {
	optional     uint16
	attributes   byte
	sanitize     uint32
	namespaces   []uint32
	allocated    []uint32
	detached     []uint32 // of these, those that no controller has
	layout       byte     // FLBAS
	protection   byte     // DPS
	formatStatus blockdev.NVMeStatus
	states       []uint16 // of the sanitize, one for each look; the last stays

	asked []string // of what changes something
}

func (c *controller) Namespace() (uint32, error) { return 1, nil }

func (c *controller) Admin(command blockdev.AdminCommand, data []byte) error {
	le := binary.LittleEndian
	switch {
	case command.Opcode == 0x06 && command.CDW10 == 1:
		le.PutUint16(data[256:], c.optional)
		data[524] = c.attributes
		le.PutUint32(data[328:], c.sanitize)
	case command.Opcode == 0x06 && command.CDW10 == 0:
		data[26], data[29] = c.layout, c.protection
	case command.Opcode == 0x06 && command.CDW10 == 2:
		for i, n := range c.namespaces {
			le.PutUint32(data[4*i:], n)
		}
	case command.Opcode == 0x06 && command.CDW10 == 0x10 && c.optional&8 != 0:
		for i, n := range c.allocated {
			le.PutUint32(data[4*i:], n)
		}
	case command.Opcode == 0x06 && command.CDW10 == 0x12 && c.optional&8 != 0:
		if !slices.Contains(c.detached, command.Namespace) {
			le.PutUint16(data, 1)
		}
	case command.Opcode == 0x02:
		le.PutUint16(data, 0x8000)
		le.PutUint16(data[2:], c.states[0])
		if len(c.states) > 1 {
			c.states = c.states[1:]
		}
	case command.Opcode == 0x80:
		c.asked = append(c.asked, fmt.Sprintf("format %d %#x", command.Namespace, command.CDW10))
		if c.formatStatus != 0 {
			return c.formatStatus
		}
	case command.Opcode == 0x84:
		c.asked = append(c.asked, fmt.Sprintf("sanitize %d", command.CDW10))
	default:
		return blockdev.NVMeStatus(1)
	}
	return nil
}

func TestEraseNVMe(t *testing.T) {
	one, two := []uint32{1}, []uint32{1, 2}
	broken := errors.New("broken")
	for _, test := range []struct {
		name   string
		c      controller
		crypto bool
		asked  []string
		want   error // nil, ErrUnsupported, or broken for any other
	}{
		{"user data by format", controller{optional: 2, namespaces: one}, false, []string{"format 1 0x200"}, nil},
		{"the layout stays", controller{optional: 2, namespaces: one, layout: 0x73, protection: 0x0a}, false, []string{"format 1 0x3353"}, nil},
		{"no format, no sanitize", controller{namespaces: one}, false, nil, disk.ErrUnsupported},
		{"user data by sanitize", controller{sanitize: 3, namespaces: one, states: []uint16{2, 2, 1}}, false, []string{"sanitize 2"}, nil},
		{"a key by format", controller{optional: 2, attributes: 4, namespaces: one}, true, []string{"format 1 0x400"}, nil},
		{"a format that has no crypto erase is not asked for one", controller{optional: 2, namespaces: one}, true, nil, disk.ErrUnsupported},
		{"a key by sanitize", controller{optional: 2, sanitize: 1, namespaces: one, states: []uint16{1}}, true, []string{"sanitize 4"}, nil},
		{"block erase is not crypto erase", controller{optional: 2, sanitize: 2, namespaces: one}, true, nil, disk.ErrUnsupported},
		{"sanitize reaches the other namespaces", controller{sanitize: 3, namespaces: two}, false, nil, disk.ErrUnsupported},
		{"this format does too", controller{optional: 2, attributes: 2, namespaces: two}, false, nil, disk.ErrUnsupported},
		{"sanitize reaches a namespace of another machine", controller{optional: 8, sanitize: 3, namespaces: one, allocated: two}, false, nil, disk.ErrUnsupported},
		{"a format reaches it too", controller{optional: 2 | 8, attributes: 1, namespaces: one, allocated: two}, false, nil, disk.ErrUnsupported},
		{"nobody else has one", controller{optional: 8, sanitize: 2, namespaces: one, allocated: one, states: []uint16{1}}, false, []string{"sanitize 2"}, nil},
		{"this one does not", controller{optional: 2, namespaces: two}, false, []string{"format 1 0x200"}, nil},
		{"refused: the other way is taken", controller{optional: 2, formatStatus: 0x10a, sanitize: 2, namespaces: one, states: []uint16{1}}, false,
			[]string{"format 1 0x200", "sanitize 2"}, nil},
		{"a format that fails", controller{optional: 2, formatStatus: 0x006, namespaces: one}, false, []string{"format 1 0x200"}, broken},
		{"a sanitize that fails", controller{sanitize: 2, namespaces: one, states: []uint16{2, 3}}, false, []string{"sanitize 2"}, broken},
	} {
		t.Run(test.name, func(t *testing.T) {
			by, err := blockdev.EraseNVMe(t.Context(), &test.c, test.crypto, time.Microsecond, func(float64, string) {})
			switch {
			case test.want == nil && err != nil, errors.Is(test.want, disk.ErrUnsupported) && !errors.Is(err, disk.ErrUnsupported),
				errors.Is(test.want, broken) && (err == nil || errors.Is(err, disk.ErrUnsupported)):
				t.Errorf("got %v, want %v", err, test.want)
			}
			if last := len(test.asked) - 1; test.want == nil {
				how, _, _ := strings.Cut(test.asked[last], " ")
				if by != "nvme-"+how {
					t.Errorf("it says %q, and it was %s", by, how)
				}
			}
			if diff := cmp.Diff(test.asked, test.c.asked); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A sanitize that a power cut interrupted goes on by itself; until it ends, the disk answers nothing else.
func TestASanitizeIsWaitedFor(t *testing.T) {
	c := controller{sanitize: 2, namespaces: []uint32{1}, states: []uint16{2, 2, 1}}
	if err := blockdev.ResumeNVMe(t.Context(), &c, noReading, time.Microsecond); err != nil || len(c.states) != 1 || len(c.asked) > 0 {
		t.Errorf("got %v; states left %v, asked %v", err, c.states, c.asked)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.states = []uint16{2}
	if err := blockdev.ResumeNVMe(ctx, &c, noReading, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	never := controller{namespaces: []uint32{1}}
	if err := blockdev.ResumeNVMe(t.Context(), &never, noReading, time.Hour); err != nil {
		t.Error(err)
	}
}

func noReading() error { return errors.New("it reads nothing") }

// A sanitize that failed leaves a disk that nothing can be read from before another one succeeds. What can be read is left as
// it is: a failure of long ago is told for ever.
func TestASanitizeThatFailedIsBegunAgain(t *testing.T) {
	one := []uint32{1}
	for name, c := range map[string]struct {
		controller
		read  func() error
		asked []string
		fails bool
	}{
		"again":                 {controller{sanitize: 2, namespaces: one, states: []uint16{3, 2, 1}}, noReading, []string{"sanitize 2"}, false},
		"it only scrambles":     {controller{sanitize: 1, namespaces: one, states: []uint16{3, 1}}, noReading, []string{"sanitize 4"}, false},
		"it fails again":        {controller{sanitize: 3, namespaces: one, states: []uint16{3, 2, 3}}, noReading, []string{"sanitize 2"}, true},
		"while it was waited":   {controller{sanitize: 2, namespaces: one, states: []uint16{2, 3, 1}}, noReading, []string{"sanitize 2"}, false},
		"of long ago":           {controller{sanitize: 2, namespaces: one, states: []uint16{3}}, func() error { return nil }, nil, false},
		"others have a part":    {controller{sanitize: 2, namespaces: []uint32{1, 2}, states: []uint16{3}}, noReading, nil, true},
		"there was none":        {controller{sanitize: 2, namespaces: one, states: []uint16{0}}, noReading, nil, false},
		"there can't be any":    {controller{namespaces: one, states: []uint16{3}}, noReading, nil, false},
		"one that is done well": {controller{sanitize: 2, namespaces: one, states: []uint16{1}}, noReading, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := blockdev.ResumeNVMe(t.Context(), &c.controller, c.read, time.Microsecond)
			if (err != nil) != c.fails {
				t.Errorf("got %v", err)
			}
			if diff := cmp.Diff(c.asked, c.controller.asked); diff != "" {
				t.Error(diff)
			}
		})
	}
}
