package ramdisk

import (
	"encoding/binary"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestPowerButtons(t *testing.T) {
	root := fstest.MapFS{}
	for name, keys := range map[string]string{
		"event0": "10000000000000 0\n",                                            // the machine's: the power key alone
		"event1": "402000000 3803078f800d001 feefffdfffefffff fffffffffffffffe\n", // a keyboard without one
		"event2": "402000000 3803078f800d001 feffffdfffefffff fffffffffffffffe\n", // a keyboard with one
		"event3": "70000 0 0 0 0\n",                                               // a mouse
		"event4": "\n",
		"event5": "what 0\n",
		"mouse0": "10000000000000 0\n",
	} {
		root["sys/class/input/"+name+"/device/capabilities/key"] = &fstest.MapFile{Data: []byte(keys)}
	}
	if diff := cmp.Diff([]string{"event0", "event2"}, powerButtons(root)); diff != "" {
		t.Error(diff)
	}
}

func TestPressed(t *testing.T) {
	event := func(kind, code uint16, value int32) []byte {
		b := make([]byte, 16, inputEventBytes)
		b = binary.NativeEndian.AppendUint16(b, kind)
		b = binary.NativeEndian.AppendUint16(b, code)
		return binary.NativeEndian.AppendUint32(b, uint32(value))
	}
	joined := func(events ...[]byte) (out []byte) {
		for _, e := range events {
			out = append(out, e...)
		}
		return out
	}
	for _, test := range []struct {
		name string
		read []byte
		want bool
	}{
		{"down", event(1, 116, 1), true},
		{"down, and what follows", joined(event(1, 116, 1), event(0, 0, 0)), true},
		{"after another key", joined(event(1, 30, 1), event(0, 0, 0), event(1, 116, 1)), true},
		{"up", event(1, 116, 0), false},
		{"held", event(1, 116, 2), false},
		{"another key", event(1, 30, 1), false},
		{"of another kind", event(4, 116, 1), false},
		{"cut", event(1, 116, 1)[:20], false},
		{"nothing", nil, false},
	} {
		if got := pressed(test.read); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}
