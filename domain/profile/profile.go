package profile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// Category is the first part of a profile's stream name.
const Category = "profile"

// Name is a version of a profile as people write it: id@version.
func Name(profileID string, version int) string { return profileID + "@" + strconv.Itoa(version) }

// StreamOf names the stream of one version of a tenant's profile.
func StreamOf(t id.Tenant, profileID string, version int) event.Stream {
	return event.StreamOf(Category, t.String()+"/"+Name(profileID, version))
}

// PublicStreamOf names the stream that leads from a public version to the tenant that stored it. One tenant at a time holds
// it, so that what others find under a name is never in doubt.
func PublicStreamOf(profileID string, version int) event.Stream {
	return event.StreamOf(Category, "public/"+Name(profileID, version))
}

// State is the fold of one version's stream, or of the stream that leads to a public one.
type State struct {
	Tenant   id.Tenant `json:"tenantId,omitzero"`
	Document Document  `json:"profile,omitzero"`
	Digest   string    `json:"digest,omitempty"`
	Used     bool      `json:"used,omitempty"` // immutable from then on

	Publisher id.Tenant `json:"publisher,omitzero"` // of a public version's name; zero: it is free
}

// Exists reports whether the version was stored.
func (s State) Exists() bool { return s.Digest != "" }

// Digest is the SHA-256 of a document, whatever way it was written.
func Digest(doc Document) (string, error) {
	text, err := json.Marshal(doc)
	if err != nil {
		return "", fmt.Errorf("profile %s: %w", Name(doc.ID, doc.Version), err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// Event is any event of a profile's stream.
//
//sumtype:decl
type Event interface {
	event.Event
	profileEvent()
}

// Events is the table of stored names.
var Events = event.Table(
	event.Of[Created](1, "profile.created"),
	event.Of[Replaced](1, "profile.replaced"),
	event.Of[Used](1, "profile.used"),
	event.Of[Published](1, "profile.published"),
	event.Of[Withdrawn](1, "profile.withdrawn"),
)

type (
	// Created says that a tenant stored a version.
	Created struct {
		Tenant   id.Tenant `json:"tenantId"`
		Document Document  `json:"profile"`
		Digest   string    `json:"digest"`
	}
	// Replaced says that a version that no workflow had used was stored anew.
	Replaced struct {
		Tenant   id.Tenant `json:"tenantId"`
		Document Document  `json:"profile"`
		Digest   string    `json:"digest"`
	}
	// Used says that a first workflow runs the version, which never changes from then on.
	Used struct {
		Tenant   id.Tenant   `json:"tenantId"`
		Profile  string      `json:"profileId"`
		Version  int         `json:"profileVersion"`
		Workflow id.Workflow `json:"workflowId"`
	}
	// Published says whose version others find under a name.
	Published struct {
		Tenant  id.Tenant `json:"tenantId"`
		Profile string    `json:"profileId"`
		Version int       `json:"profileVersion"`
	}
	// Withdrawn says that the name is free again.
	Withdrawn struct {
		Tenant  id.Tenant `json:"tenantId"`
		Profile string    `json:"profileId"`
		Version int       `json:"profileVersion"`
	}
)

// EventType is the stored name.
func (Created) EventType() string { return "profile.created" }

// EventType is the stored name.
func (Replaced) EventType() string { return "profile.replaced" }

// EventType is the stored name.
func (Used) EventType() string { return "profile.used" }

// EventType is the stored name.
func (Published) EventType() string { return "profile.published" }

// EventType is the stored name.
func (Withdrawn) EventType() string { return "profile.withdrawn" }

func (Created) profileEvent()   {}
func (Replaced) profileEvent()  {}
func (Used) profileEvent()      {}
func (Published) profileEvent() {}
func (Withdrawn) profileEvent() {}

// Command is any verb against a profile.
type Command interface{ profileCommand() }

type (
	// Create stores a version; one that is stored and not used yet is replaced.
	Create struct {
		Tenant   id.Tenant
		Document Document
	}
	// Use makes a version immutable.
	Use struct{ Workflow id.Workflow }
	// Publish takes the public name of a version for a tenant. Instead is a holder that has lost it.
	Publish struct {
		Tenant  id.Tenant
		Profile string
		Version int
		Instead id.Tenant
	}
	// Withdraw gives it back.
	Withdraw struct {
		Tenant  id.Tenant
		Profile string
		Version int
	}
)

func (Create) profileCommand()   {}
func (Use) profileCommand()      {}
func (Publish) profileCommand()  {}
func (Withdraw) profileCommand() {}

// Decider is the aggregate.
var Decider = event.Decider[State, Command, Event]{Decide: Decide, Evolve: Evolve}

// Decide applies one verb. No events and no error: there was nothing to change. Errors: INVALID_CONFIG, NOT_FOUND, CONFLICT.
func Decide(s State, c Command) ([]Event, error) {
	switch c := c.(type) {
	case Create:
		return create(s, c)
	case Use:
		switch {
		case !s.Exists():
			return nil, fault.New(fault.NotFound, "there is no such profile")
		case s.Used:
			return nil, nil
		}
		return []Event{Used{Tenant: s.Tenant, Profile: s.Document.ID, Version: s.Document.Version, Workflow: c.Workflow}}, nil
	case Publish:
		switch s.Publisher {
		case c.Tenant:
			return nil, nil
		case id.Tenant{}, c.Instead:
			return []Event{Published{Tenant: c.Tenant, Profile: c.Profile, Version: c.Version}}, nil
		}
		return nil, fault.New(fault.Conflict, "a public profile %s exists already", Name(c.Profile, c.Version)).
			WithRemedy("choose another id or version, or store it without public")
	case Withdraw:
		if s.Publisher != c.Tenant {
			return nil, nil
		}
		return []Event{Withdrawn(c)}, nil
	default:
		return nil, fmt.Errorf("profile.Decide does not know %T", c)
	}
}

func create(s State, c Create) ([]Event, error) {
	if err := Refuse(Check(c.Document)...); err != nil {
		return nil, err
	}
	digest, err := Digest(c.Document)
	switch {
	case err != nil:
		return nil, fault.Wrap(err, fault.InvalidConfig, "the profile can't be written as JSON")
	case !s.Exists():
		return []Event{Created{Tenant: c.Tenant, Document: c.Document, Digest: digest}}, nil
	case s.Digest == digest:
		return nil, nil
	case s.Used:
		return nil, fault.New(fault.Conflict, "version %d of profile %s is in use and never changes", s.Document.Version, s.Document.ID).
			WithRemedy("store it as the next version")
	}
	return []Event{Replaced{Tenant: c.Tenant, Document: c.Document, Digest: digest}}, nil
}

// Evolve folds one event.
func Evolve(s State, e Event) State {
	switch e := e.(type) {
	case Created:
		return State{Tenant: e.Tenant, Document: e.Document, Digest: e.Digest}
	case Replaced:
		s.Document, s.Digest = e.Document, e.Digest
	case Used:
		s.Used = true
	case Published:
		s.Publisher = e.Tenant
	case Withdrawn:
		s.Publisher = id.Tenant{}
	default:
		panic(fmt.Sprintf("profile.Evolve does not know %T", e))
	}
	return s
}
