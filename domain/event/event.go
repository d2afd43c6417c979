// Package event is the vocabulary of the log: what an event is, how it is stored and found again, and the Store port.
//
// Several adapters implement Store; adapters/eventstore/storetest is the suite that each of them passes.
package event

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Event is a fact. EventType is its public, written name, such as node.enrolled: never a Go type's name.
type Event interface{ EventType() string }

// Stream names one aggregate's events: <category>-<id>.
type Stream string

// StreamOf names the stream of an aggregate.
func StreamOf(category, id string) Stream { return Stream(category + "-" + id) }

// Category is the part before the first hyphen.
func (s Stream) Category() string {
	category, _, _ := strings.Cut(string(s), "-")
	return category
}

// ID is the part after the first hyphen.
func (s Stream) ID() string {
	_, id, _ := strings.Cut(string(s), "-")
	return id
}

// Version counts the events of one stream, dense from 1. Zero is a stream without events.
type Version uint64

// Position orders all events of a log. Positions rise in commit order; they are not dense in every store. Zero is before
// the first event.
type Position uint64

// String is the position in decimal.
func (p Position) String() string { return strconv.FormatUint(uint64(p), 10) }

// Meta says who asked, when it was decided, and what led to it.
type Meta struct {
	// Command is the id from which the ids of the appended events are derived (see EventID), so that a retry of the same
	// command collides instead of appending twice. Nil: every append gets fresh ids.
	Command uuid.UUID `json:"-"`

	At            time.Time `json:"at"`                      // when it was decided, by the decider's clock
	Tenant        string    `json:"tenant,omitempty"`        // whose aggregate it is; decides who may see the event
	Subject       string    `json:"subject,omitempty"`       // what it is about, such as node/node_01k…
	Principal     string    `json:"principal,omitempty"`     // who asked
	RequestID     string    `json:"requestId,omitempty"`     // the HTTP request, if one asked
	CorrelationID string    `json:"correlationId,omitempty"` // shared by everything one request led to
	CausationID   string    `json:"causationId,omitempty"`   // the event or request that led to this one
	TraceParent   string    `json:"traceparent,omitempty"`   // W3C Trace Context
}

// EventID is the id of the index-th event that the command of m appends to s: a UUIDv5 of the command, or a fresh UUIDv7
// where m has no command.
func (m Meta) EventID(s Stream, index int) uuid.UUID {
	if m.Command == uuid.Nil {
		return uuid.Must(uuid.NewV7())
	}
	return uuid.NewSHA1(m.Command, []byte(string(s)+"/"+strconv.Itoa(index)))
}

// Recorded is an event as the log holds it.
type Recorded struct {
	ID       uuid.UUID
	Stream   Stream
	Version  Version
	Position Position
	At       time.Time // when the log took it, by the log store's clock
	Event    Event     // Unknown where this program does not know the type
	Meta     Meta
	Type     string          // the public name
	Schema   int             // the version of Data's shape, from 1
	Data     json.RawMessage // as stored, before any upcast
	RawMeta  json.RawMessage // the metadata as stored: what the hash is over
	Prev     Hash            // of the event before it in the stream; zero for the first
	Hash     Hash            // of this event
}

// Wire is the stored form: what a copy of the log needs to take the hash again.
func (r Recorded) Wire() Wire {
	return Wire{ID: r.ID, Stream: r.Stream, Version: r.Version, Type: r.Type, Schema: r.Schema, Data: r.Data, Meta: r.RawMeta}
}

// Unknown stands for an event whose type or schema version this program does not know: one written by a newer program.
// Projections pass over it; an aggregate that meets one refuses to decide.
type Unknown struct{ Type string }

// EventType is the name as stored.
func (u Unknown) EventType() string { return u.Type }
