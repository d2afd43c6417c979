package node

import (
	"slices"

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

// Hardware is one inventory of a machine. What its source does not tell is absent: that is neither zero nor no.
type Hardware struct {
	Manufacturer string     `json:"manufacturer,omitempty"`
	Product      string     `json:"product,omitempty"`
	Serial       string     `json:"serial,omitempty"`
	UUID         string     `json:"uuid,omitempty"` // SMBIOS system UUID
	Cores        int        `json:"cores,omitempty"`
	CPU          *CPU       `json:"cpu,omitempty"`
	MemoryBytes  int64      `json:"memoryBytes,omitempty"`
	NUMA         []NUMANode `json:"numa,omitempty"`
	Firmware     *Firmware  `json:"firmware,omitempty"`
	TPM          *TPM       `json:"tpm,omitempty"` // absent: none that the source sees
	Disks        []Disk     `json:"disks,omitempty"`
	Driverless   []string   `json:"driverless,omitempty"` // places of controllers of disks without a driver: nobody sees their disks
	NICs         []NIC      `json:"nics,omitempty"`
	Devices      []Device   `json:"devices,omitempty"`
}

// CPU is what the processors are; all of a machine are the same.
type CPU struct {
	Model        string `json:"model,omitempty"`
	Architecture string `json:"architecture,omitempty"` // as the kernel has it: x86_64, aarch64
	Sockets      int    `json:"sockets,omitempty"`
	Threads      int    `json:"threads,omitempty"` // of all cores
}

// NUMANode is a part of the machine whose processors are near its memory.
type NUMANode struct {
	Node        int   `json:"node"`
	Cores       int   `json:"cores,omitempty"`
	Threads     int   `json:"threads,omitempty"`
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
}

// BootMode is how the firmware started the system that took the inventory; a BMC tells how it is set to start one.
type BootMode string

// The boot modes.
const (
	BootUEFI BootMode = "uefi"
	BootBIOS BootMode = "bios"
)

// Firmware is what starts the machine.
type Firmware struct {
	Vendor     string   `json:"vendor,omitempty"`
	Version    string   `json:"version,omitempty"`
	Date       string   `json:"date,omitempty"` // as the firmware writes it
	BootMode   BootMode `json:"bootMode,omitempty"`
	SecureBoot *bool    `json:"secureBoot,omitempty"` // whether it was enforced at this boot; absent: not known, or BIOS
}

// TPM is a Trusted Platform Module.
type TPM struct {
	Version         string `json:"version,omitempty"` // of its specification: 2.0, 1.2
	FirmwareVersion string `json:"firmwareVersion,omitempty"`
}

// Disk is one local disk.
type Disk struct {
	Path       string `json:"path,omitempty"` // as the kernel names it; may change at the next boot
	WWN        string `json:"wwn,omitempty"`
	Model      string `json:"model,omitempty"`
	Serial     string `json:"serial,omitempty"`
	Bytes      int64  `json:"bytes,omitempty"`
	Transport  string `json:"transport,omitempty"` // nvme, sata, sas, scsi, virtio, mmc
	Rotational *bool  `json:"rotational,omitempty"`
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

// LinkState is whether a network port is connected.
type LinkState string

// The states of a link.
const (
	LinkUp   LinkState = "up"
	LinkDown LinkState = "down"
)

// NIC is one network port.
type NIC struct {
	MAC       string        `json:"mac"`
	Name      string        `json:"name,omitempty"`
	Driver    string        `json:"driver,omitempty"`
	Link      LinkState     `json:"link,omitempty"`
	SpeedMbps int           `json:"speedMbps,omitempty"`
	LLDP      *LLDPNeighbor `json:"lldp,omitempty"` // absent: none was heard
}

// LLDPNeighbor is the port of a switch that a network port is plugged into, as the switch tells it.
type LLDPNeighbor struct {
	ChassisID       string `json:"chassisId"`
	PortID          string `json:"portId"`
	PortDescription string `json:"portDescription,omitempty"`
	SystemName      string `json:"systemName,omitempty"`
}

// Device is a PCI device worth knowing that is no bridge and no part of the board, such as a GPU.
type Device struct {
	Class   string `json:"class"`
	Vendor  string `json:"vendor,omitempty"`
	Product string `json:"product,omitempty"`
	Address string `json:"address,omitempty"` // on the PCI bus
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
	By       string     `json:"by,omitempty"`     // what did it: see the constants below
	ReadBack bool       `json:"readBack"`         // fixed and sampled blocks were read back empty
	Reason   string     `json:"reason,omitempty"` // why not
}

// What may have emptied a disk. A method leaves the choice: secure-erase is what the disk itself can, else an overwrite.
const (
	ByZeroes        = "zeroes"    // over what a disk is recognised by
	ByDiscard       = "discard"   // of all blocks, and zeroes
	ByOverwrite     = "overwrite" // with zeroes, of every block
	ByNVMeFormat    = "nvme-format"
	ByNVMeSanitize  = "nvme-sanitize"
	ByATAErase      = "ata-security-erase"
	ByATASanitize   = "ata-sanitize"
	BySecureDiscard = "secure-discard"
	ByDevice        = "device" // it erased itself, and does not say how
)

// Unproven lists the disks of the latest in-band inventory that the newest wipe does not prove empty; complete is false
// where there is no signed wipe or no in-band inventory to compare with. Disks of one name, which are one disk on two
// controllers or several that were named badly, are proven where each of them is: one of them says nothing of another. A method
// that is weaker than the one that was asked for proves nothing.
func (s State) Unproven() (disks []Disk, complete bool) {
	if s.Hardware.InBand == nil || s.Wipe == nil || !s.Wipe.Signed {
		return nil, false
	}
	proven, failed := map[string]int{}, map[string]bool{}
	for _, d := range s.Wipe.Disks {
		weaker := slices.Index(WipeMethods, d.Method) < slices.Index(WipeMethods, s.Wipe.Method)
		if proven[d.Disk.Key()]++; !d.ReadBack || d.Method == WipeNone || weaker {
			failed[d.Disk.Key()] = true
		}
	}
	for _, d := range s.Hardware.InBand.Disks {
		if proven[d.Key()]--; failed[d.Key()] || proven[d.Key()] < 0 {
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
