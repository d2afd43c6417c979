package node_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/domain/node"
)

func TestStepLabels(t *testing.T) {
	n := node.State{
		Labels:      map[string]string{"rack": "7", "hardware.product": "as the operator calls it", "wipe": "none"},
		ReleaseWipe: node.WipeQuick,
		Hardware: node.Inventories{
			OutOfBand: &node.Hardware{Manufacturer: "Contoso", Product: "C1", Devices: []node.Device{{Class: "GPU", Vendor: "Advanced Micro Devices, Inc."}}},
			InBand:    &node.Hardware{Devices: []node.Device{{Class: "gpu", Vendor: "NVIDIA Corporation", Product: "H100"}, {Class: "fpga", Vendor: "Xilinx, Inc."}}},
		},
	}
	want := map[string]string{
		"rack": "7", "hardware.product": "as the operator calls it", "hardware.manufacturer": "Contoso", "wipe": "quick",
		"gpu.vendor": "nvidia", "gpu.product": "H100", "fpga.vendor": "xilinx",
	}
	if diff := cmp.Diff(want, n.StepLabels()); diff != "" {
		t.Error(diff)
	}
	if n.Labels["wipe"] != "none" {
		t.Error("the node's own labels were changed")
	}
	n.ReleaseWipe = ""
	if wipe, has := n.StepLabels()["wipe"]; has {
		t.Errorf("wipe is %q while nothing is given back", wipe)
	}
}
