package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/eventstore/postgres"
	pg "github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/test/pgtest"
)

// counted is the event of these tests.
type counted struct{ N int }

// EventType is the public name.
func (counted) EventType() string { return "postgres.counted" }

func registry(t *testing.T) *event.Registry {
	t.Helper()
	r, err := event.NewRegistry(event.Table(event.Of[counted](1, "postgres.counted")))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// acknowledged is what a writer was told.
type acknowledged struct {
	stream   event.Stream
	position []event.Position // by version, from 1
}

const crashes = 3

// The server dies again and again as if its machine had lost power, under writers on two replicas and a tailing
// reader. What was acknowledged is there, once, where the writer was told; and the reader, which only follows
// positions, has seen all of it.
func TestServerCrashes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	c := pgtest.Cluster(t, nil)
	if err := c.CreateDatabase(ctx, "log"); err != nil {
		t.Fatal(err)
	}
	pool, err := pg.Open(ctx, c.DSN("log"), pg.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := pg.Migrate(ctx, pool); err != nil {
		t.Fatal(err)
	}
	replicas := []*postgres.Store{open(t, c.DSN("log"), registry(t)), open(t, c.DSN("log"), registry(t))}
	reader := open(t, c.DSN("log"), registry(t))

	writing, stopWriting := context.WithCancel(ctx)
	results := make([]acknowledged, 8)
	var total atomic.Int64
	var writers sync.WaitGroup
	for i := range results {
		results[i].stream = event.StreamOf("thing", fmt.Sprint(i))
		writers.Go(func() { keepAppending(ctx, writing, t, replicas[i%2], &results[i], &total) })
	}
	seen := make(chan map[event.Position]event.Recorded, 1)
	go func() { seen <- followAll(ctx, t, reader) }()

	for crash := range crashes {
		before := total.Load()
		eventually(ctx, t, "the writers go on", func() bool { return total.Load() >= before+100 })
		if err := c.Crash(ctx); err != nil {
			t.Fatalf("crash %d: %v", crash, err)
		}
	}
	before := total.Load()
	eventually(ctx, t, "the writers go on", func() bool { return total.Load() >= before+100 })
	stopWriting()
	writers.Wait()
	if _, err := replicas[0].Append(ctx, lastStream, 0, event.Meta{}, counted{}); err != nil {
		t.Fatal(err)
	}
	compare(ctx, t, reader, results, <-seen)
	t.Logf("%d appends acknowledged through %d crashes", total.Load(), crashes)
}

const lastStream = event.Stream("last-1")

// keepAppending appends one event after the other; an unknown outcome is tried again with the same command.
func keepAppending(
	ctx, writing context.Context, t *testing.T, s event.Store, told *acknowledged, total *atomic.Int64,
) {
	for n := 1; writing.Err() == nil; n++ {
		meta, expect := event.Meta{Command: uuid.New()}, event.Version(len(told.position))
		p, err := s.Append(ctx, told.stream, expect, meta, counted{n})
		for errors.Is(err, event.ErrUnknownOutcome) || errors.Is(err, event.ErrUnavailable) {
			if ctx.Err() != nil {
				return
			}
			p, err = s.Append(ctx, told.stream, expect, meta, counted{n})
		}
		if err != nil {
			t.Errorf("%s after version %d: %v", told.stream, expect, err)
			return
		}
		told.position = append(told.position, p)
		total.Add(1)
	}
}

// followAll tails the log to lastStream's event, over every failure.
func followAll(ctx context.Context, t *testing.T, s event.Store) map[event.Position]event.Recorded {
	seen := map[event.Position]event.Recorded{}
	var after event.Position
	for ctx.Err() == nil {
		events, head, err := s.ReadAll(ctx, after, nil, 50)
		if err != nil {
			if !errors.Is(err, event.ErrUnavailable) {
				t.Errorf("reading while the server is away: %v", err)
			}
			pause(ctx, 20*time.Millisecond)
			continue
		}
		for _, e := range events {
			if _, again := seen[e.Position]; again {
				t.Errorf("position %d was seen twice", e.Position)
			}
			seen[e.Position] = e
			if e.Stream == lastStream {
				return seen
			}
		}
		if after = head; len(events) == 0 {
			_ = s.Changed(ctx, after) // its only error is the end of ctx, which ends the loop
		}
	}
	return seen
}

// compare holds what the writers were told against the log and against what the reader saw.
func compare(
	ctx context.Context, t *testing.T, s event.Store, results []acknowledged, seen map[event.Position]event.Recorded,
) {
	count := 1 // lastStream's
	for _, told := range results {
		events, err := s.Read(ctx, told.stream, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(events) != len(told.position) {
			t.Errorf("%s: %d appends were acknowledged, the log holds %d", told.stream, len(told.position), len(events))
		}
		if _, err := event.VerifyChain(told.stream, events); err != nil {
			t.Error(err)
		}
		for i, e := range events[:min(len(events), len(told.position))] {
			if e.Position != told.position[i] || e.Event != (counted{i + 1}) {
				t.Errorf("%s version %d: told position %d, stands at %d", told.stream, i+1, told.position[i], e.Position)
			}
			if seen[e.Position].ID != e.ID {
				t.Errorf("the reader has not seen %s version %d", e.Stream, e.Version)
			}
		}
		count += len(events)
	}
	if len(seen) != count {
		t.Errorf("the reader saw %d events, the log holds %d", len(seen), count)
	}
}

// eventually polls until true holds, or fails when ctx ends.
func eventually(ctx context.Context, t *testing.T, what string, holds func() bool) {
	t.Helper()
	for !holds() {
		if ctx.Err() != nil {
			t.Fatalf("never: %s", what)
		}
		pause(ctx, 5*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
