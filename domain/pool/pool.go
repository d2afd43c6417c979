// Package pool is a group of nodes of one site and tenant under one policy.
package pool

import (
	"fmt"
	"slices"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// Category is the first part of a pool's stream name.
const Category = "pool"

// StreamOf names the stream of one pool.
func StreamOf(p id.Pool) event.Stream { return event.StreamOf(Category, p.String()) }

// Agent says whether the pool's machines run the agent.
type Agent string

// The agent policies.
const (
	AgentRequired Agent = "required"
	AgentNone     Agent = "none" // out-of-band profiles only
)

// Agents lists every agent policy.
var Agents = []Agent{AgentRequired, AgentNone}

// AllowUnverifiedRelease is the only policy that lets a node of an agentless pool reach ready without an attested wipe.
const AllowUnverifiedRelease = "allow-unverified-release"

// Policy is what a pool decides for its nodes.
type Policy struct {
	Agent             Agent  `json:"agent"`
	HardwareProfile   string `json:"hardwareProfile,omitempty"`   // which drivers its nodes use
	UnverifiedRelease string `json:"unverifiedRelease,omitempty"` // empty, or AllowUnverifiedRelease by name
}

// State is the fold of a pool's stream.
type State struct {
	ID     id.Pool           `json:"id"`
	Tenant id.Tenant         `json:"tenantId"`
	Site   id.Site           `json:"siteId"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	Policy Policy            `json:"policy"`
}

// Exists reports whether the pool was created.
func (s State) Exists() bool { return !id.IsZero(s.ID) }

// Event is any event of a pool's stream.
//
//sumtype:decl
type Event interface {
	event.Event
	poolEvent()
}

// Events is the table of stored names.
var Events = event.Table(
	event.Of[Created](1, "pool.created"),
	event.Of[PolicyChanged](1, "pool.policy.changed"),
)

// Created says that a pool exists.
type Created struct {
	Pool   id.Pool           `json:"poolId"`
	Tenant id.Tenant         `json:"tenantId"`
	Site   id.Site           `json:"siteId"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	Policy Policy            `json:"policy"`
}

// PolicyChanged holds the whole new policy.
type PolicyChanged struct {
	Policy Policy `json:"policy"`
}

// EventType is the stored name.
func (Created) EventType() string { return "pool.created" }

// EventType is the stored name.
func (PolicyChanged) EventType() string { return "pool.policy.changed" }

func (Created) poolEvent()       {}
func (PolicyChanged) poolEvent() {}

// Command is any verb against a pool.
type Command interface{ poolCommand() }

type (
	// Create makes a pool.
	Create struct{ Facts Created }
	// ChangePolicy replaces the policy.
	ChangePolicy struct{ Policy Policy }
)

func (Create) poolCommand()       {}
func (ChangePolicy) poolCommand() {}

// Decider is the aggregate.
var Decider = event.Decider[State, Command, Event]{Decide: Decide, Evolve: Evolve}

// Decide refuses a policy that contradicts itself with INVALID_INPUT.
func Decide(s State, c Command) ([]Event, error) {
	switch c := c.(type) {
	case Create:
		if s.Exists() {
			return nil, fault.New(fault.Conflict, "pool %s exists already", s.ID)
		}
		return []Event{c.Facts}, check(c.Facts.Policy)
	case ChangePolicy:
		switch {
		case !s.Exists():
			return nil, fault.New(fault.NotFound, "there is no such pool")
		case s.Policy == c.Policy:
			return nil, nil
		}
		return []Event{PolicyChanged(c)}, check(c.Policy)
	default:
		return nil, fmt.Errorf("pool.Decide does not know %T", c)
	}
}

func check(p Policy) error {
	var issues []fault.Issue
	if !slices.Contains(Agents, p.Agent) {
		issues = append(issues, fault.Issue{Path: "body.policy.agent", Message: "one of required, none"})
	}
	switch {
	case p.UnverifiedRelease == "":
	case p.UnverifiedRelease != AllowUnverifiedRelease:
		issues = append(issues, fault.Issue{Path: "body.policy.unverifiedRelease", Message: "empty, or " + AllowUnverifiedRelease})
	case p.Agent != AgentNone:
		issues = append(issues, fault.Issue{Path: "body.policy.unverifiedRelease", Message: "only for a pool with agent none"})
	}
	if len(issues) > 0 {
		return fault.Invalid(issues...)
	}
	return nil
}

// Evolve folds one event.
func Evolve(s State, e Event) State {
	switch e := e.(type) {
	case Created:
		return State{ID: e.Pool, Tenant: e.Tenant, Site: e.Site, Name: e.Name, Labels: e.Labels, Policy: e.Policy}
	case PolicyChanged:
		s.Policy = e.Policy
		return s
	default:
		panic(fmt.Sprintf("pool.Evolve does not know %T", e))
	}
}
