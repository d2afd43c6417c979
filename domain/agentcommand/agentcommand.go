// Package agentcommand is one order to one agent as an aggregate: what is asked, of whom, until when, and what came of it.
//
// Its stream is named from the key under which it was asked for, so that whoever asks again finds it instead of sending
// it twice.
package agentcommand

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
)

// Category is the first part of an agent command's stream name.
const Category = "agentcommand"

// StreamOf names the stream of one agent command.
func StreamOf(c id.AgentCommand) event.Stream { return event.StreamOf(Category, c.String()) }

// IDOf is the id that belongs to a key, such as wf:<workflow>:<step>#<attempt>:<name>.
func IDOf(key string) id.AgentCommand {
	return id.Of[id.AgentCommand](uuid.NewSHA1(keys, []byte(key)))
}

var keys = uuid.MustParse("9d0c1f0e-5a3c-5c59-8f0e-7f6a5b1f2c11")

// Role is which agent carries an agent command out, and as what an agent has joined.
type Role string

// The roles.
const (
	RoleSite    Role = "site"
	RoleRamdisk Role = "ramdisk"
	RoleNode    Role = "node"
)

// Roles lists every role.
var Roles = []Role{RoleSite, RoleRamdisk, RoleNode}

// Status is where an agent command stands.
type Status string

// The statuses: pending → dispatched → acked → running → one of the settled.
const (
	Pending    Status = "pending"
	Dispatched Status = "dispatched"
	Acked      Status = "acked"
	Running    Status = "running"
	Succeeded  Status = "succeeded"
	Failed     Status = "failed"
	Rejected   Status = "rejected" // the agent would not do it
	Expired    Status = "expired"  // its deadline passed, or the boot it was handed to is over
	Cancelled  Status = "cancelled"
)

// Settled reports whether nothing more will come.
func (s Status) Settled() bool {
	switch s {
	case Succeeded, Failed, Rejected, Expired, Cancelled:
		return true
	case Pending, Dispatched, Acked, Running:
		return false
	default:
		return false
	}
}

// Requested says what is asked, and of whom: the first event of each agent command.
type Requested struct {
	AgentCommand id.AgentCommand `json:"agentCommandId"`
	Key          string          `json:"key"`
	Kind         KindName        `json:"kind"`
	Role         Role            `json:"role"`
	Node         id.Node         `json:"nodeId"` // the machine that it is about
	Tenant       id.Tenant       `json:"tenantId"`
	Site         id.Site         `json:"siteId"`
	Workflow     id.Workflow     `json:"workflowId,omitzero"`
	Step         string          `json:"stepId,omitempty"`
	Attempt      int             `json:"attempt"`
	NotAfter     time.Time       `json:"notAfter"`
	Payload      json.RawMessage `json:"payload"` // no secrets: references
	Secrets      []string        `json:"secretRefs,omitempty"`
}

// Attestation is an agent's signature over a result; see SigningInput.
type Attestation struct {
	Certificate string    `json:"certificate"` // SHA-256 of the certificate whose key signed, lower-case hex
	Signature   []byte    `json:"signature"`   // Ed25519, RFC 8032
	At          time.Time `json:"at"`          // by the agent's clock
}

// State is the fold of an agent command's stream.
type State struct {
	Requested
	Status      Status          `json:"status"`
	Agent       id.Agent        `json:"agentId,omitzero"` // it was handed to
	BootID      string          `json:"bootId,omitempty"` // the boot of that agent
	Result      json.RawMessage `json:"result,omitempty"`
	Reason      string          `json:"reason,omitempty"` // why not
	Code        string          `json:"code,omitempty"`   // an error code of the agent, where it gave one
	Details     json.RawMessage `json:"details,omitempty"`
	Attestation *Attestation    `json:"attestation,omitempty"`
	Attested    bool            `json:"attested,omitempty"` // the signature was checked
	Fetches     int             `json:"fetches,omitempty"`  // of secrets
}

// Exists reports whether the agent command was asked for.
func (s State) Exists() bool { return s.Key != "" }
