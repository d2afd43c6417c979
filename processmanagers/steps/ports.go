package steps

import (
	"context"
	"encoding/json"
	"time"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
)

// Ports is what steps reach the world through. One that a program left out is nil; a step that needs it fails with
// INVALID_CONFIG.
type Ports struct {
	Commands AgentCommands
	Lookout  Lookout // nil: an agent that says nothing is waited for
	Tokens   Tokens
	Secrets  Secrets
	Images   Images
	Agents   Agents
	Nodes    Nodes
	Config   Config
}

// Config is what the installation is set to.
type Config struct {
	GatewayURL string // that installed agents join through
	CASHA256   string // of the control plane's CA
	Kernel     string // of the ramdisk: a URL, or a name among the boot files of the site's agent
	Initrd     string
	KernelArgs []string
	TokenTTL   time.Duration // what the installed OS has to join, beside the steps before; zero: 2 hours
	Templates  map[string]Template
	AgentURL   string // where the installed OS finds the agent; may be empty
	AgentSHA   string
}

// Template renders user data.
type Template interface {
	Render(v Variables) ([]byte, error)
}

// Variables is what a template may use. JoinToken is a secret.
type Variables struct {
	NodeID, Hostname, JoinToken, GatewayURL, CASHA256, AgentURL, AgentSHA256 string
}

// AgentCommands sends agent commands.
type AgentCommands interface {
	// Find gives the one of a key; a zero state where nobody asked for it.
	Find(ctx context.Context, key string) (agentcommand.State, error)
	// Request finds the one of the same key before it makes one.
	Request(ctx context.Context, r agentcommand.Requested) (agentcommand.State, error)
}

// Lookout finds out about an agent command whose agent says nothing any more.
type Lookout interface {
	// Look asks for another one that changes nothing: nobody waits for it, and an abort need not take it back.
	Look(ctx context.Context, r agentcommand.Requested) (agentcommand.State, error)
	// End takes one back. One that is over stays what it is.
	End(ctx context.Context, c id.AgentCommand, reason string) error
}

// Awaited is a settled agent command.
type Awaited struct {
	AgentCommand id.AgentCommand           `json:"agentCommandId"`
	Result       json.RawMessage           `json:"result,omitempty"`
	Attested     bool                      `json:"attested"`
	BootID       string                    `json:"bootId,omitempty"`
	Attestation  *agentcommand.Attestation `json:"-"`
}

// JoinToken is a wanted join token.
type JoinToken struct {
	Key      string // the same key gives the same token
	Role     string // discovery or provisioned
	Node     node.State
	Workflow id.Workflow
	MACs     []string // expected; any of them
	UUID     string   // expected, where known
	Serial   string
	TTL      time.Duration
}

// Tokens mints single-use join tokens.
type Tokens interface {
	Mint(ctx context.Context, t JoinToken) (tokenID id.JoinToken, token string, err error)
}

// Secrets keeps values out of events, and forgets each some time after until: an agent command that still carries its reference
// fails then. The same key again replaces value and time.
type Secrets interface {
	Put(ctx context.Context, key string, value []byte, until time.Time) (ref node.SecretRef, err error)
}

// Image is a resolved image.
type Image struct {
	ID        id.Image
	Name      string // name@version
	URL       string
	Digest    string
	Format    string
	Bytes     int64
	Signature []byte
	Signer    string // PEM of the public key that verified it
}

// Images finds images: the tenant's own, then public ones.
type Images interface {
	Resolve(ctx context.Context, tenant id.Tenant, ref string) (Image, error)
}

// Agents tells which agents there are.
type Agents interface {
	// OfNode is the newest session of the node's agent; a zero one where none ever was.
	OfNode(ctx context.Context, n id.Node) (Session, error)
	// SiteAgents lists the agents of the site that were heard of lately.
	SiteAgents(ctx context.Context, s id.Site) ([]id.Agent, error)
	// SiteBoots reports whether an agent of the site serves network boot now.
	SiteBoots(ctx context.Context, s id.Site) (bool, error)
	// Down says that a machine is about to be taken down: that boot of its agent does not count as connected, unless it is
	// heard of again.
	Down(ctx context.Context, n id.Node, session Session) error
	// Revoke takes every certificate of the node's agents.
	Revoke(ctx context.Context, n id.Node, reason string) error
}

// Session is what is known of a node's agent.
type Session struct {
	Agent     id.Agent
	Role      agentcommand.Role
	BootID    string
	OpenedAt  time.Time
	Connected bool // heard of lately
	// Silent is how long ago it was heard of last, as far as was written down; zero: it was not, or a moment ago.
	Silent time.Duration
}

// Nodes stores what steps found out about the machine.
type Nodes interface {
	RecordHardware(ctx context.Context, n id.Node, from node.Source, h node.Hardware) error
	AttestWipe(ctx context.Context, n id.Node, w node.Wipe) error
	// ObservePower keeps a power state that was read by the work of a key.
	ObservePower(ctx context.Context, n id.Node, key string, p node.Power) error
	// LearnBMC keeps what a driver found out about the controller. A fingerprint that contradicts the pinned one is an
	// error: the node is held.
	LearnBMC(ctx context.Context, n id.Node, fingerprint string, quirks json.RawMessage, system string) error
}
