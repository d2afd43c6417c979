package node_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/domain/node"
)

// What inventories of before did not tell is not known: neither zero nor no.
func TestAnInventoryOfBeforeIsRead(t *testing.T) {
	const stored = `{"source":"in-band","hardware":{"cores":2,"memoryBytes":1024,"disks":[{"path":"/dev/sda","serial":"S1"}],` +
		`"nics":[{"mac":"02:00:00:00:00:0a","name":"eth0"}],"devices":[{"class":"gpu"}]}}`
	var e node.HardwareRecorded
	if err := json.Unmarshal([]byte(stored), &e); err != nil {
		t.Fatal(err)
	}
	want := node.HardwareRecorded{Source: node.InBand, Hardware: node.Hardware{
		Cores: 2, MemoryBytes: 1024, Disks: []node.Disk{{Path: "/dev/sda", Serial: "S1"}},
		NICs: []node.NIC{{MAC: "02:00:00:00:00:0a", Name: "eth0"}}, Devices: []node.Device{{Class: "gpu"}},
	}}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Error(diff)
	}
	if again, err := json.Marshal(e); err != nil || string(again) != stored {
		t.Errorf("it is written as %s, %v", again, err)
	}
}

// A disk is the same whatever else is known of it: a wipe of before counts for the inventory of now.
func TestTheKeyOfADiskIsWhatItWas(t *testing.T) {
	rotational := true
	for _, disk := range []node.Disk{{WWN: "1", Serial: "S"}, {Model: "M", Serial: "S"}, {Path: "/dev/sda"}} {
		known := disk
		known.Transport, known.Rotational, known.Bytes = "sata", &rotational, 1
		if disk.Key() != known.Key() {
			t.Errorf("%s is not %s", known.Key(), disk.Key())
		}
	}
}
