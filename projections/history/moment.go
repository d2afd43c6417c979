package history

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
)

// Moment is a point of the log, by its own clock or by position: exactly one is set.
type Moment struct {
	Time     time.Time
	Position event.Position
}

// ParseMoment reads a position in decimal or a time in RFC 3339. Errors: INVALID_INPUT at path.
func ParseMoment(path, text string) (Moment, error) {
	if p, err := strconv.ParseInt(text, 10, 64); err == nil && p > 0 {
		return Moment{Position: event.Position(p)}, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return Moment{Time: t}, nil
	}
	return Moment{}, fault.Invalid(fault.Issue{
		Path: path, Message: "a position of the log, or a time such as 2026-01-31T12:00:00Z",
	})
}

// covers reports whether e had happened at m.
func (m Moment) covers(e event.Recorded) bool {
	if m.Position > 0 {
		return e.Position <= m.Position
	}
	return !e.Meta.At.After(m.Time) // the time that the chain vouches for
}

// check refuses a moment that has not come yet.
func (m Moment) check(ctx context.Context, store event.Store, now time.Time) error {
	head, err := store.Head(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("head of the log: %w", err)
	case m.Position > head:
		return fault.Invalid(fault.Issue{Path: "query.at", Message: "the log ends at position " + head.String()}).
			WithDetail("head", head)
	case m.Position == 0 && m.Time.After(now):
		text := fmt.Sprintf("in the future: it is %s, and the log ends at position %s", now.UTC().Format(time.RFC3339), head)
		return fault.Invalid(fault.Issue{Path: "query.at", Message: text}).WithDetail("head", head)
	}
	return nil
}

// Then is a machine as it was.
type Then struct {
	State    node.State
	Version  event.Version  // of the newest event it holds
	Position event.Position // of that event
	At       time.Time      // when it was decided
}

// At folds a machine as it was at a moment, by the same fold that decides. Errors: NOT_FOUND for a machine without
// events by then, telling when it began; INVALID_INPUT for a moment after now or after the log's end, telling where
// that is.
func At(ctx context.Context, store event.Store, n id.Node, m Moment, now time.Time) (Then, error) {
	if err := m.check(ctx, store, now); err != nil {
		return Then{}, err
	}
	events, err := store.Read(ctx, node.StreamOf(n), 0)
	if err != nil {
		return Then{}, fmt.Errorf("read %s: %w", n, err)
	}
	var then Then
	for _, e := range events {
		if !m.covers(e) {
			break
		}
		then = Then{State: evolve(then.State, e), Version: e.Version, Position: e.Position, At: e.Meta.At}
	}
	switch {
	case then.Version > 0 && then.State.Exists():
		return then, nil
	case len(events) == 0 || then.State.Voided:
		return Then{}, fault.New(fault.NotFound, "there is no node %s", n)
	}
	first := beginning(events)
	return Then{}, fault.New(fault.NotFound, "node %s did not exist then; it began at %s, position %s",
		n, first.Meta.At.Format(time.RFC3339Nano), first.Position).
		WithDetail("beganAt", first.Meta.At).WithDetail("beganPosition", first.Position)
}

// beginning is the event with which a machine exists: the last of the append that enrolled it.
func beginning(events []event.Recorded) event.Recorded {
	var s node.State
	for _, e := range events {
		if s = evolve(s, e); s.Exists() {
			return e
		}
	}
	return events[0]
}

// evolve folds an event of a machine. One that only a newer program knows changes nothing here.
func evolve(s node.State, e event.Recorded) node.State {
	if known, ok := e.Event.(node.Event); ok {
		return node.Evolve(s, known)
	}
	return s
}

// Step is an event and the state after it.
type Step struct {
	Event event.Recorded
	State node.State
}

// Replay gives the state of a machine after each event, oldest first, up to a moment; nil: to its end. Errors: as At.
func Replay(ctx context.Context, store event.Store, n id.Node, until *Moment, now time.Time) ([]Step, error) {
	if until != nil {
		if err := until.check(ctx, store, now); err != nil {
			return nil, err
		}
	}
	events, err := store.Read(ctx, node.StreamOf(n), 0)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", n, err)
	}
	if len(events) == 0 {
		return nil, fault.New(fault.NotFound, "there is no node %s", n)
	}
	var steps []Step
	var s node.State
	for _, e := range events {
		if until != nil && !until.covers(e) {
			break
		}
		s = evolve(s, e)
		steps = append(steps, Step{Event: e, State: s})
	}
	return steps, nil
}
