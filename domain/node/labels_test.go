package node_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/domain/node"
)

func TestStepLabels(t *testing.T) {
	n := node.State{
		Labels:      map[string]string{"rack": "7", "hardware.product": "as the operator calls it", "wipe": "none"},
		ReleaseWipe: node.WipeQuick, Provision: node.Releasing, BMC: &node.BMC{Driver: "redfish"},
		Hardware: node.Inventories{
			OutOfBand: &node.Hardware{Manufacturer: "Contoso", Product: "C1", Devices: []node.Device{{Class: "GPU", Vendor: "Advanced Micro Devices, Inc."}}},
			InBand: &node.Hardware{
				Cores: 64, MemoryBytes: 512 << 30, Disks: []node.Disk{{}, {}}, NICs: []node.NIC{{}},
				Devices: []node.Device{
					{Class: "gpu", Vendor: "NVIDIA", Product: "H100"},
					{Class: "GPU", Vendor: "NVIDIA Corporation", Product: "GH100 [H100 SXM5 80GB]"}, {Class: "fpga", Vendor: "Xilinx, Inc."}, {Class: "!"},
				},
			},
		},
	}
	want := map[string]string{
		"rack": "7", "hardware.product": "as the operator calls it", "hardware.manufacturer": "Contoso", "wipe": "quick",
		"cpu.cores": "64", "memory.gib": "512", "disks": "2", "nics": "1", "bmc.driver": "redfish",
		"gpu": "2", "gpu.vendor": "nvidia", "gpu.product": "GH100-H100-SXM5-80GB", "gpu.model": "GH100-H100-SXM5-80GB",
		"fpga": "1", "fpga.vendor": "xilinx",
	}
	if diff := cmp.Diff(want, n.StepLabels()); diff != "" {
		t.Error(diff)
	}
	if n.Labels["wipe"] != "none" {
		t.Error("the node's own labels were changed")
	}
	n.Provision = node.Commissioning // of an earlier life
	if wipe, has := n.StepLabels()["wipe"]; has {
		t.Errorf("wipe is %q while nothing is given back", wipe)
	}
}
