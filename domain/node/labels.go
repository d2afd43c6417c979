package node

import (
	"maps"
	"strconv"
	"strings"
)

// StepLabels is what the expressions of steps are decided on: what the newest inventories tell of the machine; over that the
// operator's own labels; and over both wipe, what the operator who gives the machine back asked for.
//
//	hardware.manufacturer, hardware.product  of the machine
//	cpu.cores, memory.gib, disks, nics       counts
//	gpu, gpu.vendor, gpu.model, gpu.product  how many devices of a class there are, and what the last one is: model and product
//	                                         are the same; any class of device has these
//	bmc.driver                               absent without a BMC
//	wipe                                     while the machine is released or retired
//
// Values hold what labels may: letters, digits and -_./; anything between reads as one hyphen.
func (s State) StepLabels() map[string]string {
	labels := map[string]string{}
	for _, h := range []*Hardware{s.Hardware.OutOfBand, s.Hardware.InBand} {
		if h != nil {
			h.label(labels)
		}
	}
	if s.BMC != nil {
		put(labels, "bmc.driver", s.BMC.Driver)
	}
	maps.Copy(labels, s.Labels)
	delete(labels, "wipe")
	if s.Provision == Releasing || s.Provision == Retiring {
		put(labels, "wipe", string(s.ReleaseWipe))
	}
	return labels
}

func (h Hardware) label(labels map[string]string) {
	put(labels, "hardware.manufacturer", h.Manufacturer)
	put(labels, "hardware.product", h.Product)
	count(labels, "cpu.cores", int64(h.Cores))
	count(labels, "memory.gib", h.MemoryBytes>>30)
	count(labels, "disks", int64(len(h.Disks)))
	count(labels, "nics", int64(len(h.NICs)))
	of := map[string]int64{}
	for _, d := range h.Devices {
		class := labelText(strings.ToLower(d.Class))
		if class == "" {
			continue
		}
		of[class]++
		count(labels, class, of[class])
		put(labels, class+".vendor", vendor(d.Vendor))
		put(labels, class+".product", d.Product)
		put(labels, class+".model", d.Product)
	}
}

func count(labels map[string]string, key string, n int64) {
	if n > 0 {
		labels[key] = strconv.FormatInt(n, 10)
	}
}

func put(labels map[string]string, key, value string) {
	if value = labelText(value); value != "" {
		labels[key] = value
	}
}

// labelText brings a text into what label expressions can name.
func labelText(s string) string {
	const most = 63
	foreign := func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		return !letter && (r < '0' || r > '9') && !strings.ContainsRune("-_./", r)
	}
	s = strings.Join(strings.FieldsFunc(s, foreign), "-")
	return s[:min(len(s), most)]
}

// vendor is the first word of a maker's name, as people write it: inventories tell of NVIDIA, NVIDIA Corporation and nvidia.
func vendor(name string) string {
	first, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(name)), " ")
	if first == "advanced" {
		return "amd"
	}
	return strings.TrimRight(first, ",.")
}
