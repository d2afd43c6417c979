package linux

import (
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/better-compute/metal/domain/node"
)

// text is a small file's, without blanks at its ends; empty where it can't be read.
func (m *Machine) text(name string) string {
	b, err := fs.ReadFile(m.root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (m *Machine) number(name string) int64 {
	n, err := strconv.ParseInt(m.text(name), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// filler is what firmware says where nobody filled a field in.
var filler = regexp.MustCompile(`(?i)^(to be filled by o\.?e\.?m\.?|default string|not specified|none|system serial number|0+|x+)$`)

func (m *Machine) dmi(field string) string {
	text := m.text("sys/class/dmi/id/" + field)
	if filler.MatchString(text) {
		return ""
	}
	return text
}

func (m *Machine) names(directory string) (out []string) {
	entries, err := fs.ReadDir(m.root, directory)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func (m *Machine) exists(name string) bool {
	_, err := fs.Stat(m.root, name)
	return err == nil
}

// etherType is Ethernet's number among the kernel's kinds of interfaces.
const etherType = 1

// nics are the ports that are hardware: bridges, bonds and tunnels have no device behind them. A port of a bond has the
// bond's address for a while; its own is told beside it.
func (m *Machine) nics() (out []node.NIC) {
	for _, name := range m.names("sys/class/net") {
		at := path.Join("sys/class/net", name)
		if m.number(at+"/type") != etherType || !m.exists(at+"/device") {
			continue
		}
		mac := m.text(at + "/bonding_slave/perm_hwaddr")
		if mac == "" {
			mac = m.text(at + "/address")
		}
		if mac = strings.ToLower(mac); mac != "" && mac != "00:00:00:00:00:00" {
			out = append(out, node.NIC{MAC: mac, Name: name})
		}
	}
	return out
}

func (m *Machine) processors() (n int) {
	for line := range strings.Lines(m.text("proc/cpuinfo")) {
		if strings.HasPrefix(line, "processor") {
			n++
		}
	}
	return n
}

func (m *Machine) memory() int64 {
	for line := range strings.Lines(m.text("proc/meminfo")) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}

// The classes of PCI devices that are told of.
const (
	pciDisplay     = 0x0300 // with a screen: also what a BMC draws on
	pci3D          = 0x0302
	pciOtherScreen = 0x0380
	pciAccelerator = 0x12
)

// gpuVendors are whose display controllers are more than a screen: NVIDIA and AMD.
var gpuVendors = map[string]bool{"10de": true, "1002": true}

// devices are the PCI devices worth knowing, by the numbers of their vendors and products.
func (m *Machine) devices() (out []node.Device) {
	for _, name := range m.names("sys/bus/pci/devices") {
		at := path.Join("sys/bus/pci/devices", name)
		class, err := strconv.ParseUint(strings.TrimPrefix(m.text(at+"/class"), "0x"), 16, 32)
		if err != nil {
			continue
		}
		vendor, product := strings.TrimPrefix(m.text(at+"/vendor"), "0x"), strings.TrimPrefix(m.text(at+"/device"), "0x")
		var kind string
		switch class >>= 8; {
		case class == pci3D, (class == pciDisplay || class == pciOtherScreen) && gpuVendors[vendor]:
			kind = "gpu"
		case class>>8 == pciAccelerator:
			kind = "accelerator"
		default:
			continue
		}
		out = append(out, node.Device{Class: kind, Vendor: vendor, Product: product})
	}
	return out
}
