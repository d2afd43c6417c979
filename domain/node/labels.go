package node

import (
	"maps"
	"strconv"
	"strings"
)

// Labels is what the expressions of profiles are decided on: the operator's own labels over what the machine is known to be.
//
//	cpu.cores, memory.gib, disks, nics       counts of the newest inventory, the machine's own before its controller's
//	manufacturer, product                    such as Dell-Inc.
//	gpu, gpu.vendor, gpu.model               of a device class: how many, and whose the last one is; any class has them
//	bmc.driver                               such as redfish; absent without a BMC
//	wipe                                     what the operator asked for, while the machine is released or retired
//
// Values hold what labels may hold: letters, digits and -_./; anything else reads as one hyphen.
func Labels(s State) map[string]string {
	labels := map[string]string{}
	for _, h := range []*Hardware{s.Hardware.OutOfBand, s.Hardware.InBand} {
		if h != nil {
			h.label(labels)
		}
	}
	if s.BMC != nil {
		put(labels, "bmc.driver", s.BMC.Driver)
	}
	if s.Provision == Releasing || s.Provision == Retiring {
		put(labels, "wipe", string(s.ReleaseWipe))
	}
	maps.Copy(labels, s.Labels)
	return labels
}

func (h Hardware) label(labels map[string]string) {
	put(labels, "manufacturer", h.Manufacturer)
	put(labels, "product", h.Product)
	count(labels, "cpu.cores", h.Cores)
	count(labels, "memory.gib", int(h.MemoryBytes>>30))
	count(labels, "disks", len(h.Disks))
	count(labels, "nics", len(h.NICs))
	of := map[string]int{}
	for _, d := range h.Devices {
		class := labelText(strings.ToLower(d.Class))
		if class == "" {
			continue
		}
		of[class]++
		count(labels, class, of[class])
		put(labels, class+".vendor", vendor(d.Vendor))
		put(labels, class+".model", d.Product)
	}
}

// vendor is a maker by its short name: inventories write the company's.
func vendor(name string) string {
	short, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(name)), " ")
	return strings.Trim(short, ",.")
}

func count(labels map[string]string, key string, n int) {
	if n > 0 {
		labels[key] = strconv.Itoa(n)
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
	allowed := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./", r)
	}
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return !allowed(r) }), "-")
	return s[:min(len(s), most)]
}
