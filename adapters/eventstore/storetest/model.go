package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/better-compute/metal/domain/event"
)

// model is the log as plain slices: what a store must be equal to.
type model struct {
	all     []uuid.UUID
	streams map[event.Stream][]uuid.UUID
	where   map[uuid.UUID]event.Position
}

// attempt is one append as a caller makes it.
type attempt struct {
	stream event.Stream
	expect event.Version
	meta   event.Meta
	count  int
}

// outcome is what the model says an attempt does: it adds, or is a retry of events that are there, or conflicts.
func (m *model) outcome(a attempt) (adds, retry bool) {
	stream := m.streams[a.stream]
	if int(a.expect) == len(stream) {
		return true, false
	}
	if int(a.expect)+a.count > len(stream) {
		return false, false
	}
	for i := range a.count {
		if stream[int(a.expect)+i] != a.meta.EventID(a.stream, i) {
			return false, false
		}
	}
	return false, true
}

func (m *model) add(a attempt) {
	for i := range a.count {
		id := a.meta.EventID(a.stream, i)
		m.all, m.streams[a.stream] = append(m.all, id), append(m.streams[a.stream], id)
	}
}

// matchesModel draws appends over a few streams, right and wrong ones and retries, through two handles, and compares
// every answer and at the end every read with the model.
func matchesModel(ctx context.Context, t *testing.T, open Opener) {
	handles := []event.Store{open(t, Registry(t)), open(t, Registry(t))}
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		start, err := handles[0].Head(ctx)
		if err != nil {
			rt.Fatal(err)
		}
		m := &model{streams: map[event.Stream][]uuid.UUID{}, where: map[uuid.UUID]event.Position{}}
		var made []attempt
		for range rapid.IntRange(1, 15).Draw(rt, "attempts") {
			a := drawAttempt(rt, m, made, run)
			made = append(made, a)
			try(ctx, rt, handles[rapid.IntRange(0, 1).Draw(rt, "handle")], m, a)
		}
		compare(ctx, rt, handles[rapid.IntRange(0, 1).Draw(rt, "reader")], m, start)
	})
}

// drawAttempt draws a retry of an earlier attempt or a new one, mostly at the right version.
func drawAttempt(rt *rapid.T, m *model, made []attempt, run int) attempt {
	if len(made) > 0 && rapid.IntRange(0, 3).Draw(rt, "kind") == 0 {
		return rapid.SampledFrom(made).Draw(rt, "retry of")
	}
	stream := event.StreamOf("thing", fmt.Sprintf("%d-%d", run, rapid.IntRange(1, 3).Draw(rt, "stream")))
	expect := event.Version(len(m.streams[stream]))
	if rapid.IntRange(0, 3).Draw(rt, "version") == 0 {
		expect = event.Version(rapid.IntRange(0, int(expect)+2).Draw(rt, "expect"))
	}
	return attempt{stream: stream, expect: expect, meta: asked(), count: rapid.IntRange(1, 4).Draw(rt, "count")}
}

func try(ctx context.Context, rt *rapid.T, s event.Store, m *model, a attempt) {
	before := event.Version(len(m.streams[a.stream]))
	adds, retry := m.outcome(a)
	position, err := s.Append(ctx, a.stream, a.expect, a.meta, notes(1, a.count)...)
	last := a.meta.EventID(a.stream, a.count-1)
	var conflict *event.ConflictError
	switch {
	case adds && err == nil:
		m.add(a)
		m.where[last] = position
	case retry && err == nil:
		if position != m.where[last] && m.where[last] != 0 {
			rt.Fatalf("retry %v: position %d, first %d", a, position, m.where[last])
		}
	case adds || retry:
		rt.Fatalf("%v: %v", a, err)
	case !errors.As(err, &conflict) || conflict.Actual != before:
		rt.Fatalf("%v: expected a conflict at version %d; got %d, %v", a, before, position, err)
	}
}

func compare(ctx context.Context, rt *rapid.T, s event.Store, m *model, start event.Position) {
	all, _ := drain(ctx, rt, s, start, nil, rapid.IntRange(1, 20).Draw(rt, "limit"))
	if len(all) != len(m.all) {
		rt.Fatalf("the log holds %d events, the model %d", len(all), len(m.all))
	}
	for i, e := range all {
		if e.ID != m.all[i] {
			rt.Fatalf("event %d of the log is %s version %d, not the model's", i, e.Stream, e.Version)
		}
		if p := m.where[e.ID]; p != 0 && p != e.Position {
			rt.Fatalf("append said position %d, the event is at %d", p, e.Position)
		}
	}
	for stream, ids := range m.streams {
		events := read(ctx, rt, s, stream)
		if _, err := event.VerifyChain(stream, events); err != nil || len(events) != len(ids) {
			rt.Fatalf("%s holds %d events, the model %d, %v", stream, len(events), len(ids), err)
		}
	}
}
