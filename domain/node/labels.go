package node

import (
	"maps"
	"strings"
)

// StepLabels is what the expressions of steps are decided on: what the newest inventories tell of the machine, such as
// gpu.vendor=nvidia, hardware.manufacturer and hardware.product; over that the operator's own labels; and over both wipe, what
// the operator who gave the machine back asked for.
func (s State) StepLabels() map[string]string {
	labels := map[string]string{}
	for _, h := range []*Hardware{s.Hardware.OutOfBand, s.Hardware.InBand} {
		if h == nil {
			continue
		}
		put(labels, "hardware.manufacturer", h.Manufacturer)
		put(labels, "hardware.product", h.Product)
		for _, d := range h.Devices {
			put(labels, strings.ToLower(d.Class)+".vendor", vendor(d.Vendor))
			put(labels, strings.ToLower(d.Class)+".product", d.Product)
		}
	}
	maps.Copy(labels, s.Labels)
	delete(labels, "wipe")
	put(labels, "wipe", string(s.ReleaseWipe))
	return labels
}

func put(labels map[string]string, key, value string) {
	if value != "" {
		labels[key] = value
	}
}

// vendor is the first word of a maker's name, as people write it: inventories tell of NVIDIA, NVIDIA Corporation and nvidia.
func vendor(name string) string {
	first, _, _ := strings.Cut(strings.ToLower(name), " ")
	if first == "advanced" {
		return "amd"
	}
	return strings.TrimRight(first, ",.")
}
