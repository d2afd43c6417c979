package commands

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/profile"
)

// Actor is whoever applies a verb.
type Actor struct {
	Principal id.Principal
	Bindings  []principal.Binding
	System    bool     // the control plane itself: its process managers, its start and its gateway
	Agent     id.Agent // for whom the gateway asks
}

// Resource is what a verb is decided on, with everything that a binding can reach it through. Where an id is zero, the
// resource is not in such a thing.
type Resource struct {
	Kind   ResourceKind
	Tenant id.Tenant
	Site   id.Site
	Pool   id.Pool
	Node   id.Node
}

// ResourceKind is what is being decided on; a NOT_FOUND speaks of it.
type ResourceKind string

// The kinds of resource.
const (
	OnNode      ResourceKind = "node"
	OnPool      ResourceKind = "pool"
	OnSite      ResourceKind = "site"
	OnTenant    ResourceKind = "tenant"
	OnPrincipal ResourceKind = "principal"
)

// Authorizer decides on a resource as it was just loaded.
type Authorizer interface {
	// Allow returns nil where actor may do action on the resource; NOT_FOUND where it may not even read it, for then it
	// does not exist for the actor; FORBIDDEN, with the action in the details, otherwise.
	Allow(actor Actor, action principal.Action, on Resource) error
}

// Secrets is the sealed store of values that must not be in an event.
type Secrets interface {
	// Put stores a value under an id. The same id again replaces the value.
	Put(ctx context.Context, secretID uuid.UUID, value []byte) (node.SecretRef, error)
	// Delete forgets a value. One that is not there is no error.
	Delete(ctx context.Context, ref node.SecretRef) error
	// Mint derives the bearer token that belongs to a command: the same command always gives the same token, so that a
	// retry after a crash answers with the token of the first try without anyone having stored it.
	Mint(command uuid.UUID) string
}

// Attestor judges the signature of a result.
type Attestor interface {
	// Verify returns nil where the agent's key signed result as the answer to c, carried out in the boot of that id, with a
	// certificate that was valid then. The certificates are all that the agent ever had. Any error: the result is refused.
	Verify(c agentcommand.State, bootID string, result []byte, a agentcommand.Attestation, certificates []agent.Certificate,
		now time.Time) error
}

// Preflight looks before a machine is touched.
type Preflight interface {
	// Check tells what the steps of a profile, as they run on a node, would miss. INVALID_INPUT with an issue for each that would
	// fail; any other error: it could not be looked at.
	Check(ctx context.Context, n node.State, doc profile.Document, steps []profile.Resolved) error
}

// Clock tells the time at which a verb is decided.
type Clock func() time.Time

// Call is who asks for a verb, and how it may be asked again.
type Call struct {
	Actor Actor
	// Command identifies the request: every id it makes is derived from it, so that the same Command again finds what the
	// first try did. It is a UUIDv7.
	Command uuid.UUID
	// IfMatch is the version that the caller has seen; nil: whatever the version is.
	IfMatch *event.Version

	RequestID     string
	CorrelationID string
	CausationID   string
	TraceParent   string
}

// Outcome is what a verb did.
type Outcome[S any] struct {
	State    S
	Version  event.Version
	Position event.Position // of the newest event of the aggregate: a read that waits for it sees this outcome
	At       time.Time      // of the newest event
}
