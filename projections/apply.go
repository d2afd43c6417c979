package projections

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/better-compute/metal/domain/event"
)

// span is a stretch of the log: the consumed events above from and up to head.
type span struct {
	from   event.Position
	events []event.Recorded
	head   event.Position
}

// begin opens a transaction of a projection. Its commit is not waited for: rows and checkpoint are lost or kept
// together, and the log has what was lost. An owner that hangs loses its turn. Statements are planned once, and go by
// the primary keys: they take as many rows as there are, and planning costs as much as they do.
var begin = pgx.TxOptions{
	BeginQuery: "begin; set local synchronous_commit = off; set local idle_in_transaction_session_timeout = '10s'; " +
		"set local plan_cache_mode = force_generic_plan; set local enable_seqscan = off",
}

// apply applies a span, if it is still the next one, and moves the checkpoint to its head. more is true unless an
// error stopped it: there may be further events, or another process has moved on.
func (r *Runner) apply(ctx context.Context, l *lane, s span) (more bool, err error) {
	current, refused, err := r.whole(ctx, l, s)
	switch {
	case current:
		l.rows.keep()
		l.passed(s.head)
		return true, nil
	case refused:
		l.rows.forget()
		return r.single(ctx, l, s)
	}
	l.rows.forget()
	return err == nil, err
}

// whole applies a span in one transaction. refused: its events can't be applied together.
func (r *Runner) whole(ctx context.Context, l *lane, s span) (current, refused bool, err error) {
	conn, err := r.pool.Acquire(ctx)
	if err != nil {
		return false, false, fmt.Errorf("%s: %w", l.Name, err)
	}
	defer conn.Release() // in the midst of a transaction it is closed
	tx, c, owned, err := own(ctx, conn.Conn(), l.Name)
	if err != nil {
		return false, false, err
	}
	if current, err = r.next(ctx, l, s, c, owned); !current {
		return false, false, errors.Join(err, tx.Rollback(context.WithoutCancel(ctx)))
	}
	if err = run(l.rows.begin(ctx, s.events), tx, l, s.events); err == nil {
		err = tx.commitAt(ctx, l.Name, s.head)
	}
	if err == nil {
		return true, false, nil
	}
	refused = !passing(ctx, tx, err)
	_ = tx.Rollback(context.WithoutCancel(ctx)) // what counts is the first error
	return false, refused, fmt.Errorf("%s: %w", l.Name, err)
}

// single applies a span that failed as a whole event by event, and stops at the one that can't be applied.
func (r *Runner) single(ctx context.Context, l *lane, s span) (more bool, err error) {
	reached := s.from
	var failing event.Position
	var cause error
	current, err := r.owning(ctx, l, s, func(tx pgx.Tx) error {
		for i, e := range s.events {
			cause = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return run(ctx, tx, l, s.events[i:i+1]) })
			if cause == nil {
				reached = e.Position
				continue
			}
			if passing(ctx, tx, cause) {
				return cause
			}
			failing = e.Position
			return stopCheckpoint(ctx, tx, l.Name, reached, failing, cause)
		}
		return moveCheckpoint(ctx, tx, l.Name, s.head)
	})
	switch {
	case err != nil || !current:
		return err == nil, err
	case cause != nil:
		stopped := stoppedAt(l.Name, reached, failing)
		l.failed(reached, stopped, r.backoff)
		return false, errors.Join(stopped, cause)
	}
	l.passed(s.head)
	return true, nil
}

// owning runs do in a transaction that owns the projection. current is false where it isn't at the span's beginning
// any more, or another owns it.
func (r *Runner) owning(ctx context.Context, l *lane, s span, do func(pgx.Tx) error) (current bool, err error) {
	tx, err := r.pool.BeginTx(ctx, begin)
	if err != nil {
		return false, fmt.Errorf("%s: %w", l.Name, err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit it does nothing
	c, owned, err := scanLocked(tx.QueryRow(ctx, lockSQL, l.Name))
	if err != nil {
		return false, fmt.Errorf("lock checkpoint of %s: %w", l.Name, err)
	}
	if current, err = r.next(ctx, l, s, c, owned); !current {
		return false, err
	}
	if err := do(tx); err != nil {
		return false, fmt.Errorf("%s: %w", l.Name, err)
	}
	if err := tx.Commit(ctx); err != nil {
		return false, fmt.Errorf("%s: commit: %w", l.Name, err)
	}
	return true, nil
}

// next tells whether a span is the next one. Where it isn't, or another owns the projection, the checkpoint is to be read again:
// in the latter case a little later.
func (r *Runner) next(ctx context.Context, l *lane, s span, c checkpoint, owned bool) (bool, error) {
	switch {
	case !owned:
		l.forget()
		return false, pause(ctx, 2*time.Millisecond, 20*time.Millisecond)
	case c.version != l.Version || c.position != s.from:
		l.forget()
		return false, nil
	}
	return true, nil
}

// run calls Apply. A panic in it is an error like any other: the projection stops and says so.
func run(ctx context.Context, tx pgx.Tx, l *lane, batch []event.Recorded) (err error) {
	if len(batch) == 0 {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return l.Apply(ctx, tx, batch)
}

// passing reports whether an error is of the moment and not of the event: the context ended, the connection or the
// server is away, or another transaction was in the way.
func passing(ctx context.Context, tx pgx.Tx, err error) bool {
	ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	if ended || ctx.Err() != nil || tx.Conn().IsClosed() {
		return true
	}
	var answered *pgconn.PgError
	if !errors.As(err, &answered) {
		return errors.Is(err, pgx.ErrTxClosed) || pgconn.Timeout(err)
	}
	// Classes of SQLSTATE (PostgreSQL, appendix A): connection, invalid transaction state, transaction rollback,
	// insufficient resources, object in use, operator intervention, system error.
	for _, class := range []string{"08", "25", "40", "53", "55", "57", "58"} {
		if strings.HasPrefix(answered.Code, class) {
			return true
		}
	}
	return false
}

// pause waits for a random time of the range, or until ctx ends.
func pause(ctx context.Context, least, most time.Duration) error {
	timer := time.NewTimer(least + rand.N(most-least)) //nolint:gosec // jitter needs no secrecy
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
