package agent

import (
	"time"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
)

// Event is any event of an agent's stream. Each names the node, where there is one, for those who follow the log.
//
//sumtype:decl
type Event interface {
	event.Event
	agentEvent()
}

// Events is the table of stored names.
var Events = event.Table(
	event.Of[Joined](1, "agent.joined"),
	event.Of[Issued](1, "agent.certificate.issued"),
	event.Of[Used](1, "agent.certificate.used"),
	event.Of[SessionOpened](1, "agent.session.opened"),
	event.Of[Revoked](1, "agent.revoked"),
)

// Joined says that an agent presented a join token and was given a certificate, which replaces those it had. With Keeps, those
// of its other role stay: a machine in rescue goes back to its installed OS.
type Joined struct {
	Agent       id.Agent     `json:"agentId"`
	Role        Role         `json:"role"`
	Tenant      id.Tenant    `json:"tenantId"`
	Site        id.Site      `json:"siteId"`
	Node        id.Node      `json:"nodeId,omitzero"`
	JoinToken   id.JoinToken `json:"joinTokenId"`
	Claims      Claims       `json:"claims,omitzero"`
	Name        string       `json:"name,omitempty"`
	Version     string       `json:"version,omitempty"`
	Certificate Certificate  `json:"certificate"`
	Keeps       bool         `json:"keeps,omitempty"`
}

// Issued says that a certificate was renewed. The one before is good until the new one is used.
type Issued struct {
	Agent       id.Agent    `json:"agentId"`
	Node        id.Node     `json:"nodeId,omitzero"`
	Certificate Certificate `json:"certificate"`
}

// Used says that a renewed certificate was used for the first time. The one before it no longer authenticates.
type Used struct {
	Agent       id.Agent `json:"agentId"`
	Node        id.Node  `json:"nodeId,omitzero"`
	Fingerprint string   `json:"fingerprint"`
}

// SessionOpened says that an agent runs, as another role or in another boot than before.
type SessionOpened struct {
	Agent       id.Agent  `json:"agentId"`
	Node        id.Node   `json:"nodeId,omitzero"`
	Role        Role      `json:"role"`
	BootID      string    `json:"bootId"`
	Version     string    `json:"version,omitempty"`
	Fingerprint string    `json:"fingerprint"` // of the certificate it was opened with
	At          time.Time `json:"at"`
}

// Revoked says that no certificate of the agent authenticates any more.
type Revoked struct {
	Agent  id.Agent  `json:"agentId"`
	Node   id.Node   `json:"nodeId,omitzero"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// EventType is the stored name.
func (Joined) EventType() string { return "agent.joined" }

// EventType is the stored name.
func (Issued) EventType() string { return "agent.certificate.issued" }

// EventType is the stored name.
func (Used) EventType() string { return "agent.certificate.used" }

// EventType is the stored name.
func (SessionOpened) EventType() string { return "agent.session.opened" }

// EventType is the stored name.
func (Revoked) EventType() string { return "agent.revoked" }

func (Joined) agentEvent()        {}
func (Issued) agentEvent()        {}
func (Used) agentEvent()          {}
func (SessionOpened) agentEvent() {}
func (Revoked) agentEvent()       {}

// Command is any verb against an agent.
type Command interface{ agentCommand() }

type (
	// Join gives the agent its first certificate, or one in place of those it has.
	Join struct{ Facts Joined }
	// Renew gives the agent another certificate, asked for with a present one.
	Renew struct {
		With        string // fingerprint of the certificate that asks
		Certificate Certificate
		Now         time.Time
	}
	// OpenSession says that one boot of the agent runs. The same boot and role again change nothing.
	OpenSession struct {
		Fingerprint string
		Role        Role
		BootID      string
		Version     string
		Now         time.Time
	}
	// Use says that a certificate was used. Only the first use of a renewed one changes anything.
	Use struct {
		Fingerprint string
		Now         time.Time
	}
	// Revoke takes all certificates away. An agent that never joined, or has none, changes nothing.
	Revoke struct {
		Reason string
		Now    time.Time
	}
)

func (Join) agentCommand()        {}
func (Renew) agentCommand()       {}
func (OpenSession) agentCommand() {}
func (Use) agentCommand()         {}
func (Revoke) agentCommand()      {}
