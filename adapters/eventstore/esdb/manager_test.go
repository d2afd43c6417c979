package esdb_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/eventstore/esdb"
	"github.com/better-compute/metal/adapters/eventstore/esdb/esdbtest"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
)

// TestLeaderMoved moves the leader under a store, with and without the old node staying alive.
func TestLeaderMoved(t *testing.T) {
	for name, url := range map[string]func(*esdbtest.Server) string{
		"one address": (*esdbtest.Server).URL, "cluster": (*esdbtest.Server).ClusterURL,
	} {
		t.Run(name, func(t *testing.T) {
			first := esdbtest.Start(t)
			second := first.Peer()
			store, stream := open(t, url(first), registry(t), brisk()), event.Stream("thing-1")
			add(t, store, stream, 0, dones(2)...)
			seen := tail(expired(t, patience), t, open(t, url(first), registry(t), brisk()), 165)
			second.Lead()
			add(t, store, stream, 2, done{})
			first.Lead()
			count(t, store, stream, 3)
			second.Lead()
			add(t, store, stream, 3, dones(150)...) // the refusal comes while the client is sending
			for n := range 12 {                     // more moves than one client is trusted with
				[]*esdbtest.Server{first, second}[n%2].Lead()
				add(t, store, stream, event.Version(153+n), done{})
			}
			count(t, store, stream, 165)
			if events := <-seen; len(events) != 165 {
				t.Errorf("a reader that tails saw %d events, not 165", len(events))
			}
		})
	}
}

// TestLeaderDied stops the leader for good: the client finds the new one among the nodes of its connection string.
func TestLeaderDied(t *testing.T) {
	first := esdbtest.Start(t)
	second := first.Peer()
	store := open(t, first.ClusterURL(), registry(t), brisk())
	last := add(t, store, "thing-1", 0, dones(2)...)
	other := open(t, second.ClusterURL(), registry(t), brisk())
	woken := wait(t, store, last)
	eventually(t, "a subscription", func() bool { return first.Subscriptions() > 0 })
	first.Stop()
	second.Lead()
	if err := insist(expired(t, patience), other, "thing-1", 2, done{}); err != nil {
		t.Fatal(err)
	}
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
	add(t, store, "thing-1", 3, done{})
	count(t, store, "thing-1", 4)
}

// TestCloseUnderCalls closes stores while calls of every kind run.
func TestCloseUnderCalls(t *testing.T) {
	server := esdbtest.Start(t)
	for round := range 5 {
		store := open(t, server.URL(), registry(t), brisk())
		stream := event.StreamOf("thing", fmt.Sprint(round))
		var all sync.WaitGroup
		started := make(chan struct{}, 16)
		for i := range 16 {
			all.Go(func() {
				for n := 0; ; n++ {
					var err error
					switch i % 4 {
					case 0:
						_, err = store.Append(t.Context(), stream+event.Stream(fmt.Sprint(i)), event.Version(n), command(), done{})
					case 1:
						_, err = store.Read(t.Context(), stream, 0)
					case 2:
						_, _, err = store.ReadAll(t.Context(), 0, nil, 10)
					case 3:
						err = store.Changed(t.Context(), 1<<40)
					}
					if n == 0 {
						started <- struct{}{}
					}
					if err != nil {
						return
					}
				}
			})
		}
		for range 12 {
			<-started
		}
		store.Close()
		store.Close()
		all.Wait()
		if _, err := store.Head(t.Context()); !errors.Is(err, event.ErrUnavailable) {
			t.Errorf("a closed store: %v", err)
		}
	}
	eventually(t, "no connection is left", func() bool { return server.Connections() == 0 })
}

// TestNothingLeaks breaks a store's connection over and over, and counts connections.
func TestNothingLeaks(t *testing.T) {
	server, store := start(t)
	add(t, store, "thing-1", 0, done{})
	for v := range event.Version(20) {
		server.Busy(1) // as unavailable: the client would begin a discovery and forget its connection
		if _, err := store.Read(t.Context(), "thing-1", 0); err != nil {
			t.Fatal(err)
		}
		server.LoseAnswers(1)
		add(t, store, "thing-1", v+1, done{})
	}
	eventually(t, "one connection is left", func() bool { return server.Connections() == 1 })
	store.Close()
	eventually(t, "no connection is left", func() bool { return server.Connections() == 0 })
}

// TestPanickingClient has the server send what makes the client panic.
func TestPanickingClient(t *testing.T) {
	server, store := start(t)
	add(t, store, "thing-1", 0, dones(3)...)
	server.Chatter(2)
	count(t, store, "thing-1", 3)
	server.Chatter(1)
	if _, _, err := store.ReadAll(t.Context(), 0, nil, 10); err != nil {
		t.Error(err)
	}
}

// TestNoRights has the server refuse everything.
func TestNoRights(t *testing.T) {
	server, store, o := startPatient(t) // which is not patient with a refusal
	server.Deny(true)
	if _, err := esdb.New(t.Context(), server.URL(), registry(t), o); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("New: %v", err)
	}
	if _, err := store.Append(t.Context(), "thing-1", 0, command(), done{}); err == nil {
		t.Error("Append without rights succeeded")
	}
	if _, err := store.Read(t.Context(), "thing-1", 0); err == nil || errors.Is(err, event.ErrUnavailable) {
		t.Errorf("Read: %v", err)
	}
	server.Deny(false)
	add(t, store, "thing-1", 0, done{})
}

// TestNoServer has nobody listen.
func TestNoServer(t *testing.T) {
	server := esdbtest.Start(t)
	server.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := esdb.New(ctx, server.URL(), registry(t), brisk()); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("New: %v", err)
	}
}

// TestPatience has a caller without a deadline: it is told after the store's patience that nothing was written.
func TestPatience(t *testing.T) {
	server, store := start(t)
	add(t, store, "thing-1", 0, done{})
	server.Stop()
	eventually(t, "the store notices", func() bool {
		_, err := store.Read(expired(t, 20*time.Millisecond), "thing-1", 0)
		return err != nil
	})
	if _, err := store.Append(t.Context(), "thing-1", 1, command(), done{}); !errors.Is(err, event.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}
