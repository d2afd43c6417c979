package node

import (
	"github.com/better-compute/metal/domain/id"
)

// Source says where an inventory comes from.
type Source string

// The sources. Only in-band inventory counts for a wipe: a BMC need not see every disk.
const (
	OutOfBand Source = "out-of-band"
	InBand    Source = "in-band"
)

// Inventories is the newest inventory of each source.
type Inventories struct {
	OutOfBand *Hardware `json:"outOfBand,omitempty"`
	InBand    *Hardware `json:"inBand,omitempty"`
}

// Hardware is one inventory of a machine.
type Hardware struct {
	Manufacturer string   `json:"manufacturer,omitempty"`
	Product      string   `json:"product,omitempty"`
	Serial       string   `json:"serial,omitempty"`
	UUID         string   `json:"uuid,omitempty"` // SMBIOS system UUID
	Cores        int      `json:"cores,omitempty"`
	MemoryBytes  int64    `json:"memoryBytes,omitempty"`
	Disks        []Disk   `json:"disks,omitempty"`
	NICs         []NIC    `json:"nics,omitempty"`
	Devices      []Device `json:"devices,omitempty"`
}

// Disk is one local disk.
type Disk struct {
	Path   string `json:"path,omitempty"` // as the kernel names it; may change at the next boot
	WWN    string `json:"wwn,omitempty"`
	Model  string `json:"model,omitempty"`
	Serial string `json:"serial,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"`
}

// Key tells disks apart across boots: the WWN, else model and serial. A disk with neither is known by its path only.
func (d Disk) Key() string {
	switch {
	case d.WWN != "":
		return "wwn:" + d.WWN
	case d.Serial != "":
		return "serial:" + d.Model + "/" + d.Serial
	default:
		return "path:" + d.Path
	}
}

// NIC is one network port.
type NIC struct {
	MAC  string `json:"mac"`
	Name string `json:"name,omitempty"`
}

// Device is another PCI device worth knowing, such as a GPU.
type Device struct {
	Class   string `json:"class"`
	Vendor  string `json:"vendor,omitempty"`
	Product string `json:"product,omitempty"`
}

// WipeMethod is how disks are made empty.
type WipeMethod string

// The wipe methods, weakest first.
const (
	WipeNone        WipeMethod = "none"
	WipeQuick       WipeMethod = "quick"
	WipeSecureErase WipeMethod = "secure-erase"
	WipeCryptoErase WipeMethod = "crypto-erase"
)

// WipeMethods lists every method.
var WipeMethods = []WipeMethod{WipeNone, WipeQuick, WipeSecureErase, WipeCryptoErase}

// Wipe is one wipe as an agent attested it.
type Wipe struct {
	Workflow     id.Workflow     `json:"workflowId"`
	AgentCommand id.AgentCommand `json:"agentCommandId"`
	BootID       string          `json:"bootId"`
	Certificate  string          `json:"certificate"` // fingerprint of the node certificate whose key signed the result
	Signed       bool            `json:"signed"`      // the signature was checked against that certificate
	Method       WipeMethod      `json:"method"`      // as asked
	Disks        []WipedDisk     `json:"disks"`
}

// WipedDisk is what a wipe did to one disk.
type WipedDisk struct {
	Disk     Disk       `json:"disk"`
	Method   WipeMethod `json:"method"`           // as done
	ReadBack bool       `json:"readBack"`         // fixed and sampled blocks were read back empty
	Reason   string     `json:"reason,omitempty"` // why not
}

// Unproven lists the disks of the latest in-band inventory that the newest wipe does not prove empty; complete is false
// where there is no signed wipe or no in-band inventory to compare with.
func (s State) Unproven() (disks []Disk, complete bool) {
	if s.Hardware.InBand == nil || s.Wipe == nil || !s.Wipe.Signed {
		return nil, false
	}
	proven := map[string]bool{}
	for _, d := range s.Wipe.Disks {
		proven[d.Disk.Key()] = d.ReadBack && d.Method != WipeNone
	}
	for _, d := range s.Hardware.InBand.Disks {
		if !proven[d.Key()] {
			disks = append(disks, d)
		}
	}
	return disks, true
}

// WipeVerified reports whether a node-signed wipe, read back, covers every disk of the latest in-band inventory.
func (s State) WipeVerified() bool {
	unproven, complete := s.Unproven()
	return complete && len(unproven) == 0
}
