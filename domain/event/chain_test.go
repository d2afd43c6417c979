package event_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/better-compute/metal/domain/event"
)

func wires() *rapid.Generator[event.Wire] {
	// Few letters, so that values of neighbouring fields often differ only in where one ends and the next begins.
	text := rapid.StringOfN(rapid.SampledFrom([]rune("ab")), 0, 3, -1)
	return rapid.Custom(func(t *rapid.T) event.Wire {
		return event.Wire{
			ID:      uuid.UUID{rapid.ByteMax(1).Draw(t, "id")},
			Stream:  event.Stream(text.Draw(t, "stream")),
			Version: event.Version(rapid.IntRange(0, 1).Draw(t, "version")),
			Type:    text.Draw(t, "type"),
			Schema:  rapid.IntRange(0, 1).Draw(t, "schema"),
			Data:    []byte(text.Draw(t, "data")),
			Meta:    []byte(text.Draw(t, "meta")),
		}
	})
}

// Two events have one hash only if they are one: no byte can move from a field to its neighbour.
func TestHashTellsEventsApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := wires().Draw(t, "a"), wires().Draw(t, "b")
		if same := reflect.DeepEqual(a, b); same != (a.Hash() == b.Hash()) {
			t.Fatalf("%+v and %+v: hashes %v and %v", a, b, a.Hash(), b.Hash())
		}
		shifted := a
		if n := len(a.Data); n > 0 {
			shifted.Data, shifted.Meta = a.Data[:n-1], append([]byte{a.Data[n-1]}, a.Meta...)
			if shifted.Hash() == a.Hash() {
				t.Fatal("a byte moved from data to metadata unnoticed")
			}
		}
	})
}

// The canonical form is for ever: logs hold hashes over it.
func TestHashNeverChanges(t *testing.T) {
	w := event.Wire{
		ID: uuid.MustParse("0190b5a4-7c1e-7b32-8a5e-2f6d1c3b4a59"), Stream: "door-1", Version: 7,
		Type: "door.opened", Schema: 2,
		Data: []byte(`{"by":"me"}`), Meta: []byte(`{"at":"2031-02-03T04:05:06Z"}`),
	}
	const want = "55b950f39a2d11135aedaba6f2e3a190c86953a47f595727e67794ce36f28bf0"
	if got := w.Hash().String(); got != want {
		t.Errorf("hash %s, not %s", got, want)
	}
}

func TestHashText(t *testing.T) {
	h := event.Wire{}.Hash()
	for _, want := range []event.Hash{{}, h} {
		text, err := want.MarshalText()
		var got event.Hash
		if err2 := got.UnmarshalText(text); err != nil || err2 != nil || got != want {
			t.Errorf("%q reads as %v, %v, %v", text, got, err, err2)
		}
	}
	for _, wrong := range []string{"0", "zz", h.String()[2:], h.String() + "00"} {
		if err := new(event.Hash).UnmarshalText([]byte(wrong)); err == nil {
			t.Errorf("%q was read as a hash", wrong)
		}
	}
}

// stream seals n events and opens them again, as a store would.
func stream(t *rapid.T, r *event.Registry, n int) []event.Recorded {
	var events []event.Recorded
	var prev event.Hash
	for v := range n {
		sealed, tip, err := r.SealAll("door-1", event.Version(v), prev, event.Meta{Command: uuid.New()},
			[]event.Event{opened{rapid.StringN(0, 4, -1).Draw(t, "by")}})
		if err != nil {
			t.Fatal(err)
		}
		prev = tip
		events = append(events, open(t, r, sealed[0]))
	}
	return events
}

func open(t *rapid.T, r *event.Registry, w event.Wire) event.Recorded {
	e, err := r.Open(w, 1, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Whatever is done to the past of a stream shows: at the event after it, or in the hash of the last, which whoever
// exported it before can compare.
func TestVerifyChainFindsTampering(t *testing.T) {
	r := registry(t)
	rapid.Check(t, func(t *rapid.T) {
		events := stream(t, r, rapid.IntRange(1, 8).Draw(t, "events"))
		tip, err := event.VerifyChain("door-1", events)
		if err != nil || tip != events[len(events)-1].Hash {
			t.Fatalf("an untouched stream: %v, %v", tip, err)
		}
		at := rapid.IntRange(0, len(events)-1).Draw(t, "at")
		tampered := tamper(t, r, events, at)
		got, err := event.VerifyChain("door-1", tampered)
		var broken *event.BrokenChainError
		switch {
		case err == nil && got == tip:
			t.Fatalf("tampering with version %d went unnoticed", at+1)
		case err == nil && len(tampered) > at+1:
			t.Fatalf("tampering with version %d was noticed only by the last hash", at+1)
		case err != nil && (!errors.As(err, &broken) || broken.Stream != "door-1"):
			t.Fatalf("tampering is %v", err)
		}
	})
}

// tamper changes, removes, swaps or inserts at one place, as someone with access to the table could.
func tamper(t *rapid.T, r *event.Registry, events []event.Recorded, at int) []event.Recorded {
	tampered := slices.Clone(events)
	w := tampered[at].Wire()
	switch rapid.SampledFrom([]string{"data", "meta", "id", "remove", "insert"}).Draw(t, "what") {
	case "data":
		w.Data = []byte(`{"by":"somebody else"}`)
	case "meta":
		w.Meta = slices.Concat(w.Meta, []byte(" "))
	case "id":
		w.ID[0] ^= 1
	case "remove":
		return slices.Delete(tampered, at, at+1)
	case "insert":
		return slices.Insert(tampered, at, tampered[at])
	}
	tampered[at] = open(t, r, w)
	return tampered
}

func TestVerifyChainTellsWhere(t *testing.T) {
	r := registry(t)
	rapid.Check(t, func(rt *rapid.T) {
		events := stream(rt, r, 5)
		other := slices.Clone(events)
		other[2].Stream = "door-2"
		for name, c := range map[string]struct {
			events []event.Recorded
			at     event.Version
		}{
			"the first is missing": {events[1:], 1},
			"the third is missing": {slices.Delete(slices.Clone(events), 2, 3), 3},
			"of another stream":    {other, 3},
		} {
			_, err := event.VerifyChain("door-1", c.events)
			var broken *event.BrokenChainError
			if !errors.As(err, &broken) || broken.Version != c.at || broken.Reason == "" {
				rt.Fatalf("%s: %v", name, err)
			}
		}
		if _, err := event.VerifyChain("door-1", nil); err != nil {
			rt.Fatalf("an empty stream: %v", err)
		}
	})
}
