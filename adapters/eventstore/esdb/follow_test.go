package esdb_test

import (
	"testing"

	"github.com/better-compute/metal/domain/event"
)

// wait calls Changed in the background.
func wait(t *testing.T, s event.Store, after event.Position) <-chan error {
	woken, ctx := make(chan error, 1), expired(t, patience)
	go func() { woken <- s.Changed(ctx, after) }()
	return woken
}

// TestDroppedSubscription ends the subscription again and again; who waits is woken by each append of another all the
// same.
func TestDroppedSubscription(t *testing.T) {
	server, store := start(t)
	other := open(t, server.URL(), registry(t), brisk())
	last := add(t, other, "thing-1", 0, done{})
	if err := store.Changed(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for v := range event.Version(5) {
		woken := wait(t, store, last)
		server.DropSubscriptions()
		p := add(t, other, "thing-1", v+1, done{})
		if err := <-woken; err != nil {
			t.Fatalf("append %d woke nobody: %v", v, err)
		}
		last = p
	}
}

// TestSilentSubscription has subscriptions say nothing at all: the watchdog finds out.
func TestSilentSubscription(t *testing.T) {
	server, store := start(t)
	other := open(t, server.URL(), registry(t), brisk())
	server.Silence(true)
	last := add(t, other, "thing-1", 0, done{})
	for v := range event.Version(3) {
		woken := wait(t, store, last)
		before := server.Subscriptions()
		last = add(t, other, "thing-1", v+1, done{})
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
		eventually(t, "another subscription", func() bool { return v == 0 || server.Subscriptions() > before })
	}
}

// TestSubscriptionGoesOnFromCheckpoint has the server look at many events that are not ours and then drops the
// subscription: the next does not begin before what the last checkpoint told.
func TestSubscriptionGoesOnFromCheckpoint(t *testing.T) {
	server, store := start(t)
	last := add(t, store, "thing-1", 0, done{})
	if err := store.Changed(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a subscription", func() bool { return server.Subscriptions() == 1 })
	systemEvents(server, 100)
	eventually(t, "one that begins at a checkpoint", func() bool {
		server.DropSubscriptions()
		return server.SubscribedFrom() > uint64(last)+1000
	})
	woken := wait(t, store, last)
	add(t, open(t, server.URL(), registry(t), brisk()), "thing-1", 1, done{})
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
}

// TestLongWayThroughOthers has a reader meet more events of others than one read looks at: each read moves on, and none
// of ours is missed.
func TestLongWayThroughOthers(t *testing.T) {
	server, _ := start(t)
	o := brisk()
	o.ScanLimit = 100
	store := open(t, server.URL(), registry(t), o)
	var want []event.Position
	for v := range event.Version(3) {
		systemEvents(server, 1500)
		want = append(want, add(t, store, "thing-1", v, done{}))
	}
	systemEvents(server, 1500)
	var got []event.Position
	for after := event.Position(0); ; {
		events, head, err := store.ReadAll(t.Context(), after, nil, 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			got = append(got, e.Position)
		}
		if head == after {
			break
		}
		after = head
	}
	if len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("read %v, not %v", got, want)
	}
	if head, err := store.Head(t.Context()); err != nil || head != want[2] {
		t.Errorf("head is %d, %v; not %d", head, err, want[2])
	}
}
