package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/better-compute/metal/domain/event"
)

func changedWakes(ctx context.Context, t *testing.T, open Opener) {
	store, other := open(t, Registry(t)), open(t, Registry(t))
	after := must(ctx, t, store, "thing-1", 0, noted{})
	for v := range event.Version(5) {
		woken := make(chan error, 1)
		go func(after event.Position) { woken <- followTo(ctx, other, after) }(after)
		after = must(ctx, t, store, "thing-1", v+1, noted{})
		if err := <-woken; err != nil {
			t.Fatalf("append %d woke nobody: %v", v, err)
		}
	}
}

// followTo returns once store shows an event above after, looking only when Changed says so.
func followTo(ctx context.Context, store event.Store, after event.Position) error {
	for {
		if err := store.Changed(ctx, after); err != nil {
			return err
		}
		events, _, err := store.ReadAll(ctx, after, nil, 1)
		if err != nil || len(events) > 0 {
			return err
		}
	}
}

func changedAtOnce(ctx context.Context, t *testing.T, open Opener) {
	store, other := open(t, Registry(t)), open(t, Registry(t))
	must(ctx, t, store, "thing-1", 0, notes(1, 3)...)
	for _, s := range []event.Store{store, other} {
		if err := s.Changed(ctx, 0); err != nil {
			t.Errorf("Changed with three events above: %v", err)
		}
	}
}

// changedRests allows early returns, but not a follower that spins.
func changedRests(ctx context.Context, t *testing.T, open Opener) {
	store := open(t, Registry(t))
	after := must(ctx, t, store, "thing-1", 0, noted{})
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	returns := 0
	for ; ; returns++ {
		if err := store.Changed(ctx, after); err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Changed past its deadline: %v", err)
			}
			break
		}
	}
	if returns > 50 {
		t.Errorf("Changed returned %d times in a second in which nothing happened", returns)
	}
}

func endedContext(ctx context.Context, t *testing.T, open Opener) {
	store := open(t, Registry(t))
	newest := must(ctx, t, store, "thing-1", 0, noted{})
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	for name, call := range map[string]func(context.Context) error{
		"Append": func(ctx context.Context) error {
			_, err := store.Append(ctx, "thing-1", 1, asked(), noted{})
			return err
		},
		"Read": func(ctx context.Context) error {
			_, err := store.Read(ctx, "thing-1", 0)
			return err
		},
		"ReadAll": func(ctx context.Context) error {
			_, _, err := store.ReadAll(ctx, 0, nil, 10)
			return err
		},
		"Changed": func(ctx context.Context) error { return store.Changed(ctx, newest) },
		"Head": func(ctx context.Context) error {
			_, err := store.Head(ctx)
			return err
		},
	} {
		begun := time.Now()
		if err := call(cancelled); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with an ended context: %v", name, err)
		}
		if took := time.Since(begun); took > patience/3 { // it waits for nothing, not for what a store is patient with either
			t.Errorf("%s with an ended context took %v", name, took)
		}
	}
}
