// Package metalview is the machine as callers see it: one row per node, ready to answer.
package metalview

import (
	"encoding/json"
	"time"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
)

// Unknown is what connectivity and power read before anything was observed.
const Unknown = "unknown"

// View is what a caller sees of a machine. It holds no credential and no reference to one.
type View struct {
	Node              id.Node             `json:"nodeId"`
	Tenant            id.Tenant           `json:"tenantId"`
	Site              id.Site             `json:"siteId"`
	Pool              id.Pool             `json:"poolId"`
	Name              string              `json:"name"`
	Labels            map[string]string   `json:"labels,omitempty"`
	Provision         node.ProvisionState `json:"provisionState"`
	Role              node.Role           `json:"role,omitempty"`
	Maintenance       bool                `json:"maintenance"`
	MaintenanceReason string              `json:"maintenanceReason,omitempty"`
	Cordoned          bool                `json:"cordoned"`
	CordonReason      string              `json:"cordonReason,omitempty"`
	Schedulable       bool                `json:"schedulable"` // no maintenance or cordon forbids work
	Connectivity      string              `json:"connectivity"`
	Power             string              `json:"power"`                 // on, off or unknown: as last observed
	PowerAction       node.PowerAction    `json:"powerAction,omitempty"` // asked for and not yet observed
	PowerError        *node.Failure       `json:"powerError,omitempty"`  // why the newest power action came to nothing
	BMC               *BMC                `json:"bmc,omitempty"`         // absent: adopted without one
	MACs              []string            `json:"macs"`
	Hardware          *node.Inventories   `json:"hardware,omitempty"`
	HardwareProfile   string              `json:"hardwareProfile,omitempty"` // over the pool's
	Profile           *node.Profile       `json:"profile,omitempty"`         // of the deploy
	Workflow          id.Workflow         `json:"workflowId,omitzero"`       // the active one
	RescueUp          bool                `json:"rescueUp,omitempty"`        // the rescue ramdisk has booted
	Unrescuing        bool                `json:"unrescuing,omitempty"`      // leaving rescue was asked for
	FailedFrom        node.ProvisionState `json:"failedFrom,omitempty"`
	LastError         *node.Failure       `json:"lastError,omitempty"`
	ReleaseUnverified bool                `json:"releaseUnverified,omitempty"` // ready without a verified wipe
	WipeVerified      bool                `json:"wipeVerified"`                // of every disk since last written
	Version           event.Version       `json:"version"`                     // what If-Match compares
	Position          event.Position      `json:"position"`                    // of the newest event in the view
	UpdatedAt         time.Time           `json:"updatedAt"`                   // when that event was decided
}

// BMC is what a caller sees of a management controller.
type BMC struct {
	Driver         string          `json:"driver"`
	Address        string          `json:"address"`
	TLS            TLS             `json:"tls"`
	CredentialsSet bool            `json:"credentialsSet"`
	Fingerprint    string          `json:"fingerprint,omitempty"` // that was pinned when it was first seen
	System         string          `json:"system,omitempty"`      // which of the controller's systems the machine is
	Quirks         json.RawMessage `json:"quirks,omitempty"`      // what its driver learned about it
}

// TLS says how the controller's certificate is trusted.
type TLS struct {
	Mode        node.TLSMode `json:"mode"`
	Fingerprint string       `json:"fingerprint,omitempty"` // SHA-256, lower-case hex
}

// Of makes the view of a state: also the answer of a verb, which needs no read.
func Of(s node.State, version event.Version, position event.Position, at time.Time) View {
	v := View{
		Node: s.ID, Tenant: s.Tenant, Site: s.Site, Pool: s.Pool, Name: s.Name, Labels: s.Labels,
		Provision: s.Provision, Role: s.Role, Schedulable: s.Schedulable(),
		Connectivity: Unknown, Power: Unknown, PowerAction: s.PowerAction, PowerError: s.PowerError,
		MACs: s.MACs, HardwareProfile: s.HardwareProfile, Profile: s.Profile,
		RescueUp: s.RescueUp, Unrescuing: s.Unrescuing, FailedFrom: s.FailedFrom, LastError: s.LastError,
		ReleaseUnverified: s.ReleaseUnverified, WipeVerified: s.WipeVerified(),
		Version: version, Position: position, UpdatedAt: at.UTC().Truncate(time.Microsecond),
	}
	if s.Power != "" {
		v.Power = string(s.Power)
	}
	if s.MACs == nil {
		v.MACs = []string{}
	}
	if s.Maintenance != nil {
		v.Maintenance, v.MaintenanceReason = true, s.Maintenance.Reason
	}
	if s.Cordon != nil {
		v.Cordoned, v.CordonReason = true, s.Cordon.Reason
	}
	if s.Workflow != nil {
		v.Workflow = s.Workflow.ID
	}
	if s.Hardware != (node.Inventories{}) {
		hardware := s.Hardware
		v.Hardware = &hardware
	}
	if s.BMC != nil {
		v.BMC = &BMC{
			Driver: s.BMC.Driver, Address: s.BMC.Address, CredentialsSet: s.BMC.Credentials != "" && s.Provision != node.Retired,
			TLS:         TLS{Mode: s.BMC.TLS.Mode, Fingerprint: s.BMC.TLS.Fingerprint},
			Fingerprint: s.Learned.Fingerprint, System: s.Learned.System, Quirks: s.Learned.Quirks,
		}
	}
	return v
}
