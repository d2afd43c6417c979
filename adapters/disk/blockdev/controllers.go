package blockdev

import (
	"io/fs"
	"slices"
	"strings"
)

// Starting names the NVMe controllers that are not up yet: their disks are still to come. A large one, and one that lost its
// power while it was written to, takes a while before it answers.
func Starting(root fs.FS) (out []string) {
	s := sysfs{root}
	for _, name := range s.list("sys/class/nvme") {
		at := "sys/class/nvme/" + name
		if over := s.text(at + "/transport"); over != "" && over != "pcie" {
			continue // a way over a network, which may never come back
		}
		if slices.Contains([]string{"new", "resetting", "connecting"}, s.text(at+"/state")) {
			out = append(out, name)
		}
	}
	return out
}

// Driverless names the places of PCI controllers of disks that no driver was found for: what disks they have is not known.
func Driverless(root fs.FS) (out []string) {
	const storage = "0x01" // the class of mass storage
	s := sysfs{root}
	for _, name := range s.list("sys/bus/pci/devices") {
		at := "sys/bus/pci/devices/" + name
		if strings.HasPrefix(s.text(at+"/class"), storage) && !s.exists(at+"/driver") {
			out = append(out, name)
		}
	}
	return out
}
