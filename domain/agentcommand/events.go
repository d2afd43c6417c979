package agentcommand

import (
	"encoding/json"
	"time"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
)

// Event is any event of an agent command's stream. Each carries what whoever follows the log needs to find the machine and
// the workflow without folding the stream.
//
//sumtype:decl
type Event interface {
	event.Event
	agentCommandEvent()
}

// Events is the table of stored names.
var Events = event.Table(
	event.Of[Requested](1, "agentcommand.requested"),
	event.Of[HandedOut](1, "agentcommand.dispatched"),
	event.Of[Progressed](1, "agentcommand.acked", "agentcommand.running"),
	event.Of[Settled](1, settledNames()...),
	event.Of[SecretFetched](1, "agentcommand.secret.fetched"),
)

// HandedOut says that one boot of one agent was given the order. No other boot is.
type HandedOut struct {
	Ref
	Agent  id.Agent `json:"agentId"`
	BootID string   `json:"bootId"`
}

// Progressed says that the agent has the order in its journal (acked), or works on it (running).
type Progressed struct {
	Ref
	Status Status `json:"status"`
}

// Settled says what came of it.
type Settled struct {
	Ref
	Status      Status          `json:"status"`
	BootID      string          `json:"bootId,omitempty"`
	Result      json.RawMessage `json:"result,omitempty"`
	Code        string          `json:"code,omitempty"`
	Reason      string          `json:"reason,omitempty"` // bounded and scrubbed
	Details     json.RawMessage `json:"details,omitempty"`
	Attestation *Attestation    `json:"attestation,omitempty"`
	Attested    bool            `json:"attested,omitempty"`
}

// SecretFetched says that the agent was given a value that the order refers to: who and which, never the value.
type SecretFetched struct {
	Ref
	Agent  id.Agent `json:"agentId"`
	Secret string   `json:"ref"` // secret:<id>
}

// Ref says which machine and workflow an event is about.
type Ref struct {
	Node     id.Node     `json:"nodeId"`
	Workflow id.Workflow `json:"workflowId,omitzero"`
}

// EventType is the stored name.
func (Requested) EventType() string { return "agentcommand.requested" }

// EventType is the stored name.
func (HandedOut) EventType() string { return "agentcommand.dispatched" }

// EventType is agentcommand.acked or agentcommand.running.
func (p Progressed) EventType() string { return "agentcommand." + string(p.Status) }

// EventType is agentcommand.<status>.
func (s Settled) EventType() string { return "agentcommand." + string(s.Status) }

// EventType is the stored name.
func (SecretFetched) EventType() string { return "agentcommand.secret.fetched" }

func settledNames() []string {
	var names []string
	for _, s := range []Status{Succeeded, Failed, Rejected, Expired, Cancelled} {
		names = append(names, "agentcommand."+string(s))
	}
	return names
}

func (Requested) agentCommandEvent()  {}
func (HandedOut) agentCommandEvent()  {}
func (Progressed) agentCommandEvent() {}
func (Settled) agentCommandEvent()    {}

func (SecretFetched) agentCommandEvent() {}

// Command is any verb against an agent command.
type Command interface{ agentCommandCommand() }

type (
	// Request asks for it. The same facts again change nothing, the first deadline standing; others under the same key are
	// CONFLICT.
	Request struct{ Facts Requested }
	// HandOut gives it to one boot of an agent. Legal from pending; to the same boot again it changes nothing; to another
	// boot of it, or to another agent, it is CONFLICT.
	HandOut struct {
		Agent  id.Agent
		BootID string
		Now    time.Time // past NotAfter it expires instead
	}
	// Progress is told by the agent that has it.
	Progress struct {
		Agent  id.Agent
		BootID string
		Status Status // acked or running; an earlier one than the present changes nothing
	}
	// Settle is the agent's result. The same status and result again change nothing; others are INVALID_STATE.
	Settle struct {
		Agent       id.Agent
		BootID      string
		Status      Status // succeeded, failed or rejected
		Result      json.RawMessage
		Code        string
		Reason      string
		Details     json.RawMessage
		Attestation *Attestation
		Attested    bool // the caller has checked the signature
	}
	// Expire ends it where nobody has finished it: its deadline passed, or BootID is set and the boot that has it is
	// another one.
	Expire struct {
		Now    time.Time
		BootID string // of the agent that had it, as it is now
		Reason string
	}
	// Cancel ends it where nobody has finished it.
	Cancel struct{ Reason string }
	// FetchSecret is asked by the agent that has it, for a value that it refers to.
	FetchSecret struct {
		Agent  id.Agent
		BootID string
		Ref    string
	}
)

func (Request) agentCommandCommand()  {}
func (HandOut) agentCommandCommand()  {}
func (Progress) agentCommandCommand() {}
func (Settle) agentCommandCommand()   {}
func (Expire) agentCommandCommand()   {}
func (Cancel) agentCommandCommand()   {}

func (FetchSecret) agentCommandCommand() {}
