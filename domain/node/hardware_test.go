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

// Each source keeps its own word, also where they disagree or one alone knows; a wipe is held to what is seen from inside.
func TestInventoriesStandSideBySide(t *testing.T) {
	spins, still := true, false
	outside := node.Hardware{
		Firmware: &node.Firmware{Version: "1.8.2", BootMode: node.BootUEFI}, TPM: &node.TPM{Version: "2.0", FirmwareVersion: "7.2"},
		Disks: []node.Disk{{Serial: "S1", Transport: "sas", Rotational: &spins}, {Serial: "S2"}},
		NICs:  []node.NIC{{MAC: "02:00:00:00:00:0a", Link: node.LinkDown}},
	}
	inside := node.Hardware{
		Firmware: &node.Firmware{Vendor: "Acme", Version: "1.8", BootMode: node.BootBIOS},
		Disks:    []node.Disk{{Path: "/dev/sda", Serial: "S1", Transport: "sata", Rotational: &still}},
		NICs:     []node.NIC{{MAC: "02:00:00:00:00:0a", Driver: "ice", Link: node.LinkUp}},
	}
	var s node.State
	s = node.Evolve(s, node.HardwareRecorded{Source: node.InBand, Hardware: inside})
	s = node.Evolve(s, node.HardwareRecorded{Source: node.OutOfBand, Hardware: outside})
	if diff := cmp.Diff(node.Inventories{InBand: &inside, OutOfBand: &outside}, s.Hardware); diff != "" {
		t.Error(diff)
	}
	s.Wipe = &node.Wipe{Signed: true, Disks: []node.WipedDisk{{Disk: node.Disk{Serial: "S1"}, Method: node.WipeQuick, ReadBack: true}}}
	if !s.WipeVerified() {
		t.Error("a disk that the BMC alone tells of stands in the way of a wipe")
	}
}
