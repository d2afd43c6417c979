package principal

import (
	"fmt"
	"slices"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// Command is any verb against a principal.
type Command interface{ principalCommand() }

type (
	// Create makes a principal.
	Create struct{ Facts Created }
	// Disable stops all its tokens. Disabling twice changes nothing.
	Disable struct{}
	// Enable undoes Disable. Enabling twice changes nothing.
	Enable struct{}
	// IssueToken adds a token by its hash.
	IssueToken struct{ Token Token }
	// RevokeToken ends a token. Revoking an unknown one is NOT_FOUND.
	RevokeToken struct{ Token id.Token }
	// Bind grants actions at a scope.
	Bind struct{ Binding Binding }
	// Unbind takes a binding away. An unknown one is NOT_FOUND.
	Unbind struct{ Binding id.Binding }
)

func (Create) principalCommand()      {}
func (Disable) principalCommand()     {}
func (Enable) principalCommand()      {}
func (IssueToken) principalCommand()  {}
func (RevokeToken) principalCommand() {}
func (Bind) principalCommand()        {}
func (Unbind) principalCommand()      {}

// Decider is the aggregate.
var Decider = event.Decider[State, Command, Event]{Decide: Decide, Evolve: Evolve}

// The most of each that one principal may hold: a principal is a small aggregate.
const (
	MaxTokens   = 100
	MaxBindings = 200
)

// Decide applies one verb.
func Decide(s State, c Command) ([]Event, error) {
	if create, ok := c.(Create); ok {
		return decideCreate(s, create)
	}
	if !s.Exists() {
		return nil, fault.New(fault.NotFound, "there is no such principal")
	}
	switch c := c.(type) {
	case Disable:
		if s.Disabled {
			return nil, nil
		}
		return []Event{Disabled{Principal: s.ID}}, nil
	case Enable:
		if !s.Disabled {
			return nil, nil
		}
		return []Event{Enabled{Principal: s.ID}}, nil
	case IssueToken:
		if len(s.Tokens) >= MaxTokens {
			return nil, fault.New(fault.InvalidState, "a principal holds at most %d tokens", MaxTokens).
				WithRemedy("revoke tokens that are no longer used")
		}
		return []Event{TokenIssued{Principal: s.ID, Token: c.Token}}, nil
	case RevokeToken:
		if _, ok := s.Tokens[c.Token]; !ok {
			return nil, fault.New(fault.NotFound, "the principal has no token %s", c.Token)
		}
		return []Event{TokenRevoked{Principal: s.ID, Token: c.Token}}, nil
	case Bind:
		return decideBind(s, c)
	case Unbind:
		if _, ok := s.Bindings[c.Binding]; !ok {
			return nil, fault.New(fault.NotFound, "the principal has no binding %s", c.Binding)
		}
		return []Event{Unbound{Principal: s.ID, Binding: c.Binding}}, nil
	default:
		return nil, fmt.Errorf("principal.Decide does not know %T", c)
	}
}

func decideCreate(s State, c Create) ([]Event, error) {
	switch {
	case s.Exists():
		return nil, fault.New(fault.Conflict, "principal %s exists already", s.ID)
	case !slices.Contains(Kinds, c.Facts.Kind):
		return nil, fault.Invalid(fault.Issue{Path: "body.kind", Message: "one of person, service"})
	}
	return []Event{c.Facts}, nil
}

func decideBind(s State, c Bind) ([]Event, error) {
	var issues []fault.Issue
	if len(c.Binding.Actions) == 0 {
		issues = append(issues, fault.Issue{Path: "body.actions", Message: "at least one action"})
	}
	for i, p := range c.Binding.Actions {
		if !p.Valid() {
			issues = append(issues, fault.Issue{
				Path:    fmt.Sprintf("body.actions[%d]", i),
				Message: "an action such as compute:nodes:read, or a prefix such as compute:nodes:*",
			})
		}
	}
	if !slices.Contains(ScopeKinds, c.Binding.Scope.Kind) {
		issues = append(issues, fault.Issue{Path: "body.scope.kind", Message: "one of tenant, site, pool, node"})
	}
	switch {
	case len(issues) > 0:
		return nil, fault.Invalid(issues...)
	case len(s.Bindings) >= MaxBindings:
		return nil, fault.New(fault.InvalidState, "a principal holds at most %d bindings", MaxBindings).
			WithRemedy("bind at a wider scope, or remove bindings that are no longer used")
	}
	return []Event{Bound{Principal: s.ID, Binding: c.Binding}}, nil
}
