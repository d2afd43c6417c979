package bootlease

import (
	"fmt"
	"time"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// Category is the first part of the stream name.
const Category = "bootlease"

// StreamOf names the stream of a site's boot lease.
func StreamOf(s id.Site) event.Stream { return event.StreamOf(Category, s.String()) }

// State is the fold of the stream.
type State struct {
	Site     id.Site   `json:"siteId"`
	Tenant   id.Tenant `json:"tenantId"`
	Agent    id.Agent  `json:"agentId"` // that took it last
	Term     int64     `json:"term"`
	TakenAt  time.Time `json:"takenAt"`
	Released bool      `json:"released,omitempty"` // it was given back
	Complete bool      `json:"complete,omitempty"` // the agent has every boot entry of the site
}

// Exists reports whether an agent ever took it.
func (s State) Exists() bool { return s.Term > 0 }

// With reports whether the log has an agent as the holder of a term.
func (s State) With(a id.Agent, term int64) bool {
	return s.Term == term && s.Agent == a && !s.Released && s.Exists()
}

// Event is any event of the stream.
//
//sumtype:decl
type Event interface {
	event.Event
	bootLeaseEvent()
}

// Events is the table of stored names.
var Events = event.Table(
	event.Of[Taken](1, "bootlease.taken"),
	event.Of[Completed](1, "bootlease.completed"),
	event.Of[Released](1, "bootlease.released"),
)

// Taken says that an agent serves network boot from now on. In a new term it begins without any boot entry.
type Taken struct {
	Site   id.Site   `json:"siteId"`
	Tenant id.Tenant `json:"tenantId"`
	Agent  id.Agent  `json:"agentId"`
	Term   int64     `json:"term"`
	At     time.Time `json:"at"`
}

// Completed says that the holder of a term has every boot entry of the site that is still good. Until then it sends no machine
// on to its next boot device.
type Completed struct {
	Site    id.Site `json:"siteId"`
	Term    int64   `json:"term"`
	Entries int     `json:"entries"`           // that were set again
	Missing int     `json:"missing,omitempty"` // that could not be
}

// Released says that the holder stopped on purpose.
type Released struct {
	Site   id.Site   `json:"siteId"`
	Agent  id.Agent  `json:"agentId"`
	Term   int64     `json:"term"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// EventType is the stored name.
func (Taken) EventType() string { return "bootlease.taken" }

// EventType is the stored name.
func (Completed) EventType() string { return "bootlease.completed" }

// EventType is the stored name.
func (Released) EventType() string { return "bootlease.released" }

func (Taken) bootLeaseEvent()     {}
func (Completed) bootLeaseEvent() {}
func (Released) bootLeaseEvent()  {}

// Command is any verb against a boot lease.
type Command interface{ bootLeaseCommand() }

type (
	// Take notes that an agent has the lease. What is older than what is known, or known, changes nothing; another agent in a
	// term that somebody has is CONFLICT.
	Take struct{ Facts Taken }
	// Complete notes that the holder of a term has every boot entry. Of another term it changes nothing.
	Complete struct{ Facts Completed }
	// Release notes that the holder of a term stopped on purpose. Of another term it changes nothing.
	Release struct{ Facts Released }
)

func (Take) bootLeaseCommand()     {}
func (Complete) bootLeaseCommand() {}
func (Release) bootLeaseCommand()  {}

// Decider is the aggregate.
var Decider = event.Decider[State, Command, Event]{Decide: Decide, Evolve: Evolve}

// Decide applies one verb. No events and no error: there was nothing to change.
func Decide(s State, c Command) ([]Event, error) {
	switch c := c.(type) {
	case Take:
		return take(s, c.Facts)
	case Complete:
		if c.Facts.Term != s.Term || s.Released || s.Complete {
			return nil, nil
		}
		return []Event{c.Facts}, nil
	case Release:
		if !s.With(c.Facts.Agent, c.Facts.Term) {
			return nil, nil
		}
		return []Event{c.Facts}, nil
	default:
		return nil, fmt.Errorf("bootlease.Decide does not know %T", c)
	}
}

func take(s State, facts Taken) ([]Event, error) {
	switch {
	case facts.Term < 1 || id.IsZero(facts.Agent):
		return nil, fault.Invalid(fault.Issue{Path: "term", Message: "above zero, of an agent"})
	case facts.Term < s.Term || s.With(facts.Agent, facts.Term):
		return nil, nil
	case facts.Term == s.Term && facts.Agent != s.Agent:
		return nil, fault.New(fault.Conflict, "another agent has the boot lease of %s in term %d", facts.Site, facts.Term)
	}
	return []Event{facts}, nil
}

// Evolve folds one event.
func Evolve(s State, e Event) State {
	switch e := e.(type) {
	case Taken:
		return State{
			Site: e.Site, Tenant: e.Tenant, Agent: e.Agent, Term: e.Term, TakenAt: e.At,
			Complete: s.Complete && s.Term == e.Term, // the same agent goes on with what it has
		}
	case Completed:
		s.Complete = true
		return s
	case Released:
		s.Released = true
		return s
	default:
		panic(fmt.Sprintf("bootlease.Evolve does not know %T", e))
	}
}
