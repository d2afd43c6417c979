// Package site is a place with a network of BMCs.
package site

import (
	"fmt"
	"net/netip"
	"reflect"
	"strconv"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// Category is the first part of a site's stream name.
const Category = "site"

// StreamOf names the stream of one site.
func StreamOf(s id.Site) event.Stream { return event.StreamOf(Category, s.String()) }

// Policy is what a site allows.
type Policy struct {
	// BMCNetworks are the networks, in CIDR notation, in which BMC addresses of this site must lie. None: any address.
	BMCNetworks []string `json:"bmcNetworks,omitempty"`
}

// Allows reports whether a BMC may be at host. With networks given, a DNS name is not allowed: it could lead anywhere.
func (p Policy) Allows(host string) bool {
	if len(p.BMCNetworks) == 0 {
		return true
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	for _, n := range p.BMCNetworks {
		if prefix, err := netip.ParsePrefix(n); err == nil && prefix.Contains(addr.WithZone("")) {
			return true
		}
	}
	return false
}

// State is the fold of a site's stream.
type State struct {
	ID     id.Site           `json:"id"`
	Tenant id.Tenant         `json:"tenantId"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	Policy Policy            `json:"policy"`
}

// Exists reports whether the site was created.
func (s State) Exists() bool { return !id.IsZero(s.ID) }

// Event is any event of a site's stream.
//
//sumtype:decl
type Event interface {
	event.Event
	siteEvent()
}

// Events is the table of stored names.
var Events = event.Table(
	event.Of[Created](1, "site.created"),
	event.Of[PolicyChanged](1, "site.policy.changed"),
)

// Created says that a site exists.
type Created struct {
	Site   id.Site           `json:"siteId"`
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
func (Created) EventType() string { return "site.created" }

// EventType is the stored name.
func (PolicyChanged) EventType() string { return "site.policy.changed" }

func (Created) siteEvent()       {}
func (PolicyChanged) siteEvent() {}

// Command is any verb against a site.
type Command interface{ siteCommand() }

type (
	// Create makes a site.
	Create struct{ Facts Created }
	// ChangePolicy replaces the policy.
	ChangePolicy struct{ Policy Policy }
)

func (Create) siteCommand()       {}
func (ChangePolicy) siteCommand() {}

// Decider is the aggregate.
var Decider = event.Decider[State, Command, Event]{Decide: Decide, Evolve: Evolve}

// Decide refuses networks that are not CIDR prefixes with INVALID_INPUT.
func Decide(s State, c Command) ([]Event, error) {
	switch c := c.(type) {
	case Create:
		if s.Exists() {
			return nil, fault.New(fault.Conflict, "site %s exists already", s.ID)
		}
		return []Event{c.Facts}, check(c.Facts.Policy)
	case ChangePolicy:
		switch {
		case !s.Exists():
			return nil, fault.New(fault.NotFound, "there is no such site")
		case reflect.DeepEqual(s.Policy, c.Policy):
			return nil, nil
		}
		return []Event{PolicyChanged(c)}, check(c.Policy)
	default:
		return nil, fmt.Errorf("site.Decide does not know %T", c)
	}
}

func check(p Policy) error {
	var issues []fault.Issue
	for i, n := range p.BMCNetworks {
		if _, err := netip.ParsePrefix(n); err != nil {
			path := "body.policy.bmcNetworks[" + strconv.Itoa(i) + "]"
			issues = append(issues, fault.Issue{Path: path, Message: "a network in CIDR notation, such as 10.0.0.0/24"})
		}
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
		return State{ID: e.Site, Tenant: e.Tenant, Name: e.Name, Labels: e.Labels, Policy: e.Policy}
	case PolicyChanged:
		s.Policy = e.Policy
		return s
	default:
		panic(fmt.Sprintf("site.Evolve does not know %T", e))
	}
}
