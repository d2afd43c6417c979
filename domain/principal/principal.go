// Package principal is whoever calls the API, a person or a program: its tokens (as hashes) and its bindings, each of
// which grants actions at a tenant, pool, site or node.
package principal

import (
	"maps"
	"time"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
)

// Category is the first part of a principal's stream name.
const Category = "principal"

// StreamOf names the stream of one principal.
func StreamOf(p id.Principal) event.Stream { return event.StreamOf(Category, p.String()) }

// Kind tells people from programs.
type Kind string

// The kinds.
const (
	Person  Kind = "person"
	Service Kind = "service"
)

// Kinds lists every kind.
var Kinds = []Kind{Person, Service}

// ScopeKind is what a binding reaches.
type ScopeKind string

// The scopes, widest first.
const (
	ScopeTenant ScopeKind = "tenant" // and everything in it; the root tenant reaches every tenant
	ScopeSite   ScopeKind = "site"   // and the nodes at it
	ScopePool   ScopeKind = "pool"   // and the nodes in it
	ScopeNode   ScopeKind = "node"
)

// ScopeKinds lists every scope.
var ScopeKinds = []ScopeKind{ScopeTenant, ScopeSite, ScopePool, ScopeNode}

// Scope is where a binding grants its actions.
type Scope struct {
	Kind ScopeKind `json:"kind"`
	ID   string    `json:"id"` // of the tenant, site, pool or node
}

// Binding grants actions at a scope.
type Binding struct {
	ID      id.Binding `json:"id"`
	Actions []Pattern  `json:"actions"`
	Scope   Scope      `json:"scope"`
}

// Token is a bearer token, known by its hash.
type Token struct {
	ID        id.Token   `json:"id"`
	Hash      string     `json:"hash"` // SHA-256 of the token, lower-case hex; the token has 256 random bits
	Note      string     `json:"note,omitempty"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
}

// State is the fold of a principal's stream.
type State struct {
	ID       id.Principal           `json:"id"`
	Tenant   id.Tenant              `json:"tenantId"`
	Name     string                 `json:"name"`
	Kind     Kind                   `json:"kind"`
	Disabled bool                   `json:"disabled,omitempty"`
	Tokens   map[id.Token]Token     `json:"tokens,omitempty"`
	Bindings map[id.Binding]Binding `json:"bindings,omitempty"`
}

// Exists reports whether the principal was created.
func (s State) Exists() bool { return !id.IsZero(s.ID) }

// Event is any event of a principal's stream.
//
//sumtype:decl
type Event interface {
	event.Event
	principalEvent()
}

// Events is the table of stored names.
var Events = event.Table(
	event.Of[Created](1, "principal.created"),
	event.Of[Disabled](1, "principal.disabled"),
	event.Of[Enabled](1, "principal.enabled"),
	event.Of[TokenIssued](1, "principal.token.issued"),
	event.Of[TokenRevoked](1, "principal.token.revoked"),
	event.Of[Bound](1, "principal.bound"),
	event.Of[Unbound](1, "principal.unbound"),
)

// Created says that a principal exists.
type Created struct {
	Principal id.Principal `json:"principalId"`
	Tenant    id.Tenant    `json:"tenantId"`
	Name      string       `json:"name"`
	Kind      Kind         `json:"kind"`
}

// Disabled says that none of the principal's tokens work until it is enabled.
type Disabled struct {
	Principal id.Principal `json:"principalId"`
}

// Enabled undoes Disabled.
type Enabled struct {
	Principal id.Principal `json:"principalId"`
}

// TokenIssued says that a token works from now on.
type TokenIssued struct {
	Principal id.Principal `json:"principalId"`
	Token     Token        `json:"token"`
}

// TokenRevoked says that a token no longer works.
type TokenRevoked struct {
	Principal id.Principal `json:"principalId"`
	Token     id.Token     `json:"tokenId"`
}

// Bound says that actions are granted at a scope.
type Bound struct {
	Principal id.Principal `json:"principalId"`
	Binding   Binding      `json:"binding"`
}

// Unbound says that a binding is gone.
type Unbound struct {
	Principal id.Principal `json:"principalId"`
	Binding   id.Binding   `json:"bindingId"`
}

// EventType is the stored name.
func (Created) EventType() string { return "principal.created" }

// EventType is the stored name.
func (Disabled) EventType() string { return "principal.disabled" }

// EventType is the stored name.
func (Enabled) EventType() string { return "principal.enabled" }

// EventType is the stored name.
func (TokenIssued) EventType() string { return "principal.token.issued" }

// EventType is the stored name.
func (TokenRevoked) EventType() string { return "principal.token.revoked" }

// EventType is the stored name.
func (Bound) EventType() string { return "principal.bound" }

// EventType is the stored name.
func (Unbound) EventType() string { return "principal.unbound" }

func (Created) principalEvent()      {}
func (Disabled) principalEvent()     {}
func (Enabled) principalEvent()      {}
func (TokenIssued) principalEvent()  {}
func (TokenRevoked) principalEvent() {}
func (Bound) principalEvent()        {}
func (Unbound) principalEvent()      {}

// Evolve folds one event.
func Evolve(s State, e Event) State {
	switch e := e.(type) {
	case Created:
		return State{ID: e.Principal, Tenant: e.Tenant, Name: e.Name, Kind: e.Kind}
	case Disabled:
		s.Disabled = true
	case Enabled:
		s.Disabled = false
	case TokenIssued:
		s.Tokens = with(s.Tokens, e.Token.ID, e.Token)
	case TokenRevoked:
		s.Tokens = without(s.Tokens, e.Token)
	case Bound:
		s.Bindings = with(s.Bindings, e.Binding.ID, e.Binding)
	case Unbound:
		s.Bindings = without(s.Bindings, e.Binding)
	default:
		panic("principal.Evolve does not know " + e.EventType())
	}
	return s
}

// with and without copy: folded states are shared by whoever reads them.
func with[K comparable, V any](m map[K]V, k K, v V) map[K]V {
	c := make(map[K]V, len(m)+1)
	maps.Copy(c, m)
	c[k] = v
	return c
}

func without[K comparable, V any](m map[K]V, k K) map[K]V {
	c := maps.Clone(m)
	delete(c, k)
	return c
}
