package esdb_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/domain/event"
)

// TestRefusedAppend has the server close the stream of an append of many events, which the client sees as EOF.
func TestRefusedAppend(t *testing.T) {
	server, store := start(t)
	add(t, store, "thing-1", 0, done{})

	server.RefuseAppends(2)
	before := server.Appends()
	add(t, store, "thing-1", 1, dones(200)...)
	count(t, store, "thing-1", 201)
	if sent := server.Appends() - before; sent != 3 {
		t.Errorf("sent %d times, not 3", sent)
	}

	server.RefuseAppends(1000)
	meta := command()
	if _, err := store.Append(t.Context(), "thing-1", 201, meta, dones(200)...); !errors.Is(err, event.ErrUnknownOutcome) {
		t.Errorf("an append refused again and again: %v", err)
	}
	server.RefuseAppends(0)
	count(t, store, "thing-1", 201)
	if _, err := store.Append(t.Context(), "thing-1", 201, meta, dones(200)...); err != nil {
		t.Errorf("the same append later: %v", err)
	}
	count(t, store, "thing-1", 401)
}

// TestLostAnswer writes an append and loses its answer: the caller gets the position all the same, and one copy exists.
func TestLostAnswer(t *testing.T) {
	server, store := start(t)
	for i, events := range [][]event.Event{dones(1), dones(5), dones(1)} {
		stream := event.StreamOf("thing", string(rune('a'+i)))
		server.LoseAnswers(1)
		p := add(t, store, stream, 0, events...)
		count(t, store, stream, len(events))
		if head, err := store.Head(t.Context()); err != nil || head != p {
			t.Errorf("append said position %d, the head is %d, %v", p, head, err)
		}
	}
}

// TestLostAnswerAndConflict loses the answer of an append that another then overtakes.
func TestLostAnswerAndConflict(t *testing.T) {
	server, store := start(t)
	add(t, store, "thing-1", 0, dones(2)...)
	server.LoseAnswers(3)
	_, err := store.Append(t.Context(), "thing-1", 1, command(), dones(3)...)
	want := event.ConflictError{Stream: "thing-1", Expected: 1, Actual: 2}
	var conflict *event.ConflictError
	if !errors.As(err, &conflict) || *conflict != want {
		t.Errorf("%v; want %v", err, &want)
	}
}

// TestAppendTooLarge refuses what the server would not take, before sending it.
func TestAppendTooLarge(t *testing.T) {
	server, store := start(t)
	large := make([]event.Event, 5)
	for i := range large {
		large[i] = done{N: i, Pad: strings.Repeat("x", 250<<10)}
	}
	_, err := store.Append(t.Context(), "thing-1", 0, command(), large...)
	var limit *event.LimitError
	if !errors.As(err, &limit) || server.Appends() != 0 {
		t.Errorf("%v, after %d requests", err, server.Appends())
	}
	add(t, store, "thing-1", 0, large[:4]...)
}

// TestStoredForm pins the bytes that the server keeps: other programs read them, and the chain is taken over them.
func TestStoredForm(t *testing.T) {
	server, store := start(t)
	add(t, store, "thing-1", 0, done{Writer: 1, N: 2})
	data, metadata := server.Stored("thing-1")
	events, err := store.Read(t.Context(), "thing-1", 0)
	if err != nil || len(events) != 1 {
		t.Fatal(events, err)
	}
	if diff := cmp.Diff([]string{`{"writer":1,"n":2}`}, []string{string(data[0])}); diff != "" {
		t.Error(diff)
	}
	if want := `{"metal":1,"meta":` + string(events[0].RawMeta) + `}`; string(metadata[0]) != want {
		t.Errorf("user metadata is %s, not %s", metadata[0], want)
	}
}
