package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/better-compute/metal/domain/event"
)

// appendNext appends wherever the stream now ends, as often as others are quicker.
func appendNext(ctx context.Context, s event.Store, stream event.Stream, events ...event.Event) error {
	meta, expect := asked(), event.Version(0)
	for {
		_, err := s.Append(ctx, stream, expect, meta, events...)
		var conflict *event.ConflictError
		if !errors.As(err, &conflict) {
			return err
		}
		expect = conflict.Actual
	}
}

// tail follows the log from its beginning until it has seen what done asks for, or ctx ends. It looks only when
// Changed returns, and gives everything it saw in the order it saw it.
func tail(
	ctx context.Context, s event.Store, types []string, done func(event.Recorded) bool,
) ([]event.Recorded, error) {
	var seen []event.Recorded
	var after event.Position
	for {
		events, head, err := s.ReadAll(ctx, after, types, 64)
		if err != nil {
			return seen, err
		}
		seen = append(seen, events...)
		for _, e := range events {
			if done(e) {
				return seen, nil
			}
		}
		if head > after {
			after = head
			continue
		}
		if err := s.Changed(ctx, after); err != nil {
			return seen, err
		}
	}
}

// noGap is the promise that projections stand on. Serial ids fail it: a transaction that took a lower one may commit
// later, and a reader that has passed by never sees its events.
func noGap(ctx context.Context, t *testing.T, open Opener) {
	const writers, appends = 16, 40
	handles := []event.Store{open(t, Registry(t)), open(t, Registry(t))}
	reader := open(t, Registry(t))

	last := func(e event.Recorded) bool { return e.Stream == "last-1" }
	everything, someTypes := follow(ctx, t, reader, nil, last), follow(ctx, t, reader, []string{rareType}, last)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			if err := write(ctx, handles[w%2], w, appends); err != nil {
				t.Errorf("writer %d: %v", w, err)
			}
		})
	}
	all.Wait()
	must(ctx, t, handles[0], "last-1", 0, rare{})

	streams := []event.Stream{"shared-0", "shared-1", "shared-2", "last-1"}
	for w := range writers {
		streams = append(streams, event.StreamOf("own", fmt.Sprint(w)))
	}
	written := map[event.Position]event.Recorded{}
	for _, stream := range streams {
		for _, e := range read(ctx, t, handles[1], stream) {
			written[e.Position] = e
		}
	}
	if least := writers * appends; len(written) < least {
		t.Fatalf("%d events written; at least %d were acknowledged", len(written), least)
	}
	sameEvents(t, "a tailing reader", written, nil, <-everything)
	sameEvents(t, "a tailing reader of one type", written, []string{rareType}, <-someTypes)
	late, _ := drain(ctx, t, reader, 0, nil, 100)
	sameEvents(t, "a late reader", written, nil, late)
}

// follow tails in the background.
func follow(
	ctx context.Context, t *testing.T, s event.Store, types []string, done func(event.Recorded) bool,
) <-chan []event.Recorded {
	seen := make(chan []event.Recorded, 1)
	go func() {
		events, err := tail(ctx, s, types, done)
		if err != nil {
			t.Errorf("tailing %v: %v", types, err)
		}
		seen <- events
	}()
	return seen
}

// write appends to the writer's own stream, and each fifth time to one that others write to as well. Sizes differ, so
// that appends take different times.
func write(ctx context.Context, s event.Store, writer, appends int) error {
	own, version := event.StreamOf("own", fmt.Sprint(writer)), event.Version(0)
	for n := range appends {
		events := notes(n, n+n%3)
		if n%4 == 0 {
			events = append(events, rare{N: n})
		}
		if n%7 == writer%7 {
			events = append(events, paddedTo(20_000))
		}
		if n%5 == 0 {
			if err := appendNext(ctx, s, event.StreamOf("shared", fmt.Sprint(n%3)), events...); err != nil {
				return err
			}
			continue
		}
		if _, err := s.Append(ctx, own, version, asked(), events...); err != nil {
			return err
		}
		version += event.Version(len(events))
	}
	return nil
}

// sameEvents proves that a reader saw each written event of the types once, and in the order of positions.
func sameEvents(
	t *testing.T, who string, written map[event.Position]event.Recorded, types []string, seen []event.Recorded,
) {
	t.Helper()
	var last event.Position
	for _, e := range seen {
		if e.Position <= last {
			t.Errorf("%s saw position %d after %d", who, e.Position, last)
		}
		if w := written[e.Position]; w.ID != e.ID || w.Stream != e.Stream || w.Version != e.Version {
			t.Errorf("%s saw %s version %d at %d, where %s version %d is",
				who, e.Stream, e.Version, e.Position, w.Stream, w.Version)
		}
		last = e.Position
	}
	expected := 0
	for _, e := range written {
		if among(types, e.Type) {
			expected++
		}
	}
	if len(seen) != expected {
		t.Errorf("%s saw %d of %d events", who, len(seen), expected)
	}
}
