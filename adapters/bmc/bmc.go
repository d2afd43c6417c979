// Package bmc is what a driver of a management controller can do, as the agent asks for it.
//
// A driver has the capabilities that it implements; an operation of a concern that it lacks is refused. bmctest is the
// suite that every driver passes.
package bmc

import (
	"context"
	"encoding/json"
	"time"

	"github.com/better-compute/metal/domain/node"
)

// Target is one management controller, with everything needed to reach it. It holds a password: it is never logged, and
// its String says [redacted].
type Target struct {
	Address  string         // https://host[:port][/path], as domain/claim normalised it
	TLS      node.TLSPolicy // pin-on-first-use without a fingerprint records the one that it sees
	Username string
	Password string
	// CredentialVersion changes with every rotation: a session made under another is not used again.
	CredentialVersion string
	// System is the id, UUID or serial number of the computer system behind a controller that has several; empty: the only
	// one.
	System string
	// Quirks is what an earlier invocation learned about this controller; nil at first. Its shape is the driver's own.
	Quirks json.RawMessage
}

// String never tells the credentials.
func (t Target) String() string { return t.Address + " [redacted]" }

// Driver opens connections to controllers. It is safe for concurrent use and bounds what it sends to one controller at a
// time. Close ends every session it still holds.
type Driver interface {
	Open(ctx context.Context, t Target) (Machine, error)
	Close(ctx context.Context) error
}

// Machine is one machine behind its controller. It implements the capabilities below that it has. Every error is a
// *fault.Error: DRIVER_ERROR with details (reason: one of Reasons; what was wanted and what was found), TIMEOUT,
// UNAVAILABLE for a controller that does not answer.
type Machine interface {
	// Learned is what is known about the controller after the calls so far: to be kept and handed in again as
	// Target.Quirks. Identical input gives identical output.
	Learned() json.RawMessage
	// Fingerprint is the SHA-256 of the certificate that was seen, in lower-case hex; empty for plain HTTP.
	Fingerprint() string
	// Close gives the connection back. The session may be kept for the next Open, within the driver's limits.
	Close(ctx context.Context) error
}

// Reason says why a controller could not do what was asked; it is in the details of a DRIVER_ERROR.
type Reason string

// The reasons.
const (
	CredentialsRejected    Reason = "credentials-rejected"
	CertificateChanged     Reason = "certificate-changed" // the pinned fingerprint is another: the node is held
	CertificateUntrusted   Reason = "certificate-untrusted"
	AmbiguousSystem        Reason = "ambiguous-system"
	SystemNotFound         Reason = "system-not-found"
	Unsupported            Reason = "unsupported" // no request was sent
	BootOverrideNotApplied Reason = "boot-override-not-applied"
	PowerNotReached        Reason = "power-not-reached"
	MediaNotAttached       Reason = "media-not-attached"
	TaskFailed             Reason = "task-failed"
	NotReady               Reason = "not-ready" // such as during POST or a pending job; retryAfter is in the details
	BadAnswer              Reason = "bad-answer"
	Refused                Reason = "refused"
)

// Identity is who a machine is, as its controller tells. Claims that the controller leaves empty stay empty.
type Identity struct {
	SystemID        string     `json:"systemId"`
	UUID            string     `json:"uuid,omitempty"`
	Serial          string     `json:"serial,omitempty"`
	SKU             string     `json:"sku,omitempty"` // Dell's service tag stands here
	Manufacturer    string     `json:"manufacturer,omitempty"`
	Model           string     `json:"model,omitempty"`
	Vendor          string     `json:"vendor,omitempty"` // whose quirks apply
	ManagerModel    string     `json:"managerModel,omitempty"`
	ManagerFirmware string     `json:"managerFirmware,omitempty"`
	BIOSVersion     string     `json:"biosVersion,omitempty"`
	Power           node.Power `json:"power,omitempty"`
	Health          string     `json:"health,omitempty"` // told, never judged
	Weak            []string   `json:"weak,omitempty"`   // claims that look made up, such as an all-zero UUID
}

// Identifier tells who the machine is.
type Identifier interface {
	Identify(ctx context.Context) (Identity, error)
}

// PowerReading is how a machine's power is, and since when it runs.
type PowerReading struct {
	Power node.Power `json:"power"`
	// StartedAgo is how many seconds ago the machine was reset or switched on, by its controller's own clock. Zero: it does not tell.
	StartedAgo float64 `json:"startedAgoSeconds,omitempty"`
}

// PowerResult is what a power action did.
type PowerResult struct {
	Power   node.Power `json:"power"`             // as read back
	Changed bool       `json:"changed"`           // false where the machine was already as wanted
	Sent    []string   `json:"sent,omitempty"`    // the reset types that were sent, in order
	Forced  bool       `json:"forced,omitempty"`  // a graceful shutdown ended with force
	Retried int        `json:"retried,omitempty"` // how often something was sent or read again
}

// PowerOptions bounds a power action.
type PowerOptions struct {
	Graceful time.Duration // how long a graceful shutdown may take; zero: 2 minutes
	Force    bool          // after that, force; false: fail with power-not-reached
}

// Powerer reads and changes power. Success is what was read back, never what the controller answered: off means observed
// off; cycle means off was seen, then on; "already on" is success.
type Powerer interface {
	Power(ctx context.Context) (PowerReading, error)
	SetPower(ctx context.Context, action node.PowerAction, o PowerOptions) (PowerResult, error)
}

// BootDevice is what a machine boots from next.
type BootDevice string

// The boot devices.
const (
	BootNetwork  BootDevice = "network"
	BootDisk     BootDevice = "disk"
	BootCD       BootDevice = "cd"
	BootUEFIHTTP BootDevice = "uefi-http"
	BootSetup    BootDevice = "setup"
)

// BootDevices lists every boot device.
var BootDevices = []BootDevice{BootNetwork, BootDisk, BootCD, BootUEFIHTTP, BootSetup}

// BootMode is how firmware boots.
type BootMode string

// The boot modes; empty: as the machine is set.
const (
	BootUEFI   BootMode = "uefi"
	BootLegacy BootMode = "legacy"
)

// BootOverride is a wanted boot device.
type BootOverride struct {
	Device     BootDevice `json:"device"`
	Persistent bool       `json:"persistent,omitempty"`
	Mode       BootMode   `json:"mode,omitempty"`
	HTTPURI    string     `json:"httpUri,omitempty"` // for uefi-http
}

// BootResult is what the controller holds after the change, as read back.
type BootResult struct {
	BootOverride
	Target string `json:"target"`         // the controller's name of the device, such as Pxe
	Note   string `json:"note,omitempty"` // where it is weaker than asked, such as once instead of persistent
}

// Booter chooses the boot device.
type Booter interface {
	BootOverride(ctx context.Context) (BootResult, error)
	SetBootDevice(ctx context.Context, o BootOverride) (BootResult, error)
}

// Media is one virtual drive.
type Media struct {
	Slot      string `json:"slot"`
	Image     string `json:"image,omitempty"`
	Inserted  bool   `json:"inserted"`
	Connected string `json:"connected,omitempty"`
}

// MediaLoader inserts and ejects virtual media. Insert ejects what is there first; eject of an empty drive is success.
type MediaLoader interface {
	InsertMedia(ctx context.Context, image string) (Media, error)
	EjectMedia(ctx context.Context) error
}

// Inventory is what a controller tells about a machine, with how complete each source was.
type Inventory struct {
	Hardware node.Hardware     `json:"hardware"`
	Notes    []string          `json:"notes,omitempty"`   // such as a NIC that was left out and why
	Sources  map[string]string `json:"sources,omitempty"` // processors, memory, drives, nics → complete, partial, absent
}

// Inspector takes the inventory.
type Inspector interface {
	Inspect(ctx context.Context) (Inventory, error)
}

// Reading is one sensor.
type Reading struct {
	Name   string  `json:"name"`
	Kind   string  `json:"kind"` // temperature, fan, voltage, power
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"` // Cel, RPM, %, V, W
	Health string  `json:"health,omitempty"`
}

// Sensor reads sensors.
type Sensor interface {
	Sensors(ctx context.Context) ([]Reading, error)
}
