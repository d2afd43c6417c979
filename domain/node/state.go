// Package node is the machine as an aggregate: where it stands, what its operator asked of it, what its disks prove.
//
// moves.go holds the tables, decide.go the rules, evolve.go the fold, events.go the facts as stored.
package node

import (
	"time"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
)

// Category is the first part of a node's stream name.
const Category = "node"

// StreamOf names the stream of one node.
func StreamOf(n id.Node) event.Stream { return event.StreamOf(Category, n.String()) }

// State is the fold of a node's stream. Its JSON is what a replay prints.
type State struct {
	ID       id.Node           `json:"id"`
	Tenant   id.Tenant         `json:"tenantId"`
	Site     id.Site           `json:"siteId"`
	Pool     id.Pool           `json:"poolId"`
	Name     string            `json:"name"`
	Labels   map[string]string `json:"labels,omitempty"`
	MACs     []string          `json:"macs,omitempty"`
	BMC      *BMC              `json:"bmc,omitempty"`    // nil: adopted without one
	Learned  BMCLearned        `json:"learned,omitzero"` // of the BMC, by whoever drove it
	Hardware Inventories       `json:"hardware,omitzero"`

	HardwareProfile string `json:"hardwareProfile,omitempty"` // over the pool's

	Provision   ProvisionState `json:"provisionState"`
	Role        Role           `json:"role,omitempty"`
	Maintenance *Mark          `json:"maintenance,omitempty"`
	Cordon      *Mark          `json:"cordon,omitempty"`

	Power       Power       `json:"power,omitempty"`       // as last observed
	PowerAction PowerAction `json:"powerAction,omitempty"` // as last asked for and not yet observed

	PowerKey      string    `json:"powerKey,omitempty"`      // of the agent command that carries the action out
	PowerNotAfter time.Time `json:"powerNotAfter,omitzero"`  // when the action is given up
	PowerError    *Failure  `json:"powerError,omitempty"`    // why the newest action came to nothing
	PowerReplaced []string  `json:"powerReplaced,omitempty"` // keys of actions that the present one took the place of

	Workflow         *Workflow      `json:"workflow,omitempty"`        // the active one
	LastWorkflow     id.Workflow    `json:"lastWorkflow,omitzero"`     // the newest that ended or was aborted
	LastRun          int            `json:"lastRun,omitempty"`         // its run number
	LastProfile      *Profile       `json:"lastProfile,omitempty"`     // its profile
	Profile          *Profile       `json:"profile,omitempty"`         // of the deploy, kept until a wipe is verified
	ReleaseWipe      WipeMethod     `json:"releaseWipe,omitempty"`     // asked by undeploy or retire
	RescueUp         bool           `json:"rescueUp,omitempty"`        // the rescue ramdisk has booted
	Unrescuing       bool           `json:"unrescuing,omitempty"`      // the operator asked to leave rescue
	UnrescueWorkflow id.Workflow    `json:"unrescueWorkflow,omitzero"` // the id that metal-unrescue runs under
	FailedFrom       ProvisionState `json:"failedFrom,omitempty"`
	FailedBy         Verb           `json:"failedBy,omitempty"`      // fail or abort
	FailedWorkflow   id.Workflow    `json:"failedWorkflow,omitzero"` // that failed or was aborted
	LastError        *Failure       `json:"lastError,omitempty"`
	Answered         *Failure       `json:"answered,omitempty"` // why it had failed, once recovered or retired; until it moves on

	Wipe              *Wipe `json:"wipe,omitempty"`              // the newest since the disks were last written
	ReleaseUnverified bool  `json:"releaseUnverified,omitempty"` // reached ready without a verified wipe, by pool policy
	Voided            bool  `json:"voided,omitempty"`            // its enrollment never finished and never will
}

// Exists reports whether the machine was ever enrolled or joined.
func (s State) Exists() bool { return s.Provision != None }

// Schedulable reports whether work may be placed on the node: its state allows it, and neither maintenance nor a cordon
// forbids it.
func (s State) Schedulable() bool {
	return InfoOf(s.Provision).Schedulable && s.Maintenance == nil && s.Cordon == nil
}

// BMC is where a machine's management controller is and how to trust it. The credentials are in the secret store.
type BMC struct {
	Driver      string    `json:"driver"`         // such as redfish
	Address     string    `json:"address"`        // normalised by domain/claim
	Credentials SecretRef `json:"credentialsRef"` // never the credentials
	TLS         TLSPolicy `json:"tls"`
}

// SecretRef names a value in the secret store: secret:<id>. It is not the value.
type SecretRef string

// TLSMode says how a BMC's certificate is trusted.
type TLSMode string

// The TLS modes.
const (
	TLSPinOnFirstUse TLSMode = "pin-on-first-use" // the default: record the fingerprint at enroll, hold on a change
	TLSPinned        TLSMode = "pinned"
	TLSSystemCA      TLSMode = "system-ca"
	TLSCustomCA      TLSMode = "ca"
	TLSInsecure      TLSMode = "insecure"
)

// TLSModes lists every mode.
var TLSModes = []TLSMode{TLSPinOnFirstUse, TLSPinned, TLSSystemCA, TLSCustomCA, TLSInsecure}

// TLSPolicy is a mode with what it needs.
type TLSPolicy struct {
	Mode        TLSMode `json:"mode"`
	Fingerprint string  `json:"fingerprint,omitempty"` // SHA-256 of the certificate, lower-case hex, for pinned
	CA          string  `json:"ca,omitempty"`          // PEM, for ca
}

// Role is what the installed OS is for.
type Role string

// The roles.
const (
	RoleHost      Role = "host"
	RoleDedicated Role = "dedicated"
)

// Power is a machine's power state as observed.
type Power string

// The power states.
const (
	PowerOn  Power = "on"
	PowerOff Power = "off"
)

// PowerAction is what an operator may ask of a machine's power.
type PowerAction string

// The power actions.
const (
	ActionOn       PowerAction = "on"
	ActionOff      PowerAction = "off"      // at once
	ActionGraceful PowerAction = "graceful" // ask the OS, with a deadline
	ActionCycle    PowerAction = "cycle"    // off, then on
	ActionReset    PowerAction = "reset"    // without power loss
)

// PowerActions lists every action.
var PowerActions = []PowerAction{ActionOn, ActionOff, ActionGraceful, ActionCycle, ActionReset}

// Mark is maintenance or a cordon, with its reason.
type Mark struct {
	Reason string `json:"reason,omitempty"`
}

// Profile pins a version of a profile.
type Profile struct {
	ID      string `json:"id"`
	Version int    `json:"version"`
}

// Workflow is the node's active workflow. Run counts from 1 and rises with every retry.
type Workflow struct {
	ID       id.Workflow `json:"id"`
	Profile  Profile     `json:"profile"`
	Run      int         `json:"run"`
	FromStep string      `json:"fromStep,omitempty"` // that a retry was asked to begin with
}

// Failure is why a node is in failed. Code is empty for an abort.
type Failure struct {
	Code    string `json:"code,omitempty"`
	Message string `json:"message"`
}

// Drivers lists the BMC drivers by name; the first is the default.
var Drivers = []string{"redfish"}
