package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/google/uuid"
)

// Upcast rewrites stored data of one schema version to the next, so that only the current Go struct exists.
type Upcast func(json.RawMessage) (json.RawMessage, error)

// Spec is one row of a table: a Go type, its schema version and the names under which it is stored.
type Spec struct {
	Names   []string
	Schema  int
	decode  func(json.RawMessage) (Event, error)
	upcasts map[int]Upcast
}

// Of makes the row of E. The schema version rises only when the meaning of a field changes and an upcast can bring old
// data along; a new optional field needs none, a new meaning is better told as a new event.
func Of[E Event](schema int, names ...string) Spec {
	return Spec{Names: names, Schema: schema, upcasts: map[int]Upcast{}, decode: func(data json.RawMessage) (Event, error) {
		var e E
		err := json.Unmarshal(data, &e)
		return e, err
	}}
}

// From adds the upcast of data stored as schema version v to v+1.
func (s Spec) From(v int, up Upcast) Spec {
	casts := map[int]Upcast{v: up}
	for k, f := range s.upcasts {
		casts[k] = f
	}
	s.upcasts = casts
	return s
}

// Zero is an event of the row without any fact in it, for tests that walk a table.
func (s Spec) Zero() (Event, error) { return s.decode(json.RawMessage("{}")) }

// Table is the rows of one aggregate, in the order written.
func Table(rows ...Spec) []Spec { return rows }

// Registry finds a row by the stored name.
type Registry struct{ rows map[string]Spec }

// NewRegistry joins the tables of all aggregates. A name that stands twice, a row without names, a schema version below 1
// and a missing upcast are errors.
func NewRegistry(tables ...[]Spec) (*Registry, error) {
	r := &Registry{rows: map[string]Spec{}}
	var wrong []error
	for _, table := range tables {
		for _, row := range table {
			wrong = append(wrong, r.add(row)...)
		}
	}
	return r, errors.Join(wrong...)
}

func (r *Registry) add(row Spec) (wrong []error) {
	if len(row.Names) == 0 || row.Schema < 1 {
		return []error{fmt.Errorf("event %v: a row needs a name and a schema version of 1 or more", row.Names)}
	}
	for v := 1; v < row.Schema; v++ {
		if row.upcasts[v] == nil {
			wrong = append(wrong, fmt.Errorf("event %s: no upcast from schema version %d", row.Names[0], v))
		}
	}
	for _, name := range row.Names {
		if _, taken := r.rows[name]; taken {
			wrong = append(wrong, fmt.Errorf("event %s is registered twice", name))
		}
		r.rows[name] = row
	}
	return wrong
}

// Names lists every stored name, sorted.
func (r *Registry) Names() []string {
	names := make([]string, 0, len(r.rows))
	for name := range r.rows {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// Schema is the current schema version of a stored name; zero where the name is not known.
func (r *Registry) Schema(name string) int { return r.rows[name].Schema }

// MaxEventBytes bounds the data of one event; MaxAppendEvents bounds one append.
const (
	MaxEventBytes   = 256 << 10
	MaxAppendEvents = 200
)

// storedMeta is Meta as it is written, with the link of the chain.
type storedMeta struct {
	Meta
	Prev Hash `json:"prev,omitzero"`
}

// Seal makes the stored form of e as version v of stream s, linked to the event with hash prev.
func (r *Registry) Seal(s Stream, v Version, eventID uuid.UUID, prev Hash, meta Meta, e Event) (Wire, error) {
	row, known := r.rows[e.EventType()]
	if !known {
		return Wire{}, fmt.Errorf("event %s (%T) is in no table", e.EventType(), e)
	}
	data, err := json.Marshal(e)
	if err != nil {
		return Wire{}, fmt.Errorf("event %s: %w", e.EventType(), err)
	}
	if len(data) > MaxEventBytes {
		return Wire{}, &LimitError{fmt.Sprintf("event %s holds %d bytes; the most is %d", e.EventType(), len(data), MaxEventBytes)}
	}
	meta.At = meta.At.UTC().Truncate(time.Microsecond)
	written, err := json.Marshal(storedMeta{Meta: meta, Prev: prev})
	if err != nil {
		return Wire{}, fmt.Errorf("event %s: metadata: %w", e.EventType(), err)
	}
	return Wire{ID: eventID, Stream: s, Version: v, Type: e.EventType(), Schema: row.Schema, Data: data, Meta: written}, nil
}

// SealAll seals one append: events in order after version expect, the first linked to prev. It returns the stored forms
// and the hash of the last.
func (r *Registry) SealAll(s Stream, expect Version, prev Hash, meta Meta, events []Event) ([]Wire, Hash, error) {
	if err := checkAppend(s, events); err != nil {
		return nil, Hash{}, err
	}
	wires := make([]Wire, len(events))
	for i, e := range events {
		w, err := r.Seal(s, expect+Version(i)+1, meta.EventID(s, i), prev, meta, e)
		if err != nil {
			return nil, Hash{}, err
		}
		wires[i], prev = w, w.Hash()
	}
	return wires, prev, nil
}

// Open reads the stored form. A type or schema version this program does not know is Unknown, not an error; data that
// does not fit its type is.
func (r *Registry) Open(w Wire, p Position, at time.Time) (Recorded, error) {
	var meta storedMeta
	if err := json.Unmarshal(w.Meta, &meta); err != nil {
		return Recorded{}, fmt.Errorf("%s version %d: metadata: %w", w.Stream, w.Version, err)
	}
	e, err := r.Decode(w.Type, w.Schema, w.Data)
	if err != nil {
		return Recorded{}, fmt.Errorf("%s version %d: %w", w.Stream, w.Version, err)
	}
	return Recorded{
		ID: w.ID, Stream: w.Stream, Version: w.Version, Position: p, At: at.UTC(), Event: e, Meta: meta.Meta,
		Type: w.Type, Schema: w.Schema, Data: w.Data, RawMeta: w.Meta, Prev: meta.Prev, Hash: w.Hash(),
	}, nil
}

// Decode brings stored data to the current struct of its name.
func (r *Registry) Decode(name string, schema int, data json.RawMessage) (Event, error) {
	if schema < 1 {
		return nil, fmt.Errorf("event %s: a schema version is 1 or more, not %d", name, schema)
	}
	row, known := r.rows[name]
	if !known || schema > row.Schema {
		return Unknown{Type: name}, nil
	}
	for v := schema; v < row.Schema; v++ {
		up, err := row.upcasts[v](data)
		if err != nil {
			return nil, fmt.Errorf("event %s: upcast from schema version %d: %w", name, v, err)
		}
		data = up
	}
	e, err := row.decode(data)
	if err != nil {
		return nil, fmt.Errorf("event %s: %w", name, err)
	}
	if e.EventType() != name {
		return nil, fmt.Errorf("event %s holds the data of %s", name, e.EventType())
	}
	return e, nil
}
