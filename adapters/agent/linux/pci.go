package linux

import (
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/better-compute/metal/domain/node"
)

// pciClasses names the classes of PCI devices that are told of, the narrower first: each is a number and which of its 16 bits
// count. Bridges, USB controllers and other parts of a board are not.
var pciClasses = []struct {
	class, mask uint64
	name        string
}{
	{0x0302, 0xffff, "gpu"}, // without a screen
	{0x0300, 0xff00, "gpu"}, // see gpuVendors
	{0x1200, 0xff00, "accelerator"},
	{0x0b40, 0xffff, "coprocessor"},
	{0x1000, 0xff00, "encryption"},
	{0x0207, 0xffff, "infiniband"},
	{0x0c06, 0xffff, "infiniband"},
	{0x0200, 0xff00, "network"},
	{0x0104, 0xffff, "raid"},
	{0x0100, 0xff00, "storage"},
	{0x0502, 0xffff, "memory"}, // CXL
}

const pci3D = 0x0302

// gpuVendors are whose display controllers are more than the screen that a BMC draws on: NVIDIA and AMD.
var gpuVendors = map[string]bool{"10de": true, "1002": true}

// devices are the PCI devices worth knowing, by the numbers of their vendors and products. Functions that a device only
// makes up for virtual machines are not devices.
func (m *Machine) devices() (out []node.Device) {
	for _, name := range m.names("sys/bus/pci/devices") {
		at := path.Join("sys/bus/pci/devices", name)
		class, err := strconv.ParseUint(strings.TrimPrefix(m.text(at+"/class"), "0x"), 16, 32)
		if err != nil || m.exists(at+"/physfn") {
			continue
		}
		vendor, product := strings.TrimPrefix(m.text(at+"/vendor"), "0x"), strings.TrimPrefix(m.text(at+"/device"), "0x")
		if kind := pciClass(class>>8, vendor); kind != "" {
			out = append(out, node.Device{Class: kind, Vendor: vendor, Product: product, Address: name})
		}
	}
	return out
}

func pciClass(class uint64, vendor string) string {
	for _, c := range pciClasses {
		if class&c.mask != c.class {
			continue
		}
		if c.name == "gpu" && class != pci3D && !gpuVendors[vendor] {
			return ""
		}
		return c.name
	}
	return ""
}

var isGPU = regexp.MustCompile(`^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString

// gpuUUIDs are the names that the driver of NVIDIA's gives its GPUs; without it they have none.
func (m *Machine) gpuUUIDs() (out []string) {
	for _, name := range m.names("proc/driver/nvidia/gpus") {
		for line := range strings.Lines(m.text(path.Join("proc/driver/nvidia/gpus", name, "information"))) {
			if value, ok := strings.CutPrefix(line, "GPU UUID:"); ok && isGPU(strings.TrimSpace(value)) {
				out = append(out, strings.TrimSpace(value))
			}
		}
	}
	return out
}
