// Package image is one version of an OS image in a tenant's catalog: where it is, its digest, and whose signature vouches for
// it. A version never changes; verify.go checks signatures, publication.go makes the name of a public image unique.
package image

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// Category is the first part of an image's stream name.
const Category = "image"

// StreamOf names the stream of one image.
func StreamOf(i id.Image) event.Stream { return event.StreamOf(Category, i.String()) }

// Of is the id of a tenant's version of an image.
func Of(t id.Tenant, ref Ref) id.Image {
	return id.Of[id.Image](uuid.NewSHA1(uuid.UUID(t.UUIDBytes()), []byte(ref.String())))
}

// Ref names a version of an image, as profiles do: name@version.
type Ref struct{ Name, Version string }

// String is name@version.
func (r Ref) String() string { return r.Name + "@" + r.Version }

// ParseRef reads name@version. The error is INVALID_INPUT at path.
func ParseRef(path, text string) (Ref, error) {
	name, version, _ := strings.Cut(text, "@")
	r := Ref{Name: name, Version: version}
	if !r.valid() {
		return Ref{}, fault.Invalid(fault.Issue{Path: path, Message: "of the form name@version"})
	}
	return r, nil
}

func (r Ref) valid() bool { return word(r.Name) && word(r.Version) }

// word is what names and versions are made of.
func word(s string) bool {
	const most, allowed = 100, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.+"
	return s != "" && len(s) <= most && strings.Trim(s, allowed) == ""
}

// State is the fold of an image's stream.
type State struct {
	Facts
	Withdrawn bool   `json:"withdrawn,omitempty"`
	Reason    string `json:"reason,omitempty"` // of the withdrawal
}

// Exists reports whether the image was registered.
func (s State) Exists() bool { return !id.IsZero(s.Image) }

// Available reports whether the image can be deployed.
func (s State) Available() bool { return s.Exists() && !s.Withdrawn }

// Ref is the image's name@version.
func (f Facts) Ref() Ref { return Ref{Name: f.Name, Version: f.Version} }

// Event is any event of an image's stream.
//
//sumtype:decl
type Event interface {
	event.Event
	imageEvent()
}

// Events is the table of stored names.
var Events = event.Table(
	event.Of[Registered](1, "image.registered"),
	event.Of[Withdrawn](1, "image.withdrawn"),
)

// Registered says what the version is, for good.
type Registered struct{ Facts }

// Facts is what a version is. The signer is the one whose key verified the signature.
type Facts struct {
	Image     id.Image  `json:"imageId"`
	Tenant    id.Tenant `json:"tenantId"`
	Name      string    `json:"name"`
	Version   string    `json:"version"`
	Digest    string    `json:"digest"` // sha256:<hex> of the file as served
	Bytes     int64     `json:"bytes"`  // of the file as served
	Format    string    `json:"format"` // one of Formats
	URL       string    `json:"url"`
	Signature []byte    `json:"signature"`
	Signer    string    `json:"signer"`    // its name among the tenant's signers
	SignerKey string    `json:"signerKey"` // PEM
	Public    bool      `json:"public,omitempty"`
}

// Withdrawn says that the image is not deployed any more. Machines that run it stay.
type Withdrawn struct {
	Reason string `json:"reason,omitempty"`
}

// EventType is the stored name.
func (Registered) EventType() string { return "image.registered" }

// EventType is the stored name.
func (Withdrawn) EventType() string { return "image.withdrawn" }

func (Registered) imageEvent() {}
func (Withdrawn) imageEvent()  {}

// Command is any verb against an image.
type Command interface{ imageCommand() }

type (
	// Register adds a version whose signature was verified. The same facts again change nothing.
	Register struct{ Facts Facts }
	// Withdraw takes it out of use. A second time changes nothing.
	Withdraw struct{ Reason string }
)

func (Register) imageCommand() {}
func (Withdraw) imageCommand() {}

// Decider is the aggregate.
var Decider = event.Decider[State, Command, Event]{Decide: Decide, Evolve: Evolve}

// MaxReason bounds the reason of a withdrawal, in bytes.
const MaxReason = 512

// Decide refuses other facts under a name@version that is taken with CONFLICT, also after a withdrawal.
func Decide(s State, c Command) ([]Event, error) {
	switch c := c.(type) {
	case Register:
		switch {
		case s.Withdrawn:
			return nil, fault.New(fault.Conflict, "image %s was withdrawn", s.Ref()).WithRemedy("register it as another version")
		case s.Exists() && reflect.DeepEqual(s.Facts, c.Facts):
			return nil, nil
		case s.Exists():
			return nil, fault.New(fault.Conflict, "image %s is registered with other facts", s.Ref()).
				WithDetail("imageId", s.Image.String()).WithDetail("digest", s.Digest).
				WithRemedy("a version never changes: register it as another version")
		}
		return []Event{Registered{c.Facts}}, Check(c.Facts)
	case Withdraw:
		switch {
		case !s.Exists():
			return nil, fault.New(fault.NotFound, "there is no such image")
		case s.Withdrawn:
			return nil, nil
		case len(c.Reason) > MaxReason:
			return nil, fault.Invalid(fault.Issue{Path: "body.reason", Message: fmt.Sprintf("at most %d bytes", MaxReason)})
		}
		return []Event{Withdrawn(c)}, nil
	default:
		return nil, fmt.Errorf("image.Decide does not know %T", c)
	}
}

// Evolve folds one event.
func Evolve(s State, e Event) State {
	switch e := e.(type) {
	case Registered:
		return State{Facts: e.Facts}
	case Withdrawn:
		s.Withdrawn, s.Reason = true, e.Reason
		return s
	default:
		panic(fmt.Sprintf("image.Evolve does not know %T", e))
	}
}
