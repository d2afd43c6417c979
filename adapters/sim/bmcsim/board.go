// Package bmcsim is the Redfish service of a simulated management controller: small documents of our own over a Board, in
// the ways of a Personality, with faults by Rule.
package bmcsim

import "time"

// Board is the machine behind a controller. It is safe for concurrent use.
type Board interface {
	// Facts never change.
	Facts() Facts
	State() State
	// Reset does what the reset type says, or tells why it can't.
	Reset(ResetType) error
	SetBoot(Boot)
	SetMedia(slot int, m Media)
}

// ResetType is a Redfish reset type.
type ResetType string

// The reset types.
const (
	On               ResetType = "On"
	ForceOn          ResetType = "ForceOn"
	ForceOff         ResetType = "ForceOff"
	GracefulShutdown ResetType = "GracefulShutdown"
	GracefulRestart  ResetType = "GracefulRestart"
	ForceRestart     ResetType = "ForceRestart"
	PowerCycle       ResetType = "PowerCycle"
	PushPowerButton  ResetType = "PushPowerButton"
	Nmi              ResetType = "Nmi"
)

// Facts is what a machine is made of.
type Facts struct {
	Serial, UUID, Tag string // Tag: what stands in SKU, a service tag with one maker
	Host              string // authority that clients reach the controller under
	Username          string
	Password          string
	Cores             int
	MemoryBytes       int64
	TPM               string // its InterfaceType, such as TPM2_0; empty: there is none
	NICs              []NIC
	Disks             []Disk
}

// NIC is one network port. It is connected.
type NIC struct {
	Name, MAC string
	SpeedMbps int
}

// Disk is one drive, as the controller sees it.
type Disk struct {
	Name, Model, Serial, WWN string
	Bytes                    int64
	Rotational               bool
	Transport                string // nvme, sata, sas
}

// State is what changes about a machine. It is comparable: a document is made anew only when it differs.
type State struct {
	On      bool
	Posting bool      // the firmware is at its self-test
	Boots   int       // how often it was started
	Started time.Time // the last time; zero: never
	Boot    Boot
	Media   [MediaSlots]Media
}

// MediaSlots is how many virtual drives a machine has: the first takes CDs.
const MediaSlots = 2

// Boot is the boot override, in Redfish's words.
type Boot struct {
	Enabled string // Disabled, Once, Continuous
	Target  string // None, Pxe, Hdd, …
	Mode    string // UEFI, Legacy
	HTTPURI string
}

// Media is what is in a virtual drive.
type Media struct {
	Image    string
	Inserted bool
	ReadOnly bool
}
