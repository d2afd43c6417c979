package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/metal/domain/event"
)

// again appends the same command to thing-1 once more and wants the first position and nothing added.
func again(
	ctx context.Context, t *testing.T, s event.Store, expect event.Version, meta event.Meta,
	first event.Position, events ...event.Event,
) {
	t.Helper()
	before, err := s.Head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	meta.At = meta.At.Add(time.Second) // a retry is decided later; its ids are the same all the same
	p, err := s.Append(ctx, "thing-1", expect, meta, events...)
	if err != nil || p != first {
		t.Errorf("a retry returned position %d, %v; the first was %d", p, err, first)
	}
	if after, err := s.Head(ctx); err != nil || after != before {
		t.Errorf("head moved from %d to %d by a retry, %v", before, after, err)
	}
}

func retryAddsNothing(ctx context.Context, t *testing.T, open Opener) {
	store, meta := open(t, Registry(t)), asked()
	first, err := store.Append(ctx, "thing-1", 0, meta, noted{N: 1})
	if err != nil {
		t.Fatal(err)
	}
	again(ctx, t, store, 0, meta, first, noted{N: 1})
	again(ctx, t, store, 0, meta, first, noted{N: 1})
	events := read(ctx, t, store, "thing-1")
	if len(events) != 1 || !events[0].Meta.At.Equal(meta.At.UTC().Truncate(time.Microsecond)) {
		t.Errorf("after retries the stream holds %v", events)
	}
	if p := must(ctx, t, store, "thing-1", 1, noted{N: 2}); p <= first {
		t.Errorf("the next append is at %d, after %d", p, first)
	}
}

func retryOfMany(ctx context.Context, t *testing.T, open Opener) {
	store := open(t, Registry(t))
	must(ctx, t, store, "thing-1", 0, notes(1, 2)...)
	meta := asked()
	first, err := store.Append(ctx, "thing-1", 2, meta, notes(3, 7)...)
	if err != nil {
		t.Fatal(err)
	}
	again(ctx, t, store, 2, meta, first, notes(3, 7)...)
	if got := len(read(ctx, t, store, "thing-1")); got != 7 {
		t.Errorf("%d events, not 7", got)
	}
}

func retryBehindOthers(ctx context.Context, t *testing.T, open Opener) {
	store, meta := open(t, Registry(t)), asked()
	first, err := store.Append(ctx, "thing-1", 0, meta, notes(1, 2)...)
	if err != nil {
		t.Fatal(err)
	}
	must(ctx, t, store, "thing-1", 2, notes(3, 5)...)
	must(ctx, t, store, "thing-2", 0, notes(1, 3)...)
	again(ctx, t, store, 0, meta, first, notes(1, 2)...)
}

func retryElsewhere(ctx context.Context, t *testing.T, open Opener) {
	store, other, meta := open(t, Registry(t)), open(t, Registry(t)), asked()
	must(ctx, t, store, "thing-1", 0, noted{N: 1})
	first, err := store.Append(ctx, "thing-1", 1, meta, notes(2, 4)...)
	if err != nil {
		t.Fatal(err)
	}
	again(ctx, t, other, 1, meta, first, notes(2, 4)...)
	must(ctx, t, other, "thing-1", 4, noted{N: 5})
	again(ctx, t, store, 1, meta, first, notes(2, 4)...)
	if _, err := event.VerifyChain("thing-1", read(ctx, t, store, "thing-1")); err != nil {
		t.Errorf("what follows a retry does not link to what the log holds: %v", err)
	}
}

func retriesAtOnce(ctx context.Context, t *testing.T, open Opener) {
	handles := []event.Store{open(t, Registry(t)), open(t, Registry(t))}
	for round := range event.Version(10) {
		meta, positions := asked(), make([]event.Position, 8)
		var all sync.WaitGroup
		for i := range positions {
			all.Go(func() {
				var err error
				if positions[i], err = handles[i%2].Append(ctx, "thing-1", 3*round, meta, notes(1, 3)...); err != nil {
					t.Errorf("one of eight same appends: %v", err)
				}
			})
		}
		all.Wait()
		for _, p := range positions {
			if p != positions[0] {
				t.Errorf("eight same appends returned %v", positions)
			}
		}
		if got := len(read(ctx, t, handles[0], "thing-1")); got != int(3*round+3) {
			t.Fatalf("%d events after round %d, not %d", got, round, 3*round+3)
		}
	}
}

func otherIDsConflict(ctx context.Context, t *testing.T, open Opener) {
	store := open(t, Registry(t))
	must(ctx, t, store, "thing-1", 0, notes(1, 2)...)
	for _, meta := range []event.Meta{asked(), {At: time.Now()}} {
		_, err := store.Append(ctx, "thing-1", 0, meta, notes(1, 2)...)
		wantConflict(t, err, event.ConflictError{Stream: "thing-1", Expected: 0, Actual: 2})
	}
	if got := len(read(ctx, t, store, "thing-1")); got != 2 {
		t.Errorf("%d events, not 2", got)
	}
}

func oneWins(ctx context.Context, t *testing.T, open Opener) {
	handles := []event.Store{open(t, Registry(t)), open(t, Registry(t))}
	for round := range event.Version(10) {
		won := make([]bool, 16)
		var all sync.WaitGroup
		for i := range won {
			all.Go(func() {
				_, err := handles[i%2].Append(ctx, "thing-1", round, asked(), noted{N: i})
				var conflict *event.ConflictError
				switch won[i] = err == nil; {
				case err == nil:
				case !errors.As(err, &conflict):
					t.Errorf("a lost race is %v", err)
				case conflict.Actual != round+1:
					t.Errorf("a lost race found version %d, not %d", conflict.Actual, round+1)
				}
			})
		}
		all.Wait()
		wins := 0
		for i, w := range won {
			if w {
				wins++
				if e := read(ctx, t, handles[0], "thing-1"); e[len(e)-1].Event != (noted{N: i}) {
					t.Errorf("append %d won, but the stream holds %v", i, e[len(e)-1].Event)
				}
			}
		}
		if wins != 1 {
			t.Fatalf("%d of 16 appends at version %d won", wins, round)
		}
	}
}
