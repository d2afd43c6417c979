package storetest

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/domain/event"
)

func positionsRise(ctx context.Context, t *testing.T, open Opener) {
	handles := []event.Store{open(t, Registry(t)), open(t, Registry(t))}
	var last event.Position
	for n := range 20 {
		p := must(ctx, t, handles[n%2], event.StreamOf("thing", string(rune('a'+n%3))), event.Version(n/3*4), notes(1, 4)...)
		if p <= last {
			t.Fatalf("append %d ended at %d, the one before at %d", n, p, last)
		}
		last = p
	}
	all, head := drain(ctx, t, handles[0], 0, nil, 1000)
	if len(all) != 80 || all[79].Position != last || head < last {
		t.Errorf("%d events, the last at %d, head %d; expected 80 up to %d", len(all), all[len(all)-1].Position, head, last)
	}
}

// spread writes events over three streams, of two types, in appends of one to three.
func spread(ctx context.Context, t *testing.T, store event.Store) []event.Recorded {
	t.Helper()
	versions := map[event.Stream]event.Version{}
	for n := range 21 {
		stream := event.StreamOf("thing", string(rune('a'+n%3)))
		events := notes(n, n+n%3)
		if n%5 == 0 {
			events[0] = rare{N: n}
		}
		must(ctx, t, store, stream, versions[stream], events...)
		versions[stream] += event.Version(len(events))
	}
	all, _ := drain(ctx, t, store, 0, nil, 1000)
	if len(all) != 42 {
		t.Fatalf("%d events, not 42", len(all))
	}
	return all
}

func resumeAnywhere(ctx context.Context, t *testing.T, open Opener) {
	all := spread(ctx, t, open(t, Registry(t)))
	reader := open(t, Registry(t))
	for i, from := range all {
		rest, _ := drain(ctx, t, reader, from.Position, nil, 7)
		if diff := cmp.Diff(all[i+1:], rest, cmp.Transformer("empty", orEmpty)); diff != "" {
			t.Fatalf("resumed after position %d:\n%s", from.Position, diff)
		}
	}
}

// orEmpty makes nil and empty alike.
func orEmpty(events []event.Recorded) map[event.Position]event.Hash {
	m := map[event.Position]event.Hash{}
	for _, e := range events {
		m[e.Position] = e.Hash
	}
	return m
}

func limitBounds(ctx context.Context, t *testing.T, open Opener) {
	store := open(t, Registry(t))
	all := spread(ctx, t, store)
	for _, limit := range []int{1, 2, 41, 42, 43} {
		page, head, err := store.ReadAll(ctx, 0, nil, limit)
		if err != nil {
			t.Fatal(err)
		}
		checkPage(t, page, 0, head, nil, limit)
		if len(page) != min(limit, 42) {
			t.Errorf("limit %d: %d events", limit, len(page))
		}
		if limit < 42 && head >= all[limit].Position {
			t.Errorf("limit %d: head %d passed over the event at %d", limit, head, all[limit].Position)
		}
		pages, _ := drain(ctx, t, store, 0, nil, limit)
		if diff := cmp.Diff(all, pages); diff != "" {
			t.Errorf("pages of %d do not make the whole:\n%s", limit, diff)
		}
	}
}

func typesFilter(ctx context.Context, t *testing.T, open Opener) {
	store := open(t, Registry(t))
	all := spread(ctx, t, store)
	for _, types := range [][]string{
		{rareType}, {notedType}, {notedType, rareType}, {"storetest.none"}, {"storetest.none", rareType},
	} {
		var want []event.Recorded
		for _, e := range all {
			if among(types, e.Type) {
				want = append(want, e)
			}
		}
		for _, limit := range []int{1, 4, 100} {
			got, head := drain(ctx, t, store, 0, types, limit)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("types %v, limit %d:\n%s", types, limit, diff)
			}
			if newest := all[len(all)-1].Position; head < newest {
				t.Errorf("types %v: a reader at the end stands at %d, before %d", types, head, newest)
			}
		}
	}
}

// rareTypes has far more events that do not match than a store may want to look at in one go: each read must still
// move on, and none of the few that match may be missed.
func rareTypes(ctx context.Context, t *testing.T, open Opener) {
	store, follower := open(t, Registry(t)), open(t, Registry(t))
	var after event.Position
	var version event.Version
	for round := range 3 {
		for range 10 {
			must(ctx, t, store, "common-1", version, notes(1, 150)...)
			version += 150
		}
		want := must(ctx, t, store, "rare-1", event.Version(round), rare{N: round})
		must(ctx, t, store, "common-1", version, noted{})
		version++
		found, head := drain(ctx, t, follower, after, []string{rareType}, 5)
		if len(found) != 1 || found[0].Position != want {
			t.Fatalf("round %d: found %v, expected the one at %d", round, found, want)
		}
		if newest, err := store.Head(ctx); err != nil || head < newest {
			t.Fatalf("round %d: the follower stands at %d, the log at %d, %v", round, head, newest, err)
		}
		after = head
	}
}

func emptyLog(ctx context.Context, t *testing.T, open Opener) {
	store := open(t, Registry(t))
	for _, types := range [][]string{nil, {rareType}} {
		events, head, err := store.ReadAll(ctx, 0, types, 10)
		if err != nil || len(events) != 0 || head != 0 {
			t.Errorf("ReadAll(%v) of an empty log: %v, head %d, %v", types, events, head, err)
		}
	}
	if head, err := store.Head(ctx); err != nil || head != 0 {
		t.Errorf("head of an empty log: %d, %v", head, err)
	}
}

func pastTheEnd(ctx context.Context, t *testing.T, open Opener) {
	store := open(t, Registry(t))
	newest := must(ctx, t, store, "thing-1", 0, notes(1, 3)...)
	for _, after := range []event.Position{newest, newest + 1, newest + 1_000_000} {
		events, head, err := store.ReadAll(ctx, after, nil, 10)
		if err != nil || len(events) != 0 || head != after {
			t.Errorf("ReadAll after %d: %v, head %d, %v", after, events, head, err)
		}
	}
}

func headIsNewest(ctx context.Context, t *testing.T, open Opener) {
	store, other := open(t, Registry(t)), open(t, Registry(t))
	for v := range event.Version(5) {
		want := must(ctx, t, store, "thing-1", 2*v, notes(1, 2)...)
		for _, s := range []event.Store{store, other} {
			if head, err := s.Head(ctx); err != nil || head != want {
				t.Errorf("head is %d, %v; expected %d", head, err, want)
			}
		}
	}
}
