package node

import (
	"time"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
)

// Event is any event of a node's stream.
//
//sumtype:decl
type Event interface {
	event.Event
	nodeEvent()
}

// Events is the table of stored names. A new event is a struct below, a row here, a case in evolve.go, and a sample in
// schema/events.
var Events = event.Table(
	event.Of[Enrolled](1, "node.enrolled"),
	event.Of[EnrollmentVoided](1, "node.enrollment.voided"),
	event.Of[AgentJoined](1, "node.agent.joined"),
	event.Of[Moved](1, movedNames()...),
	event.Of[WorkflowStarted](1, "node.provision.workflow"),
	event.Of[UnrescueAsked](1, "node.provision.unrescuing"),
	event.Of[ReleasedUnverified](1, "node.release.unverified"),
	event.Of[PowerAsked](1, "node.power.requested"),
	event.Of[PowerObserved](1, "node.power.observed"),
	event.Of[PowerFailed](1, "node.power.failed"),
	event.Of[MaintenanceEntered](1, "node.maintenance.entered"),
	event.Of[MaintenanceLeft](1, "node.maintenance.left"),
	event.Of[Cordoned](1, "node.cordon.set"),
	event.Of[Uncordoned](1, "node.cordon.cleared"),
	event.Of[HardwareRecorded](1, "node.hardware.recorded"),
	event.Of[WipeAttested](1, "node.wipe.attested"),
	event.Of[BMCLearned](1, "node.bmc.learned"),
	event.Of[BMCChanged](1, "node.bmc.changed"),
)

func movedNames() []string {
	names := make([]string, len(States))
	for i, row := range States {
		names[i] = Moved{To: row.State}.EventType()
	}
	return names
}

// Enrolled says that an operator handed over a machine with its BMC.
type Enrolled struct {
	Node            id.Node           `json:"nodeId"`
	Tenant          id.Tenant         `json:"tenantId"`
	Site            id.Site           `json:"siteId"`
	Pool            id.Pool           `json:"poolId"`
	Name            string            `json:"name"`
	Labels          map[string]string `json:"labels,omitempty"`
	BMC             BMC               `json:"bmc"`
	MACs            []string          `json:"macs,omitempty"`
	HardwareProfile string            `json:"hardwareProfile,omitempty"`
}

// EnrollmentVoided closes the stream of a node whose claims were taken but which never appeared, so that the late half of
// that enrollment cannot appear after its claims went to another node.
type EnrollmentVoided struct {
	Node   id.Node   `json:"nodeId"`
	Tenant id.Tenant `json:"tenantId"`
}

// AgentJoined says that a running machine joined with a token of role node.
type AgentJoined struct {
	Node   id.Node           `json:"nodeId"`
	Tenant id.Tenant         `json:"tenantId"`
	Site   id.Site           `json:"siteId"`
	Pool   id.Pool           `json:"poolId"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	MACs   []string          `json:"macs,omitempty"`
}

// Moved says that the provision state changed. It is stored as node.provision.<state>, To being the state. A move to
// failed carries the error and turns maintenance on in the same event.
type Moved struct {
	From     ProvisionState `json:"from"`
	To       ProvisionState `json:"to"`
	Verb     Verb           `json:"verb"`
	Reason   string         `json:"reason,omitempty"`
	Workflow id.Workflow    `json:"workflowId,omitzero"` // that completed, failed or was aborted
	Profile  *Profile       `json:"profile,omitempty"`   // deploy
	Wipe     WipeMethod     `json:"wipe,omitempty"`      // undeploy, retire, and recover where it leads to a wipe
	Role     Role           `json:"role,omitempty"`      // complete of a deploy
	Error    *Failure       `json:"error,omitempty"`     // fail, abort
	Wiped    *bool          `json:"wiped,omitempty"`     // moves to retired: whether a wipe was proven
}

// WorkflowStarted says which workflow the node's state runs now. Run above 1 is a retry of the same workflow.
type WorkflowStarted struct {
	Workflow id.Workflow `json:"workflowId"`
	Profile  Profile     `json:"profile"`
	Run      int         `json:"run"`
	FromStep string      `json:"fromStep,omitempty"` // of a retry; empty: the step that failed
}

// UnrescueAsked says that an operator wants a node in rescue back in its installed OS.
type UnrescueAsked struct {
	Workflow id.Workflow `json:"workflowId"` // of metal-unrescue, derived from this event
}

// ReleasedUnverified says that an agentless pool's policy let a node reach ready without an attested wipe.
type ReleasedUnverified struct {
	Policy string `json:"policy"` // the policy that allowed it, by name
}

// PowerAsked says that an operator asked for a power action.
type PowerAsked struct {
	Action   PowerAction `json:"action"`
	Key      string      `json:"key,omitempty"` // of the agent command that carries it out
	NotAfter time.Time   `json:"notAfter,omitzero"`
}

// PowerFailed says that a power action came to nothing.
type PowerFailed struct {
	Action PowerAction `json:"action"`
	Key    string      `json:"key"`
	Error  Failure     `json:"error"`
}

// PowerObserved says that the machine's power state changed, or that the action that was asked for is done.
type PowerObserved struct {
	Power Power `json:"power"`
	Aside bool  `json:"aside,omitempty"` // other work read it: the action that was asked for is still to be carried out
}

// MaintenanceEntered says that an operator took the node from scheduling.
type MaintenanceEntered struct {
	Reason string `json:"reason,omitempty"`
}

// MaintenanceLeft says that an operator cleared maintenance.
type MaintenanceLeft struct{}

// Cordoned says that no new work may be placed on the node.
type Cordoned struct {
	Reason string `json:"reason,omitempty"`
}

// Uncordoned says that work may be placed again.
type Uncordoned struct{}

// HardwareRecorded is a new inventory.
type HardwareRecorded struct {
	Source   Source   `json:"source"`
	Hardware Hardware `json:"hardware"`
}

// WipeAttested is the signed result of a wipe.
type WipeAttested struct{ Wipe }

// EventType is the stored name.
func (Enrolled) EventType() string { return "node.enrolled" }

// EventType is the stored name.
func (EnrollmentVoided) EventType() string { return "node.enrollment.voided" }

// EventType is the stored name.
func (AgentJoined) EventType() string { return "node.agent.joined" }

// EventType is node.provision.<state>.
func (m Moved) EventType() string { return "node.provision." + string(m.To) }

// EventType is the stored name.
func (WorkflowStarted) EventType() string { return "node.provision.workflow" }

// EventType is the stored name.
func (UnrescueAsked) EventType() string { return "node.provision.unrescuing" }

// EventType is the stored name.
func (ReleasedUnverified) EventType() string { return "node.release.unverified" }

// EventType is the stored name.
func (PowerAsked) EventType() string { return "node.power.requested" }

// EventType is the stored name.
func (PowerFailed) EventType() string { return "node.power.failed" }

// EventType is the stored name.
func (PowerObserved) EventType() string { return "node.power.observed" }

// EventType is the stored name.
func (MaintenanceEntered) EventType() string { return "node.maintenance.entered" }

// EventType is the stored name.
func (MaintenanceLeft) EventType() string { return "node.maintenance.left" }

// EventType is the stored name.
func (Cordoned) EventType() string { return "node.cordon.set" }

// EventType is the stored name.
func (Uncordoned) EventType() string { return "node.cordon.cleared" }

// EventType is the stored name.
func (HardwareRecorded) EventType() string { return "node.hardware.recorded" }

// EventType is the stored name.
func (WipeAttested) EventType() string { return "node.wipe.attested" }

func (Enrolled) nodeEvent()           {}
func (EnrollmentVoided) nodeEvent()   {}
func (AgentJoined) nodeEvent()        {}
func (Moved) nodeEvent()              {}
func (WorkflowStarted) nodeEvent()    {}
func (UnrescueAsked) nodeEvent()      {}
func (ReleasedUnverified) nodeEvent() {}
func (PowerAsked) nodeEvent()         {}
func (PowerObserved) nodeEvent()      {}
func (PowerFailed) nodeEvent()        {}
func (MaintenanceEntered) nodeEvent() {}
func (MaintenanceLeft) nodeEvent()    {}
func (Cordoned) nodeEvent()           {}
func (Uncordoned) nodeEvent()         {}
func (HardwareRecorded) nodeEvent()   {}
func (WipeAttested) nodeEvent()       {}
