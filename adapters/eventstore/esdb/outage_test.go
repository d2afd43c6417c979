package esdb_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/eventstore/esdb/esdbtest"
	"github.com/better-compute/metal/domain/event"
)

// TestServerGoneAndBack stops the server three times under writers and a tailing reader: nothing acknowledged is lost,
// nothing is doubled, and the reader sees each event once and in order.
func TestServerGoneAndBack(t *testing.T) {
	server, store := start(t)
	reader := open(t, server.URL(), registry(t), brisk())
	const writers, each = 6, 60
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	seen := tail(ctx, t, reader, writers*each)

	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			stream := event.StreamOf("thing", fmt.Sprint(w))
			for n := range each {
				if err := insist(ctx, store, stream, event.Version(n), done{Writer: w, N: n}); err != nil {
					t.Errorf("writer %d, append %d: %v", w, n, err)
					return
				}
			}
		})
	}
	for round := range 3 {
		written := (round + 1) * writers * each / 5
		eventually(t, "writers go on", func() bool { return server.Appends() >= written })
		server.Stop()
		if _, err := store.Read(expired(t, 50*time.Millisecond), "thing-0", 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a read without a server: %v", err)
		}
		server.Restart()
	}
	all.Wait()

	got, next := <-seen, map[int]int{}
	for _, e := range got {
		d := e.Event.(done)
		if d.N != next[d.Writer] {
			t.Errorf("the reader saw event %d of writer %d after %d events of it", d.N, d.Writer, next[d.Writer])
		}
		next[d.Writer]++
	}
	if len(got) != writers*each {
		t.Errorf("the reader saw %d of %d events", len(got), writers*each)
	}
	for w := range writers {
		count(t, store, event.StreamOf("thing", fmt.Sprint(w)), each)
	}
}

// expired is a context that soon ends.
func expired(t *testing.T, after time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), after)
	t.Cleanup(cancel)
	return ctx
}

// tail follows the log in the background until it has seen so many events, looking again after every error.
func tail(ctx context.Context, t *testing.T, s event.Store, events int) <-chan []event.Recorded {
	result := make(chan []event.Recorded, 1)
	go func() {
		var seen []event.Recorded
		var after event.Position
		for len(seen) < events && ctx.Err() == nil {
			page, head, err := s.ReadAll(ctx, after, nil, 50)
			if err != nil {
				continue
			}
			seen = append(seen, page...)
			if head == after {
				_ = s.Changed(ctx, after) // an error shows in the next read
			}
			after = head
		}
		if ctx.Err() != nil {
			t.Error("the reader was still waiting at the end")
		}
		result <- seen
	}()
	return result
}

// TestGoneThroughDiscovery has ten callers wait while no server answers, refused at the door or left hanging: each is
// back when its context ends.
func TestGoneThroughDiscovery(t *testing.T) {
	for name, breakIt := range map[string]func(*esdbtest.Server){
		"refused": (*esdbtest.Server).Stop,
		"hanging": func(s *esdbtest.Server) { s.Hang(true) },
	} {
		t.Run(name, func(t *testing.T) {
			server, store, _ := startPatient(t)
			last := add(t, store, "thing-1", 0, done{})
			breakIt(server)
			calls := []func(context.Context) error{
				func(ctx context.Context) error { return ignore(store.Append(ctx, "thing-1", 1, command(), done{})) },
				func(ctx context.Context) error {
					return ignore(store.Append(ctx, "thing-2", 7, command(), dones(3)...))
				},
				func(ctx context.Context) error { return ignore(store.Read(ctx, "thing-1", 0)) },
				func(ctx context.Context) error { return ignore(store.Head(ctx)) },
				func(ctx context.Context) error { return store.Changed(ctx, last) },
			}
			var all sync.WaitGroup
			for i := range 10 {
				all.Go(func() {
					err := calls[i%len(calls)](expired(t, time.Duration(100+50*i)*time.Millisecond))
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("call %d: %v", i, err)
					}
				})
			}
			all.Wait()
		})
	}
}

// TestHangingServer leaves calls and the subscription without an answer for a while: afterwards all go on.
func TestHangingServer(t *testing.T) {
	server, store := start(t)
	other := open(t, server.URL(), registry(t), brisk())
	last := add(t, store, "thing-1", 0, done{})
	woken := wait(t, store, last)
	eventually(t, "a subscription", func() bool { return server.Subscriptions() > 0 })
	server.Hang(true)
	var all sync.WaitGroup // of callers without a deadline, who are told after the store's patience
	all.Go(func() {        // its predecessor can't be read, so it is never sent
		_, err := store.Append(t.Context(), "thing-1", 1, command(), done{})
		if !errors.Is(err, event.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an append that was not sent: %v", err)
		}
	})
	all.Go(func() {
		_, err := other.Append(t.Context(), "thing-3", 0, command(), done{})
		if !errors.Is(err, event.ErrUnknownOutcome) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an append that was sent and hung: %v", err)
		}
	})
	all.Wait()
	server.Hang(false)
	if err := insist(expired(t, patience), other, "thing-2", 0, done{}); err != nil {
		t.Fatal(err)
	}
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
	if _, err := store.Read(t.Context(), "thing-1", 0); err != nil {
		t.Error(err)
	}
}

func ignore[T any](_ T, err error) error { return err }
