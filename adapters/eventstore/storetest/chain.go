package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/better-compute/metal/domain/event"
)

func chainHolds(ctx context.Context, t *testing.T, open Opener) {
	store, other, meta := open(t, Registry(t)), open(t, Registry(t)), asked()
	must(ctx, t, store, "thing-1", 0, notes(1, 3)...)
	must(ctx, t, other, "thing-1", 3, noted{N: 4}) // other has never seen the event it links to
	if _, err := store.Append(ctx, "thing-1", 4, meta, notes(5, 6)...); err != nil {
		t.Fatal(err)
	}
	for _, s := range []event.Store{other, store} {
		if _, err := s.Append(ctx, "thing-1", 4, meta, notes(5, 6)...); err != nil {
			t.Fatal(err)
		}
	}
	_, err := other.Append(ctx, "thing-1", 4, asked(), noted{})
	wantConflict(t, err, event.ConflictError{Stream: "thing-1", Expected: 4, Actual: 6})
	must(ctx, t, other, "thing-1", 6, noted{N: 7})
	must(ctx, t, open(t, Registry(t)), "thing-1", 7, notes(8, 9)...)
	verify(ctx, t, store, "thing-1", 9)
}

// verify proves the chain of a stream of so many events, by Read and by ReadAll.
func verify(ctx context.Context, t *testing.T, s event.Store, stream event.Stream, events int) {
	t.Helper()
	whole := read(ctx, t, s, stream)
	if len(whole) != events {
		t.Errorf("%s holds %d events, not %d", stream, len(whole), events)
	}
	tip, err := event.VerifyChain(stream, whole)
	if err != nil {
		t.Error(err)
	}
	for i, e := range whole {
		if first := i == 0; first != (e.Prev == event.Hash{}) || !first && e.Prev != whole[i-1].Hash {
			t.Errorf("%s version %d links to %v", stream, e.Version, e.Prev)
		}
	}
	var followed []event.Recorded
	all, _ := drain(ctx, t, s, 0, nil, 500)
	for _, e := range all {
		if e.Stream == stream {
			followed = append(followed, e)
		}
	}
	if other, err := event.VerifyChain(stream, followed); err != nil || other != tip {
		t.Errorf("%s: Read ends in hash %v, ReadAll in %v, %v", stream, tip, other, err)
	}
}

// chainUnderWriters has four writers over two handles take turns on two streams, so that a writer's knowledge of the
// predecessor is often stale.
func chainUnderWriters(ctx context.Context, t *testing.T, open Opener) {
	handles := []event.Store{open(t, Registry(t)), open(t, Registry(t))}
	const writers, each = 4, 15
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			stream := event.StreamOf("thing", fmt.Sprint(w%2))
			for n := range each {
				if err := appendNext(ctx, handles[w/2], stream, noted{N: n}, noted{N: n}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	for _, stream := range []event.Stream{"thing-0", "thing-1"} {
		verify(ctx, t, handles[0], stream, writers/2*each*2)
	}
}
