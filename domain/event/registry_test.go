package event_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/event"
)

type opened struct {
	By string `json:"by"`
}

func (opened) EventType() string { return "door.opened" }

// moved is stored under several names, one for each place.
type moved struct {
	To string `json:"to"`
}

func (m moved) EventType() string { return "door.moved." + m.To }

type padded struct {
	Pad string `json:"pad"`
}

func (padded) EventType() string { return "door.padded" }

type unwritable struct{ C chan int }

func (unwritable) EventType() string { return "door.unwritable" }

func registry(t testing.TB) *event.Registry {
	t.Helper()
	r, err := event.NewRegistry(event.Table(
		event.Of[opened](1, "door.opened"), event.Of[moved](1, "door.moved.in", "door.moved.out"),
		event.Of[padded](1, "door.padded"), event.Of[unwritable](1, "door.unwritable")))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRegistryRefusesWrongTables(t *testing.T) {
	keep := func(old json.RawMessage) (json.RawMessage, error) { return old, nil }
	for name, c := range map[string]struct {
		tables [][]event.Spec
		says   []string
	}{
		"twice in one table":  {[][]event.Spec{{event.Of[opened](1, "a"), event.Of[moved](1, "b", "a")}}, []string{"a is"}},
		"twice in two tables": {[][]event.Spec{{event.Of[opened](1, "a")}, {event.Of[moved](1, "a")}}, []string{"a is"}},
		"twice in one row":    {[][]event.Spec{{event.Of[opened](1, "a", "a")}}, []string{"event a is"}},
		"no name":             {[][]event.Spec{{event.Of[opened](1)}}, []string{"needs a name"}},
		"no schema version":   {[][]event.Spec{{event.Of[opened](0, "a")}}, []string{"needs a name and a schema version"}},
		"a gap in upcasts":    {[][]event.Spec{{event.Of[opened](4, "a").From(2, keep)}}, []string{"version 1", "version 3"}},
	} {
		_, err := event.NewRegistry(c.tables...)
		for _, says := range c.says {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v; expected %q", name, err, says)
			}
		}
	}
}

func TestRegistryLists(t *testing.T) {
	r := registry(t)
	want := []string{"door.moved.in", "door.moved.out", "door.opened", "door.padded", "door.unwritable"}
	if got := r.Names(); !slices.Equal(got, want) {
		t.Errorf("names %v", got)
	}
	if r.Schema("door.opened") != 1 || r.Schema("door.none") != 0 {
		t.Error("schema versions are wrong")
	}
}

// An upcast chain brings old data along, step by step; the stored data stays what it was.
func TestUpcasts(t *testing.T) {
	appendLetter := func(letter string) event.Upcast {
		return func(old json.RawMessage) (json.RawMessage, error) {
			var o opened
			if err := json.Unmarshal(old, &o); err != nil {
				return nil, err
			}
			return json.Marshal(opened{By: o.By + letter})
		}
	}
	base := event.Of[opened](3, "door.opened")
	r, err := event.NewRegistry(event.Table(base.From(1, appendLetter("b")).From(2, appendLetter("c"))))
	if err != nil {
		t.Fatal(err)
	}
	for schema, want := range map[int]event.Event{
		1: opened{"abc"}, 2: opened{"ac"}, 3: opened{"a"}, 4: event.Unknown{Type: "door.opened"},
	} {
		if got, err := r.Decode("door.opened", schema, []byte(`{"by":"a"}`)); err != nil || got != want {
			t.Errorf("schema version %d: %v, %v; expected %v", schema, got, err, want)
		}
	}
	if _, err := r.Decode("door.opened", 1, []byte(`[]`)); err == nil || !strings.Contains(err.Error(), "version 1") {
		t.Errorf("a failing upcast: %v", err)
	}
	if _, err := event.NewRegistry(event.Table(base)); err == nil {
		t.Error("From changed the row it was called on")
	}
}

func TestDecode(t *testing.T) {
	r := registry(t)
	for name, c := range map[string]struct {
		stored, data string
		want         event.Event
		wrong        bool
	}{
		"known":            {"door.moved.in", `{"to":"in"}`, moved{"in"}, false},
		"further fields":   {"door.moved.in", `{"to":"in","later":1}`, moved{"in"}, false},
		"unknown":          {"door.closed", `{"to":"in"}`, event.Unknown{Type: "door.closed"}, false},
		"of another name":  {"door.moved.in", `{"to":"out"}`, nil, true},
		"of another shape": {"door.moved.in", `{"to":1}`, nil, true},
		"not JSON":         {"door.opened", `{`, nil, true},
	} {
		got, err := r.Decode(c.stored, 1, []byte(c.data))
		if (err != nil) != c.wrong || got != c.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestSealAndOpen(t *testing.T) {
	r, prev := registry(t), event.Hash{1, 2, 3}
	meta := event.Meta{
		Command: uuid.New(), At: time.Date(2031, 2, 3, 4, 5, 6, 7899, time.FixedZone("far", 3600)), Tenant: "t", Subject: "s",
		Principal: "p", RequestID: "r", CorrelationID: "c", CausationID: "a", TraceParent: "00-1-2-00",
	}
	wires, tip, err := r.SealAll("door-1", 4, prev, meta, []event.Event{opened{"me"}, moved{"out"}})
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range []event.Event{opened{"me"}, moved{"out"}} {
		at := time.Now()
		got, err := r.Open(wires[i], event.Position(10+i), at)
		if err != nil {
			t.Fatal(err)
		}
		written := meta
		written.Command, written.At = uuid.Nil, time.Date(2031, 2, 3, 3, 5, 6, 7000, time.UTC)
		want := event.Recorded{
			ID: meta.EventID("door-1", i), Stream: "door-1", Version: event.Version(5 + i), Position: event.Position(10 + i),
			At: at.UTC(), Event: e, Meta: written, Type: e.EventType(), Schema: 1, Data: wires[i].Data,
			RawMeta: wires[i].Meta, Prev: prev, Hash: wires[i].Hash(),
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("event %d (-want +got):\n%s", i, diff)
		}
		if got.Wire().Hash() != got.Hash {
			t.Errorf("event %d: the hash cannot be taken again", i)
		}
		prev = got.Hash
	}
	if tip != prev {
		t.Errorf("SealAll ends in %v, the last event has %v", tip, prev)
	}
	broken := wires[0]
	broken.Meta = []byte("{")
	if _, err := r.Open(broken, 1, time.Now()); err == nil {
		t.Error("broken metadata was opened")
	}
}

func TestLimits(t *testing.T) {
	r := registry(t)
	pad := func(bytes int) event.Event { return padded{strings.Repeat("x", bytes-len(`{"pad":""}`))} }
	many := slices.Repeat([]event.Event{opened{}}, event.MaxAppendEvents+1)
	for name, c := range map[string]struct {
		stream event.Stream
		events []event.Event
		limit  bool
	}{
		"largest event":     {"door-1", []event.Event{pad(event.MaxEventBytes)}, false},
		"a byte more":       {"door-1", []event.Event{pad(event.MaxEventBytes + 1)}, true},
		"largest append":    {"door-1", many[1:], false},
		"one more":          {"door-1", many, true},
		"none":              {"door-1", nil, true},
		"longest name":      {event.Stream("door-" + strings.Repeat("x", 245)), many[:1], false},
		"a byte longer":     {event.Stream("door-" + strings.Repeat("x", 246)), many[:1], true},
		"no hyphen":         {"door", many[:1], true},
		"no category":       {"-1", many[:1], true},
		"no id":             {"door-", many[:1], true},
		"empty":             {"", many[:1], true},
		"system":            {"$door-1", many[:1], true},
		"control character": {"door-\x00", many[:1], true},
		"delete character":  {"door-\x7f", many[:1], true},
		"not UTF-8":         {"door-\xc3", many[:1], true},
	} {
		_, _, err := r.SealAll(c.stream, 0, event.Hash{}, event.Meta{}, c.events)
		var limit *event.LimitError
		if errors.As(err, &limit) != c.limit || !c.limit && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, e := range []event.Event{unwritable{}, moved{"nowhere"}} {
		if _, _, err := r.SealAll("door-1", 0, event.Hash{}, event.Meta{}, []event.Event{e}); err == nil {
			t.Errorf("%T was sealed", e)
		}
	}
}

// The ids of a command's events follow from it, so that a retry collides; without a command they are fresh and in
// order.
func TestEventID(t *testing.T) {
	m := event.Meta{Command: uuid.New()}
	seen := map[uuid.UUID]bool{}
	for _, s := range []event.Stream{"door-1", "door-2", "door-1/1"} {
		for i := range 12 {
			a := m.EventID(s, i)
			if a != m.EventID(s, i) || a.Version() != 5 || seen[a] {
				t.Errorf("%s event %d has id %v", s, i, a)
			}
			seen[a] = true
		}
	}
	var none event.Meta
	if a, b := none.EventID("door-1", 0), none.EventID("door-1", 0); a.String() >= b.String() || a.Version() != 7 {
		t.Errorf("fresh ids %v, %v", a, b)
	}
}

func TestStreamNames(t *testing.T) {
	s := event.StreamOf("door", "a-b")
	if s != "door-a-b" || s.Category() != "door" || s.ID() != "a-b" {
		t.Errorf("%s: category %q, id %q", s, s.Category(), s.ID())
	}
}

// A count of letters is the smallest aggregate there is.
func TestFold(t *testing.T) {
	letters := event.Decider[int, string, opened]{Initial: 0, Evolve: func(n int, o opened) int { return n + len(o.By) }}
	if got := letters.Fold(letters.Initial, opened{"ab"}, opened{}, opened{"c"}); got != 3 {
		t.Errorf("folded to %d", got)
	}
}
