package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/node"
)

// line is one line of a card.
type line struct{ name, value string }

// hardware is what the machine's newest inventory says: the one from inside it where there is one, else the BMC's.
func hardware(n contract.Node) []line {
	if n.Hardware == nil {
		return nil
	}
	from, h := node.InBand, n.Hardware.InBand
	if h == nil {
		from, h = node.OutOfBand, n.Hardware.OutOfBand
	}
	if h == nil {
		return nil
	}
	out := []line{
		{"HARDWARE", spoken(h.Manufacturer, h.Product, prefixed("serial ", h.Serial)) + " (" + string(from) + ")"},
		{"CPU", processors(*h)}, {"MEMORY", size(h.MemoryBytes)},
	}
	for _, part := range h.NUMA {
		out = append(out, line{"NUMA", listed(fmt.Sprintf("node %d", part.Node), counted(part.Cores, "cores"),
			counted(part.Threads, "threads"), size(part.MemoryBytes))})
	}
	out = append(out, line{"FIRMWARE", firmware(h.Firmware)}, line{"TPM", tpm(h.TPM)})
	for _, d := range h.Disks {
		out = append(out, line{"DISK", listed(d.Path, d.Model, prefixed("serial ", d.Serial), prefixed("wwn ", d.WWN), size(d.Bytes),
			d.Transport, rotational(d.Rotational))})
	}
	for _, place := range h.Driverless {
		out = append(out, line{"DISK", "not seen: the controller at " + place + " has no driver"})
	}
	for _, p := range h.NICs {
		out = append(out, line{"NIC", listed(p.Name, p.MAC, p.Driver, link(p), neighbor(p.LLDP))})
	}
	for _, d := range h.Devices {
		out = append(out, line{"DEVICE", listed(d.Address, d.Class, strings.Trim(d.Vendor+":"+d.Product, ":"))})
	}
	return out
}

// listed joins what is known.
func listed(parts ...string) string { return joined(", ", parts) }

func spoken(parts ...string) string { return joined(" ", parts) }

func joined(by string, parts []string) string {
	var known []string
	for _, p := range parts {
		if p != "" {
			known = append(known, p)
		}
	}
	return strings.Join(known, by)
}

func prefixed(what, value string) string {
	if value == "" {
		return ""
	}
	return what + value
}

func counted(n int, what string) string {
	if n == 0 {
		return ""
	}
	if n == 1 {
		what = strings.TrimSuffix(what, "s")
	}
	return fmt.Sprintf("%d %s", n, what)
}

func processors(h node.Hardware) string {
	cpu := node.CPU{}
	if h.CPU != nil {
		cpu = *h.CPU
	}
	return listed(cpu.Model, cpu.Architecture, counted(cpu.Sockets, "sockets"), counted(h.Cores, "cores"),
		counted(cpu.Threads, "threads"))
}

func firmware(f *node.Firmware) string {
	if f == nil {
		return ""
	}
	secure := ""
	if f.SecureBoot != nil {
		secure = map[bool]string{true: "secure boot on", false: "secure boot off"}[*f.SecureBoot]
	}
	return listed(spoken(f.Vendor, f.Version), f.Date, strings.ToUpper(string(f.BootMode)), secure)
}

func tpm(t *node.TPM) string {
	if t == nil {
		return ""
	}
	return listed(cmp.Or(t.Version, "of unknown version"), prefixed("firmware ", t.FirmwareVersion))
}

func rotational(spins *bool) string {
	if spins == nil {
		return ""
	}
	return map[bool]string{true: "rotational", false: "not rotational"}[*spins]
}

func link(p node.NIC) string {
	if p.Link == "" {
		return ""
	}
	speed := ""
	if p.SpeedMbps > 0 {
		speed = fmt.Sprintf("%d Mb/s", p.SpeedMbps)
	}
	return spoken("link", string(p.Link), speed)
}

func neighbor(l *node.LLDPNeighbor) string {
	if l == nil {
		return ""
	}
	return "at " + spoken(cmp.Or(l.SystemName, l.ChassisID), "port", l.PortID)
}

// size is a number of bytes in the largest unit that it is at least two of.
func size(bytes int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	n := float64(bytes)
	unit := 0
	for ; n >= 2048 && unit < len(units)-1; unit++ {
		n /= 1024
	}
	if bytes == 0 {
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", n), ".0") + " " + units[unit]
}
