package blockdev

import (
	"encoding/hex"
	"errors"
	"testing"
	"unsafe"
)

// The kernel's structures have these sizes; a field of another size would shift all that follow.
func TestTheKernelsStructures(t *testing.T) {
	if n := unsafe.Sizeof(nvmeAdminCommand{}); n != 72 {
		t.Errorf("nvme_admin_cmd has %d bytes", n)
	}
	if n := unsafe.Sizeof(sgHeader{}); n != 88 {
		t.Errorf("sg_io_hdr has %d bytes", n)
	}
}

func TestPassThrough(t *testing.T) {
	for _, test := range []struct {
		name string
		c    ATACommand
		data bool
		want string
	}{
		{"identify", ATACommand{Command: ataIdentify, Count: 1}, true, "85080e00000001000000000000" + "40ec00"},
		{"set password", ATACommand{Command: ataSetPassword, Count: 1, Write: true}, true, "850a0600000001000000000000" + "40f100"},
		{"erase prepare", ATACommand{Command: ataErasePrepare}, false, "85062000000000000000000000" + "40f300"},
		{"crypto scramble", ATACommand{Command: ataSanitize, Features: sanitizeCrypto, LBA: cryptoKey, Extended: true}, false,
			"85072000110000437000790072" + "40b400"},
	} {
		got := passThrough(test.c, test.data)
		if hex.EncodeToString(got[:]) != test.want {
			t.Errorf("%s: %x, want %s", test.name, got, test.want)
		}
	}
}

func TestVerdict(t *testing.T) {
	answer := func(status, failure byte) []byte {
		return append([]byte{0x72, 0, 0, 0, 0, 0, 0, 14}, 0x09, 12, 0, failure, 0x40, 0, 0, 0x34, 0, 0x12, 0, 0, 0, status)
	}
	for _, test := range []struct {
		name   string
		sense  []byte
		status uint8
		want   string
	}{
		{"registers without a fault", answer(0x50, 0), 2, ""},
		{"aborted", answer(0x51, 4), 2, ErrATAAborted.Error()},
		{"a fault of the disk", answer(0x71, 0x40), 2, "the disk answers status 0x71, error 0x40"},
		{"registers in the old form", []byte{0x70, 0, 1, 0, 0x50, 0x40, 0, 10, 0, 0, 0, 0, 0, 0x1d}, 2, ""},
		{"aborted, registers in the old form", []byte{0x70, 0, 1, 4, 0x51, 0x40, 0, 10, 0, 0, 0, 0, 0, 0x1d}, 2, ErrATAAborted.Error()},
		{"nothing told, all well", nil, 0, ""},
		{"aborted, without registers", []byte{0x72, 0x0b}, 2, ErrATAAborted.Error()},
		{"aborted, in the old form", []byte{0x70, 0, 0x0b}, 2, ErrATAAborted.Error()},
		{"illegal request", []byte{0x72, 5}, 2, "the disk's controller answers SCSI status 0x2, sense key 0x5"},
	} {
		sense := make([]byte, senseBytes)
		copy(sense, test.sense)
		r, told := registersOf(test.sense)
		err := verdict(r, told, test.status, sense)
		if err == nil && test.want != "" || err != nil && err.Error() != test.want {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
	if r, told := registersOf(answer(0x50, 0)); !told || r.Count != 0x4000 || r.LBA != 0x1234 {
		t.Errorf("got %+v", r)
	}
	if NVMeStatus(0x4002).unsupported() != true || NVMeStatus(0x6).unsupported() || errors.Is(NVMeStatus(1), ErrATAAborted) {
		t.Error("a status is not what it is")
	}
}

// What comes back through a controller is as long as it says, and says what it likes.
func FuzzRegisters(f *testing.F) {
	f.Add([]byte{0x72, 0, 0, 0, 0, 0, 0, 14, 0x09, 12, 0, 4, 0x40, 0, 0, 0x34, 0, 0x12, 0, 0, 0, 0x51}, byte(2))
	f.Add([]byte{0x70, 0, 1, 4, 0x51, 0x40, 0, 10, 0, 0, 0, 0, 0, 0x1d}, byte(2))
	f.Add([]byte{0xfe, 0xff, 0xfe, 0xff}, byte(0)) // a month and a half
	f.Fuzz(func(t *testing.T, answer []byte, status byte) {
		answer = answer[:min(len(answer), senseBytes)]
		sense := make([]byte, senseBytes)
		copy(sense, answer)
		r, told := registersOf(answer)
		if err := verdict(r, told, status, sense); err == nil && !told && status != 0 {
			t.Errorf("status %#x with %x is no fault", status, answer)
		}
		identity := make([]byte, 512)
		copy(identity[2*89:], answer)
		copy(identity[2*128:], answer)
		if s := securityOf(identity); s.takes <= 0 || uint64((s.takes+s.takes/2+ataTimeout).Milliseconds()) > 1<<32-1 {
			t.Errorf("an erase that takes %v", s.takes)
		}
	})
}
