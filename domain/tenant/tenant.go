// Package tenant is an owner of machines. What belongs to one tenant does not exist for another.
package tenant

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"reflect"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// Category is the first part of a tenant's stream name.
const Category = "tenant"

// StreamOf names the stream of one tenant.
func StreamOf(t id.Tenant) event.Stream { return event.StreamOf(Category, t.String()) }

// Root is the tenant of whoever runs the installation. It exists from the first start, and a binding on it reaches every
// tenant.
var Root = id.Of[id.Tenant](uuid.MustParse("00000000-0000-7000-8000-000000000001"))

// Signer is a key whose signature on an image this tenant trusts.
type Signer struct {
	Name      string `json:"name"`
	PublicKey string `json:"publicKey"` // PEM, PKIX: Ed25519, or ECDSA on P-256
}

// Policy is what a tenant trusts.
type Policy struct {
	ImageSigners []Signer `json:"imageSigners,omitempty"`
}

// State is the fold of a tenant's stream.
type State struct {
	ID     id.Tenant         `json:"id"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	Policy Policy            `json:"policy"`
}

// Exists reports whether the tenant was created.
func (s State) Exists() bool { return !id.IsZero(s.ID) }

// Event is any event of a tenant's stream.
//
//sumtype:decl
type Event interface {
	event.Event
	tenantEvent()
}

// Events is the table of stored names.
var Events = event.Table(
	event.Of[Created](1, "tenant.created"),
	event.Of[PolicyChanged](1, "tenant.policy.changed"),
)

// Created says that a tenant exists.
type Created struct {
	Tenant id.Tenant         `json:"tenantId"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	Policy Policy            `json:"policy"`
}

// PolicyChanged holds the whole new policy.
type PolicyChanged struct {
	Policy Policy `json:"policy"`
}

// EventType is the stored name.
func (Created) EventType() string { return "tenant.created" }

// EventType is the stored name.
func (PolicyChanged) EventType() string { return "tenant.policy.changed" }

func (Created) tenantEvent()       {}
func (PolicyChanged) tenantEvent() {}

// Command is any verb against a tenant.
type Command interface{ tenantCommand() }

type (
	// Create makes a tenant.
	Create struct{ Facts Created }
	// ChangePolicy replaces the policy.
	ChangePolicy struct{ Policy Policy }
)

func (Create) tenantCommand()       {}
func (ChangePolicy) tenantCommand() {}

// Decider is the aggregate.
var Decider = event.Decider[State, Command, Event]{Decide: Decide, Evolve: Evolve}

// Decide refuses signers that are not public keys with INVALID_INPUT.
func Decide(s State, c Command) ([]Event, error) {
	switch c := c.(type) {
	case Create:
		if s.Exists() {
			return nil, fault.New(fault.Conflict, "tenant %s exists already", s.ID)
		}
		return []Event{c.Facts}, check(c.Facts.Policy)
	case ChangePolicy:
		switch {
		case !s.Exists():
			return nil, fault.New(fault.NotFound, "there is no such tenant")
		case reflect.DeepEqual(s.Policy, c.Policy):
			return nil, nil
		}
		return []Event{PolicyChanged(c)}, check(c.Policy)
	default:
		return nil, fmt.Errorf("tenant.Decide does not know %T", c)
	}
}

func check(p Policy) error {
	var issues []fault.Issue
	seen := map[string]bool{}
	for i, s := range p.ImageSigners {
		path := fmt.Sprintf("body.policy.imageSigners[%d]", i)
		if s.Name == "" || seen[s.Name] {
			issues = append(issues, fault.Issue{Path: path + ".name", Message: "a name of its own"})
		}
		seen[s.Name] = true
		if !publicKey(s.PublicKey) {
			issues = append(issues, fault.Issue{
				Path: path + ".publicKey", Message: "a PEM public key, Ed25519 or ECDSA on P-256",
			})
		}
	}
	if len(issues) > 0 {
		return fault.Invalid(issues...)
	}
	return nil
}

func publicKey(text string) bool {
	block, rest := pem.Decode([]byte(text))
	if block == nil || len(rest) > 0 {
		return false
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return false
	}
	switch key := key.(type) {
	case ed25519.PublicKey:
		return true
	case *ecdsa.PublicKey:
		return key.Curve == elliptic.P256()
	default:
		return false
	}
}

// Evolve folds one event.
func Evolve(s State, e Event) State {
	switch e := e.(type) {
	case Created:
		return State{ID: e.Tenant, Name: e.Name, Labels: e.Labels, Policy: e.Policy}
	case PolicyChanged:
		s.Policy = e.Policy
		return s
	default:
		panic(fmt.Sprintf("tenant.Evolve does not know %T", e))
	}
}
