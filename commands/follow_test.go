package commands_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
)

// reacher is a log that knows how far it reaches, and counts how often a stream is read.
type reacher struct {
	event.Store
	back  atomic.Uint64 // what it pretends to reach; zero: what it does
	reads atomic.Int64
}

func (r *reacher) Reached() event.Position {
	if back := r.back.Load(); back > 0 {
		return event.Position(back)
	}
	head, err := r.Head(context.Background())
	if err != nil {
		panic(err)
	}
	return head
}

func (r *reacher) Read(ctx context.Context, s event.Stream, after event.Version) ([]event.Recorded, error) {
	r.reads.Add(1)
	return r.Store.Read(ctx, s, after)
}

// turn changes a node by one event.
func turn(ctx context.Context, s *commands.Service, n id.Node, times int) error {
	power := node.PowerOn
	if times%2 == 0 {
		power = node.PowerOff
	}
	_, err := s.ObservePower(ctx, system(), n, "", power)
	return err
}

// whole fails where a node that was read as of a position misses an event from before it.
func whole(ctx context.Context, log event.Store, s *commands.Service, n id.Node, p event.Position) error {
	_, version, err := s.Node(commands.AsOf(ctx, p), n)
	if err != nil {
		return err
	}
	events, err := log.Read(ctx, node.StreamOf(n), version)
	if err != nil {
		return err
	}
	if len(events) > 0 && events[0].Position <= p {
		return fmt.Errorf("as of %s it is at version %d, and version %d is at %s", p, version, events[0].Version, events[0].Position)
	}
	return nil
}

// Whatever replicas do, and whatever leaves the memory meanwhile: what is read as of a position misses nothing up to there.
func TestNothingIsMissingAsOfAPosition(t *testing.T) {
	w := newWorld(t)
	var nodes []id.Node
	for i := range 4 {
		nodes = append(nodes, w.enrolled(t, machine(w.pool, fmt.Sprintf("https://10.0.1.%d", i))).State.ID)
	}
	log := &reacher{Store: w.log}
	rapid.Check(t, func(t *rapid.T) {
		replicas := []*commands.Service{
			w.over(log).Remembering(rapid.IntRange(1, 6).Draw(t, "remembered")), w.over(log),
		}
		for step := range rapid.IntRange(1, 40).Draw(t, "steps") {
			s := replicas[rapid.IntRange(0, 1).Draw(t, "replica")]
			n := nodes[rapid.IntRange(0, len(nodes)-1).Draw(t, "node")]
			var err error
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				err = turn(t.Context(), s, n, step)
			case 1:
				err = s.Follow(t.Context())
			case 2:
				err = whole(t.Context(), log, s, n, s.FollowedTo())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// The same while everything happens at once.
func TestNothingIsMissingWhileReplicasWrite(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	const nodes, turns = 6, 150
	log := &reacher{Store: w.log}
	replicas := []*commands.Service{w.over(log).Remembering(4), w.over(log).Remembering(50)}
	var all sync.WaitGroup
	for i := range nodes {
		n := w.enrolled(t, machine(w.pool, fmt.Sprintf("https://10.0.2.%d", i))).State.ID
		for r, s := range replicas {
			all.Go(func() {
				for step := range turns {
					if err := turn(ctx, s, n, step+r); err != nil && fault.CodeOf(err) != fault.Conflict { // it lost too many races
						t.Error(err)
					}
				}
			})
			all.Go(func() {
				for range turns {
					if err := whole(ctx, log, s, n, s.FollowedTo()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	for _, s := range replicas {
		all.Go(func() {
			for range turns {
				if err := s.Follow(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func TestWhatIsFollowedIsNotReadAgain(t *testing.T) {
	w := newWorld(t)
	n := w.enrolled(t, machine(w.pool, "https://10.0.3.1")).State.ID
	log := &reacher{Store: w.log}
	s := w.over(log)
	read := func(what string, ctx context.Context, want int64) {
		t.Helper()
		before := log.reads.Load()
		if _, _, err := s.Node(ctx, n); err != nil {
			t.Fatal(err)
		}
		if got := log.reads.Load() - before; got != want {
			t.Errorf("%s: %d reads, want %d", what, got, want)
		}
	}
	follow := func() event.Position {
		t.Helper()
		if err := s.Follow(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s.FollowedTo()
	}
	asOf := func(p event.Position) context.Context { return commands.AsOf(t.Context(), p) }
	read("before it is followed", asOf(1), 1)
	at := follow()
	read("not known yet", asOf(at), 1)
	read("known", asOf(at), 0)
	read("known, of whoever asks for what the log holds now", t.Context(), 1)
	read("known, of whoever asks for it again", commands.Fresh(asOf(at)), 1)
	read("as of what was not followed yet", asOf(at+1), 1)
	if err := turn(t.Context(), w.over(w.log), n, 1); err != nil { // another replica
		t.Fatal(err)
	}
	read("stale, and asked for nothing newer", asOf(at), 0)
	at = follow()
	read("stale", asOf(at), 1)
	read("read again", asOf(at), 0)
	if err := turn(asOf(at), s, n, 2); err != nil {
		t.Fatal(err)
	}
	read("changed by this replica", asOf(follow()), 0)
	log.back.Store(uint64(at - 1))
	read("of a log that was restored", asOf(1), 1)
}

// A refusal is decided on what the log holds, however old what was asked for may be.
func TestARefusalIsDecidedOnTheLog(t *testing.T) {
	w := newWorld(t)
	n := w.enrolled(t, machine(w.pool, "https://10.0.4.1")).State.ID
	s := w.over(&reacher{Store: w.log})
	if err := s.Follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx := commands.AsOf(t.Context(), s.FollowedTo())
	if _, _, err := s.Node(ctx, n); err != nil {
		t.Fatal(err)
	}
	wf, err := w.StartWorkflow(t.Context(), system(), n, node.Profile{ID: "metal", Version: 1}) // by another replica
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Complete(ctx, system(), n, wf.State.Workflow.ID, ""); err != nil {
		t.Errorf("decided on what it remembered: %v", err)
	}
}
