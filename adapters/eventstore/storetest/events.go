package storetest

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/better-compute/metal/domain/event"
)

// noted is a small event.
type noted struct {
	N int `json:"n"`
}

// EventType is the public name.
func (noted) EventType() string { return "storetest.noted" }

// padded is an event of any size.
type padded struct {
	Pad string `json:"pad"`
}

// EventType is the public name.
func (padded) EventType() string { return "storetest.padded" }

// paddedTo is a padded event whose JSON holds exactly size bytes.
func paddedTo(size int) padded {
	return padded{Pad: strings.Repeat("x", size-len(`{"pad":""}`))}
}

// rare is an event that few streams hold.
type rare struct {
	N int `json:"n"`
}

// EventType is the public name.
func (rare) EventType() string { return "storetest.rare" }

// renamed is noted as a later program has it: schema version 2, with a string in place of the number.
type renamed struct {
	Text string `json:"text"`
}

// EventType is the public name, which never changes.
func (renamed) EventType() string { return "storetest.noted" }

// stranger is in no registry.
type stranger struct{}

// EventType is a name nobody knows.
func (stranger) EventType() string { return "storetest.stranger" }

const (
	notedType = "storetest.noted"
	rareType  = "storetest.rare"
)

// Registry knows the suite's own events.
func Registry(t testing.TB) *event.Registry {
	return registry(t,
		event.Of[noted](1, notedType), event.Of[padded](1, "storetest.padded"), event.Of[rare](1, rareType))
}

// laterRegistry is that of a later program, to which noted is at schema version 2.
func laterRegistry(t testing.TB) *event.Registry {
	return registry(t, event.Of[renamed](2, notedType).From(1, func(old json.RawMessage) (json.RawMessage, error) {
		var n noted
		if err := json.Unmarshal(old, &n); err != nil {
			return nil, err
		}
		return json.Marshal(renamed{Text: strconv.Itoa(n.N)})
	}))
}

func registry(t testing.TB, rows ...event.Spec) *event.Registry {
	t.Helper()
	r, err := event.NewRegistry(event.Table(rows...))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// notes makes small events numbered from first to last.
func notes(first, last int) []event.Event {
	var events []event.Event
	for n := first; n <= last; n++ {
		events = append(events, noted{N: n})
	}
	return events
}
