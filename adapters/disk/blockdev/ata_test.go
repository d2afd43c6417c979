package blockdev_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/adapters/disk/blockdev"
	"github.com/better-compute/metal/domain/node"
)

// ata is a disk with the security states of the standard.
type ata struct {
	bits     uint16 // of word 128 that never change: supported, frozen, expired, enhanced
	sanitize uint16 // word 59
	words    map[int]uint16
	native   uint64 // highest address
	overlay  uint64 // highest address by the device configuration overlay; 0: that is frozen
	password []byte
	locked   bool

	sanitizeFrozen bool

	runs   int  // looks at a sanitize that still find it running
	failed bool // the latest sanitize

	fails uint8 // this command fails
	late  bool  // it fails after it was carried out
	lies  bool  // the erase does nothing
	asked []string

	prepared, erased bool
}

var commandNames = map[uint8]string{
	0xf1: "set", 0xf2: "unlock", 0xf3: "prepare", 0xf4: "erase", 0xf6: "disable", 0xb4: "sanitize",
}

var errBroken = errors.New("broken")

func (a *ata) Run(c blockdev.ATACommand, data []byte) (r blockdev.ATARegisters, err error) {
	if c.Command == 0xec {
		a.identify(data)
		return r, nil
	}
	a.asked = append(a.asked, commandNames[c.Command])
	if c.Command == a.fails {
		if a.late && c.Command == 0xf1 {
			a.password = bytes.Clone(data[2:34])
		}
		return r, errBroken
	}
	if a.bits&8 != 0 && c.Command != 0xb4 {
		return r, blockdev.ErrATAAborted
	}
	switch c.Command {
	case 0x27, 0x78:
		if a.native == 0 || (c.Command == 0x27) != (a.words[82] != 0) {
			return r, blockdev.ErrATAAborted
		}
		r.LBA = a.native
	case 0xb1:
		if a.overlay == 0 {
			return r, blockdev.ErrATAAborted
		}
		binary.LittleEndian.PutUint64(data[6:], a.overlay)
	case 0xf1:
		a.password = bytes.Clone(data[2:34])
	case 0xf2, 0xf4, 0xf6:
		if !bytes.Equal(a.password, data[2:34]) || a.locked && c.Command == 0xf6 || c.Command == 0xf4 && !a.prepared {
			return r, blockdev.ErrATAAborted
		}
		a.locked = false
		if c.Command == 0xf4 {
			a.asked[len(a.asked)-1] = fmt.Sprintf("erase %d", data[0])
			if a.erased = true; a.lies {
				return r, nil
			}
		}
		if c.Command != 0xf2 {
			a.password = nil
		}
	case 0xf3:
		a.prepared = true
	case 0xb4:
		if c.Features == 0x11 && c.LBA != 0x43727970 || c.Features == 0x12 && c.LBA != 0x426b4572 || a.sanitizeFrozen {
			return r, blockdev.ErrATAAborted
		}
		a.erased = a.erased || c.Features != 0
		if a.failed = a.failed && c.Features == 0; a.failed {
			return blockdev.ATARegisters{LBA: 1}, blockdev.ErrATAAborted
		}
		r.Count = 1 << 15
		if a.runs--; a.runs >= 0 {
			r.Count = 1 << 14
		}
	}
	return r, nil
}

func (a *ata) identify(data []byte) {
	bits := a.bits
	if a.password != nil {
		bits |= 2
	}
	if a.locked {
		bits |= 4
	}
	binary.LittleEndian.PutUint16(data[2*128:], bits)
	binary.LittleEndian.PutUint16(data[2*59:], a.sanitize)
	for at, word := range a.words {
		binary.LittleEndian.PutUint16(data[2*at:], word)
	}
}

// ours is the password that an erase sets.
func ours(t *testing.T) (password []byte) {
	t.Helper()
	if _, err := blockdev.EraseATA(t.Context(), recorder{&ata{bits: 1}, &password}, time.Hour, func(float64, string) {}); err != nil || password == nil {
		t.Fatal(password, err)
	}
	return password
}

// recorder notes the password that is set.
type recorder struct {
	*ata
	password *[]byte
}

func (r recorder) Run(c blockdev.ATACommand, data []byte) (blockdev.ATARegisters, error) {
	if c.Command == 0xf1 {
		*r.password = bytes.Clone(data[2:34])
	}
	return r.ata.Run(c, data)
}

func TestEraseATA(t *testing.T) {
	for _, test := range []struct {
		name  string
		disk  ata
		asked []string
		want  error
	}{
		{"plain", ata{bits: 1}, []string{"set", "prepare", "erase 0"}, nil},
		{"enhanced", ata{bits: 1 | 32}, []string{"set", "prepare", "erase 2"}, nil},
		{"not supported", ata{}, nil, disk.ErrUnsupported},
		{"frozen by the firmware", ata{bits: 1 | 8}, nil, disk.ErrUnsupported},
		{"somebody's password", ata{bits: 1, password: []byte("x")}, nil, disk.ErrUnsupported},
		{"frozen, and sanitizes", ata{bits: 1 | 8, sanitize: 1<<12 | 1<<15, runs: 2}, []string{"sanitize", "sanitize", "sanitize"}, nil},
		{"no security, and sanitizes", ata{sanitize: 1<<12 | 1<<15}, []string{"sanitize", "sanitize"}, nil},
		{"frozen altogether", ata{bits: 1 | 8, sanitize: 1<<12 | 1<<15, sanitizeFrozen: true}, []string{"sanitize"}, disk.ErrUnsupported},
		{"frozen, and only scrambles", ata{bits: 1 | 8, sanitize: 1<<12 | 1<<13}, nil, disk.ErrUnsupported},
		{"the erase fails: the disk does not stay locked", ata{bits: 1, fails: 0xf4}, []string{"set", "prepare", "erase", "disable"}, errBroken},
		{"the password can't be set", ata{bits: 1, fails: 0xf1}, []string{"set"}, errBroken},
		{"the password was set, and the answer got lost", ata{bits: 1, fails: 0xf1, late: true}, []string{"set", "disable"}, errBroken},
		{"it can't be prepared", ata{bits: 1, fails: 0xf3}, []string{"set", "prepare", "disable"}, errBroken},
	} {
		t.Run(test.name, func(t *testing.T) {
			by, err := blockdev.EraseATA(t.Context(), &test.disk, time.Microsecond, func(float64, string) {})
			if !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if diff := cmp.Diff(test.asked, test.disk.asked); diff != "" {
				t.Error(diff)
			}
			want := node.ByATAErase
			if slices.Contains(test.asked, "sanitize") {
				want = node.ByATASanitize
			}
			if test.want == nil && by != want {
				t.Errorf("it says %q, not %q", by, want)
			}
			if test.want == nil && !test.disk.erased || len(test.asked) > 0 && test.disk.password != nil {
				t.Errorf("erased %v, password %q", test.disk.erased, test.disk.password)
			}
		})
	}
	liar := ata{bits: 1, lies: true}
	if _, err := blockdev.EraseATA(t.Context(), &liar, time.Hour, func(float64, string) {}); err == nil || liar.password != nil {
		t.Errorf("a disk that keeps its password: %v, %q", err, liar.password)
	}
}

func TestADiskThatAPowerCutLeftLocked(t *testing.T) {
	key := ours(t)
	for _, test := range []struct {
		name  string
		disk  ata
		asked []string
		open  bool
	}{
		{"nothing happened to it", ata{bits: 1}, nil, true},
		{"no security features", ata{}, nil, true},
		{"locked by an erase", ata{bits: 1, password: key, locked: true}, []string{"unlock", "disable"}, true},
		{"still open", ata{bits: 1, password: key}, []string{"disable"}, true},
		{"open, somebody else's", ata{bits: 1, password: make([]byte, 32)}, []string{"disable"}, true},
		{"locked by somebody else", ata{bits: 1, password: make([]byte, 32), locked: true}, []string{"unlock"}, false},
		{"locked and frozen", ata{bits: 1 | 8, password: key, locked: true}, nil, false},
		{"locked, too many attempts", ata{bits: 1 | 16, password: key, locked: true}, nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := blockdev.ResumeATA(t.Context(), &test.disk, noReading, time.Microsecond)
			if (err == nil) != test.open || test.disk.locked == test.open {
				t.Errorf("got %v, locked %v", err, test.disk.locked)
			}
			if diff := cmp.Diff(test.asked, test.disk.asked); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A sanitize goes on after a power cut, and one that failed leaves a disk from which nothing can be read before another one succeeds.
func TestAnATASanitizeThatAPowerCutInterrupted(t *testing.T) {
	for name, c := range map[string]struct {
		disk   ata
		read   func() error
		asked  int
		begins bool
	}{
		"it goes on":              {ata{sanitize: 1<<12 | 1<<15, runs: 3}, noReading, 4, false},
		"it failed":               {ata{sanitize: 1<<12 | 1<<15, failed: true, runs: 2}, noReading, 4, true},
		"it failed to scramble":   {ata{sanitize: 1<<12 | 1<<13, failed: true}, noReading, 3, true},
		"of long ago":             {ata{sanitize: 1<<12 | 1<<15, failed: true}, func() error { return nil }, 1, false},
		"frozen since":            {ata{sanitize: 1<<12 | 1<<15, sanitizeFrozen: true}, noReading, 1, false},
		"there can't be any":      {ata{failed: true}, noReading, 0, false},
		"only what is not begun":  {ata{sanitize: 1 << 12, failed: true}, noReading, 0, false},
		"it is done, and was not": {ata{sanitize: 1<<12 | 1<<13 | 1<<15}, noReading, 1, false},
	} {
		err := blockdev.ResumeATA(t.Context(), &c.disk, c.read, time.Microsecond)
		if err != nil || len(c.disk.asked) != c.asked || c.disk.erased != c.begins {
			t.Errorf("%s: %v, asked %v, begun %t", name, err, c.disk.asked, c.disk.erased)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	endless := ata{sanitize: 1<<12 | 1<<15, runs: 1000}
	if err := blockdev.ResumeATA(ctx, &endless, noReading, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestCryptoEraseATA(t *testing.T) {
	quiet := func(float64, string) {}
	able := ata{sanitize: 1<<12 | 1<<13, runs: 3}
	if by, err := blockdev.CryptoEraseATA(t.Context(), &able, time.Microsecond, quiet); err != nil || by != node.ByATASanitize || len(able.asked) != 4 {
		t.Errorf("got %v, asked %v", err, able.asked)
	}
	for _, bits := range []uint16{0, 1 << 12, 1 << 13, 1<<12 | 1<<15} {
		unable := ata{sanitize: bits}
		if _, err := blockdev.CryptoEraseATA(t.Context(), &unable, time.Hour, quiet); !errors.Is(err, disk.ErrUnsupported) || unable.asked != nil {
			t.Errorf("%#x: got %v, asked %v", bits, err, unable.asked)
		}
	}
}
