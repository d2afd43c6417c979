package ramdisk

import (
	"encoding/binary"
	"io/fs"
	"math/bits"
	"path"
	"slices"
	"strconv"
	"strings"
)

// What the kernel writes of a key, on 64-bit machines: two numbers of a time, then type, code and value.
const (
	inputEventBytes = 24
	inputKey        = 1   // the type
	keyPower        = 116 // the code
	keyDown         = 1   // the value; 0 is up, 2 held
)

// powerButtons are the devices that have a power button, by their names below /dev/input: the machine's own, which firmware
// presses where a controller is asked for an orderly shutdown, and those of keyboards.
func powerButtons(root fs.FS) (out []string) {
	for _, name := range namesIn(root, "sys/class/input") {
		keys := readText(root, path.Join("sys/class/input", name, "device/capabilities/key"))
		if strings.HasPrefix(name, "event") && hasKey(keys, keyPower) {
			out = append(out, name)
		}
	}
	return out
}

// hasKey looks a key up in the words of bits that the kernel writes, the highest word first.
func hasKey(words string, key int) bool {
	fields := strings.Fields(words)
	slices.Reverse(fields)
	at := key / bits.UintSize
	if at >= len(fields) {
		return false
	}
	word, err := strconv.ParseUint(fields[at], 16, bits.UintSize)
	return err == nil && word>>(key%bits.UintSize)&1 == 1
}

// pressed tells whether the power button went down among what was read of a device.
func pressed(events []byte) bool {
	for ; len(events) >= inputEventBytes; events = events[inputEventBytes:] {
		order := binary.NativeEndian
		kind, code, value := order.Uint16(events[16:]), order.Uint16(events[18:]), order.Uint32(events[20:])
		if kind == inputKey && code == keyPower && value == keyDown {
			return true
		}
	}
	return false
}
