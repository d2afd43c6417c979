package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/eventstore/postgres"
	pg "github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/test/pgtest"
)

// A follower on another replica wakes by notification: it looks by itself once an hour.
func TestNotificationWakesOtherReplica(t *testing.T) {
	dsn := pgtest.DSN(t)
	writer, follower := open(t, dsn, registry(t)), openWith(t, dsn, registry(t), postgres.Options{Poll: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	v := event.Version(0)
	add := func() event.Position {
		p, err := writer.Append(ctx, "thing-1", v, event.Meta{}, counted{int(v)})
		if err != nil {
			t.Fatal(err)
		}
		v++
		return p
	}
	woken := make(chan error, 1)
	go func() { woken <- follower.Changed(ctx, 0) }()
	eventually(ctx, t, "the writer knows of the other, which listens", func() bool {
		add()
		return len(woken) > 0
	})
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
	for range 30 {
		if err := follower.Changed(ctx, add()-1); err != nil {
			t.Fatalf("version %d: %v", v, err)
		}
	}
}

// An event id stands once in the log: a command that appended once cannot append elsewhere, and its refusal does not
// fail the appends that share its transaction.
func TestIDStandsOnce(t *testing.T) {
	s := open(t, pgtest.DSN(t), registry(t))
	meta := event.Meta{Command: uuid.New()}
	if _, err := s.Append(t.Context(), "thing-1", 0, meta, counted{1}); err != nil {
		t.Fatal(err)
	}
	results := make(chan error, 20)
	for n := range cap(results) {
		go func() {
			_, err := s.Append(t.Context(), event.StreamOf("other", fmt.Sprint(n)), 0, event.Meta{}, counted{n})
			results <- err
		}()
	}
	_, err := s.Append(t.Context(), "thing-1", 1, meta, counted{1})
	var conflict *event.ConflictError
	if !errors.As(err, &conflict) || conflict.Actual != 1 {
		t.Errorf("the same id at another version: %v", err)
	}
	for range cap(results) {
		if err := <-results; err != nil {
			t.Errorf("a neighbour: %v", err)
		}
	}
}

// While the server hangs, a caller gets its answer when its context ends, whichever way its append then goes.
func TestCallerReturnsWhileWriterIsBlocked(t *testing.T) {
	pool := pgtest.New(t)
	s := open(t, pgtest.DSN(t), registry(t))
	if _, err := s.Append(t.Context(), "thing-0", 0, event.Meta{}, counted{}); err != nil { // connects the writer
		t.Fatal(err)
	}
	blocker, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := blocker.Exec(t.Context(), "LOCK TABLE events IN SHARE ROW EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	sent, waits := make(chan error, 1), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	meta := event.Meta{Command: uuid.New()}
	go func() {
		_, err := s.Append(ctx, "thing-1", 0, meta, counted{1})
		sent <- err
	}()
	eventually(t.Context(), t, "the append is under way", func() bool {
		var blocked bool
		err := pool.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)").Scan(&blocked)
		return err == nil && blocked
	})
	impatient, leave := context.WithCancel(t.Context())
	go func() { // it waits behind the first, unsent
		_, err := s.Append(impatient, "thing-2", 0, event.Meta{}, counted{1})
		waits <- err
	}()
	leave() // before the first does: the one that waits could take its place
	if err := <-waits; !errors.Is(err, event.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("an append that waits: %v", err)
	}
	cancel()
	if err := <-sent; !errors.Is(err, event.ErrUnknownOutcome) || !errors.Is(err, context.Canceled) {
		t.Errorf("an append under way: %v", err)
	}
	if err := blocker.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p, err := s.Append(t.Context(), "thing-1", 0, meta, counted{1}); p != 2 || err != nil {
		t.Errorf("the same append again: position %d, %v", p, err)
	}
	if head, err := s.Head(t.Context()); head != 2 || err != nil {
		t.Errorf("the log stands at %d, %v", head, err)
	}
}

// After Close an append is refused, and says that nothing was written.
func TestClosed(t *testing.T) {
	pool := pgtest.New(t)
	s, err := postgres.New(t.Context(), pool, registry(t), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := s.Append(t.Context(), "thing-1", 0, event.Meta{}, counted{1}); !errors.Is(err, event.ErrUnavailable) {
		t.Errorf("append after close: %v", err)
	}
}

// A database that refuses to write is an error at once, not a wait.
func TestRefusingDatabase(t *testing.T) {
	pool := pgtest.New(t)
	_, err := pool.Exec(t.Context(), "ALTER TABLE events ADD CONSTRAINT never CHECK (type <> 'postgres.counted')")
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, pgtest.DSN(t), registry(t))
	if _, err := s.Append(t.Context(), "thing-1", 0, event.Meta{}, counted{1}); !errors.Is(err, event.ErrUnavailable) {
		t.Errorf("append: %v", err)
	}
}

// The database itself keeps the log append-only.
func TestAppendOnly(t *testing.T) {
	pool := pgtest.New(t)
	s := open(t, pgtest.DSN(t), registry(t))
	if _, err := s.Append(t.Context(), "thing-1", 0, event.Meta{}, counted{1}); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{"UPDATE events SET data = '{}'", "DELETE FROM events", "TRUNCATE events"} {
		if _, err := pool.Exec(t.Context(), statement); pg.Fault(err) == nil {
			t.Errorf("%s was allowed", statement)
		}
	}
}

// No server: opening fails with what a caller can act on.
func TestNoServer(t *testing.T) {
	pool := pgtest.New(t)
	pool.Close()
	if _, err := postgres.New(t.Context(), pool, registry(t), postgres.Options{}); !errors.Is(err, event.ErrUnavailable) {
		t.Errorf("New on a closed pool: %v", err)
	}
}
