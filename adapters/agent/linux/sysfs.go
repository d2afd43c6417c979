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
			out = append(out, node.NIC{MAC: mac, Name: name, Driver: m.driver(at), Link: m.link(at), SpeedMbps: m.speed(at)})
		}
	}
	return out
}

// driver is the name of the driver behind a port.
func (m *Machine) driver(at string) string {
	target, err := fs.ReadLink(m.root, at+"/device/driver")
	if err != nil {
		return ""
	}
	return path.Base(target)
}

// link is whether a port has a carrier. The kernel does not tell of one that is switched off.
func (m *Machine) link(at string) node.LinkState {
	switch m.text(at + "/carrier") {
	case "1":
		return node.LinkUp
	case "0":
		return node.LinkDown
	}
	return ""
}

// speed is what a port's link was set up with. Without a link, and where there is no such thing, the kernel says -1, or the
// same without a sign.
func (m *Machine) speed(at string) int {
	const most = 100_000_000
	if n := m.number(at + "/speed"); n > 0 && n < most {
		return int(n)
	}
	return 0
}
