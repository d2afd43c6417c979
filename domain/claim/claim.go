// Package claim makes a value unique: a BMC address within its site, a MAC address everywhere.
//
// Each value has a stream of its own, named by a hash of the value, so that two who want the same value collide on one
// append and exactly one wins. See address.go and mac.go for what counts as the same value.
package claim

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// Category is the first part of a claim's stream name.
const Category = "claim"

// Kind is what is claimed.
type Kind string

// The kinds.
const (
	BMCAddress Kind = "bmc"
	MACAddress Kind = "mac"
)

// namespace separates the names of claims from those of anything else (RFC 9562, section 5.5).
var namespace = uuid.MustParse("6f2a5a52-4c0b-5d8e-9d0f-3b1c7a7f6e11")

// Key is one unique value.
type Key struct {
	Kind  Kind   `json:"kind"`
	Scope string `json:"scope,omitempty"` // the site of a BMC address: sites reuse private networks
	Value string `json:"value"`           // normalised
}

// String is the key for people.
func (k Key) String() string {
	if k.Scope == "" {
		return string(k.Kind) + ":" + k.Value
	}
	return string(k.Kind) + ":" + k.Scope + ":" + k.Value
}

// Stream names the key's stream.
func (k Key) Stream() event.Stream {
	return event.StreamOf(Category, uuid.NewSHA1(namespace, []byte(k.String())).String())
}

// State is who holds the value now; a zero Holder is nobody.
type State struct {
	Key    Key       `json:"key"`
	Tenant id.Tenant `json:"tenantId,omitzero"` // of the holder
	Holder id.Node   `json:"holder,omitzero"`
}

// Event is any event of a claim's stream.
//
//sumtype:decl
type Event interface {
	event.Event
	claimEvent()
}

// Events is the table of stored names.
var Events = event.Table(
	event.Of[Claimed](1, "claim.claimed"),
	event.Of[Released](1, "claim.released"),
)

// Claimed says that a node holds the value from now on.
type Claimed struct {
	Key    Key       `json:"key"`
	Tenant id.Tenant `json:"tenantId"`
	Holder id.Node   `json:"nodeId"`
}

// Released says that nobody holds the value any more.
type Released struct {
	Key    Key     `json:"key"`
	Holder id.Node `json:"nodeId"` // who held it
	Reason string  `json:"reason"`
}

// EventType is the stored name.
func (Claimed) EventType() string { return "claim.claimed" }

// EventType is the stored name.
func (Released) EventType() string { return "claim.released" }

func (Claimed) claimEvent()  {}
func (Released) claimEvent() {}

// Command is any verb against a claim.
type Command interface{ claimCommand() }

type (
	// Take claims the value for Holder. Taking what one holds already changes nothing.
	Take struct {
		Key    Key
		Tenant id.Tenant
		Holder id.Node
	}
	// Release gives the value up. Releasing what Holder does not hold changes nothing.
	Release struct {
		Key    Key
		Holder id.Node
		Reason string
	}
)

func (Take) claimCommand()    {}
func (Release) claimCommand() {}

// Decider is the aggregate.
var Decider = event.Decider[State, Command, Event]{Decide: Decide, Evolve: Evolve}

// Decide refuses a value that another node holds with CONFLICT, naming the holder.
func Decide(s State, c Command) ([]Event, error) {
	switch c := c.(type) {
	case Take:
		switch {
		case s.Holder == c.Holder:
			return nil, nil
		case !id.IsZero(s.Holder):
			return nil, taken(c.Key, s.Holder)
		}
		return []Event{Claimed(c)}, nil
	case Release:
		if s.Holder != c.Holder {
			return nil, nil
		}
		return []Event{Released(c)}, nil
	default:
		return nil, fmt.Errorf("claim.Decide does not know %T", c)
	}
}

func taken(k Key, holder id.Node) error {
	what := "the BMC address"
	if k.Kind == MACAddress {
		what = "the MAC address"
	}
	return fault.New(fault.Conflict, "%s %s belongs to %s", what, k.Value, holder).
		WithDetail("holder", holder.String()).WithDetail("kind", string(k.Kind)).WithDetail("value", k.Value).
		WithRemedy("use another address, or retire the node that holds it")
}

// Evolve folds one event.
func Evolve(s State, e Event) State {
	switch e := e.(type) {
	case Claimed:
		return State(e)
	case Released:
		return State{Key: e.Key}
	default:
		panic(fmt.Sprintf("claim.Evolve does not know %T", e))
	}
}
