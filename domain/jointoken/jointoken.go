// Package jointoken is a token with which agents join, as an aggregate: what it lets join, what machine it expects, and who
// has used it. The token itself is nowhere: its hash is.
package jointoken

import (
	"slices"
	"time"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
)

// Category is the first part of a join token's stream name.
const Category = "token"

// StreamOf names the stream of one join token.
func StreamOf(t id.JoinToken) event.Stream { return event.StreamOf(Category, t.String()) }

// Role is what a token lets join.
type Role string

// The roles.
const (
	RoleNode        Role = "node"        // a machine that runs an OS already: a new node
	RoleSite        Role = "site"        // an agent of a site
	RoleProvisioned Role = "provisioned" // the installed OS of a node
	RoleDiscovery   Role = "discovery"   // the ramdisk of a node
)

// RoleInfo is one row of Roles.
type RoleInfo struct {
	Role    Role
	JoinsAs string // the agent's role
	ToNode  bool   // it leads to a node that exists
}

// Roles lists every role.
var Roles = []RoleInfo{
	{RoleNode, "node", false},
	{RoleSite, "site", false},
	{RoleProvisioned, "node", true},
	{RoleDiscovery, "ramdisk", true},
}

// Info gives the row of a role.
func Info(r Role) (RoleInfo, bool) {
	i := slices.IndexFunc(Roles, func(row RoleInfo) bool { return row.Role == r })
	if i < 0 {
		return RoleInfo{}, false
	}
	return Roles[i], true
}

// Claims is the hardware that an agent says it runs on.
type Claims struct {
	MACs        []string
	ProductUUID string
	Serial      string
	GPUUUIDs    []string
}

// Expect is the machine that a token is for. What is empty is not looked at.
type Expect struct {
	MACs        []string `json:"macs,omitempty"` // one of the machine's must be among them
	ProductUUID string   `json:"productUuid,omitempty"`
	Serial      string   `json:"serial,omitempty"`
	GPUUUID     string   `json:"gpuUuid,omitempty"` // one of the machine's
}

// Use is one agent that joined with the token.
type Use struct {
	KeyHash string   `json:"keyHash"` // SHA-256 of the agent's public key, lower-case hex
	Agent   id.Agent `json:"agentId"`
	Node    id.Node  `json:"nodeId,omitzero"`
}

// State is the fold of a join token's stream.
type State struct {
	Minted
	Uses    []Use  `json:"uses,omitempty"`
	Revoked bool   `json:"revoked,omitempty"`
	Why     string `json:"why,omitempty"` // it was revoked
}

// Exists reports whether the token was minted.
func (s State) Exists() bool { return !id.IsZero(s.Token) }

// UsedBy finds the use by a key.
func (s State) UsedBy(keyHash string) (Use, bool) {
	i := slices.IndexFunc(s.Uses, func(u Use) bool { return u.KeyHash == keyHash })
	if i < 0 {
		return Use{}, false
	}
	return s.Uses[i], true
}

// Live reports whether another agent may join with the token.
func (s State) Live(now time.Time) bool {
	return s.Exists() && !s.Revoked && !now.After(s.ExpiresAt) && len(s.Uses) < s.MaxUses
}

// Event is any event of a join token's stream.
//
//sumtype:decl
type Event interface {
	event.Event
	joinTokenEvent()
}

// Events is the table of stored names.
var Events = event.Table(
	event.Of[Minted](1, "token.minted"),
	event.Of[Used](1, "token.used"),
	event.Of[Revoked](1, "token.revoked"),
)

// Minted says that a token exists.
type Minted struct {
	Token     id.JoinToken      `json:"tokenId"`
	Hash      string            `json:"hash"` // SHA-256 of the token, lower-case hex
	Role      Role              `json:"role"`
	Tenant    id.Tenant         `json:"tenantId"`
	Site      id.Site           `json:"siteId"`
	Pool      id.Pool           `json:"poolId,omitzero"`     // role node: what the new node is put into
	Node      id.Node           `json:"nodeId,omitzero"`     // discovery, provisioned: the node that it leads back to
	Workflow  id.Workflow       `json:"workflowId,omitzero"` // that minted it; the token is good while it is the node's active one
	Expect    Expect            `json:"expect,omitzero"`
	ExpiresAt time.Time         `json:"expiresAt"`
	MaxUses   int               `json:"maxUses"`
	Labels    map[string]string `json:"labels,omitempty"` // of the new node
}

// Used says that an agent joined with the token.
type Used struct{ Use }

// Revoked says that nobody joins with the token any more.
type Revoked struct {
	Reason string `json:"reason,omitempty"`
}

// EventType is the stored name.
func (Minted) EventType() string { return "token.minted" }

// EventType is the stored name.
func (Used) EventType() string { return "token.used" }

// EventType is the stored name.
func (Revoked) EventType() string { return "token.revoked" }

func (Minted) joinTokenEvent()  {}
func (Used) joinTokenEvent()    {}
func (Revoked) joinTokenEvent() {}

// Command is any verb against a join token.
type Command interface{ joinTokenCommand() }

type (
	// Mint makes a token.
	Mint struct {
		Facts Minted
		Now   time.Time
	}
	// Redeem joins one agent. The same key again changes nothing, however often the token was used since.
	Redeem struct {
		Use    Use
		As     string // the agent's role
		Claims Claims
		Now    time.Time
	}
	// Revoke ends the token. One that is over changes nothing.
	Revoke struct{ Reason string }
)

func (Mint) joinTokenCommand()   {}
func (Redeem) joinTokenCommand() {}
func (Revoke) joinTokenCommand() {}
