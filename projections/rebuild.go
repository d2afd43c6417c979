package projections

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/better-compute/metal/domain/fault"
)

// Rebuild folds the whole log into new tables beside the live ones and swaps them when they are level, so that reads
// never go dark: until then they see the old rows, which go on following the log. progress, which may be nil, is
// called after every batch. Grants and foreign objects on the tables are the operator's to renew. Errors: CONFLICT
// while another rebuild of the projection runs, INVALID_CONFIG where a newer program built it.
func (r *Runner) Rebuild(ctx context.Context, name string, progress func(Progress)) error {
	l, err := r.lane(name)
	if err != nil {
		return err
	}
	return r.exclusively(ctx, l, func(conn *pgx.Conn) error { return r.rebuild(ctx, conn, l, progress) })
}

// renew rebuilds a projection whose version was raised, unless another process has: then it waits until that is done.
func (r *Runner) renew(ctx context.Context, l *lane) error {
	for {
		err := r.exclusively(ctx, l, func(conn *pgx.Conn) error {
			c, err := readCheckpoint(ctx, conn, l.Projection)
			if err != nil || c.version >= l.Version {
				return err
			}
			return r.rebuild(ctx, conn, l, nil)
		})
		if !errors.Is(err, fault.New(fault.Conflict, "")) {
			return err
		}
		if err := pause(ctx, 100*time.Millisecond, 300*time.Millisecond); err != nil {
			return err
		}
	}
}

// exclusively runs do on a connection that holds the lock of the projection's rebuild. The lock goes with the
// connection where the process dies.
func (r *Runner) exclusively(ctx context.Context, l *lane, do func(*pgx.Conn) error) error {
	pooled, err := r.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("rebuild %s: %w", l.Name, err)
	}
	conn := pooled.Hijack() // its session state must not come back to the pool
	defer r.release(context.WithoutCancel(ctx), conn, l)
	var locked bool
	if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock(`+rebuildLock+`)`, l.Name).Scan(&locked); err != nil {
		return fmt.Errorf("rebuild %s: %w", l.Name, err)
	}
	if !locked {
		return fault.New(fault.Conflict, "the read model %s is being rebuilt already", l.Name).
			WithRemedy("wait until that rebuild has ended")
	}
	return do(conn)
}

// rebuildLock is the key of the advisory lock of a projection's rebuild, of its name.
const rebuildLock = `hashtextextended('metal projection rebuild ' || $1, 0)`

// releasePatience bounds the good-bye to a server that may be away.
const releasePatience = 2 * time.Second

// release gives the locks back at once: the server would only notice the end of the connection a little later. So it does where a
// statement was broken off, which costs the connection: that is waited for, so that who is told of the end may begin anew.
func (r *Runner) release(ctx context.Context, conn *pgx.Conn, l *lane) {
	ctx, cancel := context.WithTimeout(ctx, releasePatience)
	defer cancel()
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_unlock_all()"); err != nil {
		_, _ = r.pool.Exec(ctx, `SELECT pg_advisory_xact_lock(`+rebuildLock+`)`, l.Name) // it fails where the server is away
	}
	_ = conn.Close(ctx)
}

func (r *Runner) rebuild(ctx context.Context, conn *pgx.Conn, l *lane, progress func(Progress)) error {
	if progress == nil {
		progress = func(Progress) {}
	}
	c, err := readCheckpoint(ctx, conn, l.Projection)
	if err != nil {
		return err
	}
	if c.version > l.Version {
		return newerThan(l.Projection, c.version)
	}
	s, err := newSide(ctx, conn, r.store, l, "rebuild_"+l.Name)
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return s.fold(ctx, end, progress) },
		func() error { return s.index(ctx) },
		func() error { return s.fold(ctx, end, progress) }, // what came meanwhile, so that the swap has little left
		func() error { return s.swapSoon(ctx) },
	} {
		if err := step(); err != nil {
			return errors.Join(err, s.drop(ctx))
		}
	}
	l.forget()
	return nil
}

// lockNotAvailable is the SQLSTATE of a lock that was not had in time.
const lockNotAvailable = "55P03"

// swapSoon tries to swap until no long reader stands in the way: waiting in the queue for its lock would hold up
// every reader behind it.
func (s *side) swapSoon(ctx context.Context) error {
	for {
		before := s.position
		err := s.swap(ctx)
		var answered *pgconn.PgError
		if err == nil || !errors.As(err, &answered) || answered.Code != lockNotAvailable {
			return err
		}
		s.position = before
		if err := pause(ctx, 200*time.Millisecond, time.Second); err != nil {
			return err
		}
	}
}

// swap folds the rest and puts the side tables in the place of the live ones, all in one transaction that owns the
// projection.
func (s *side) swap(ctx context.Context) error {
	tx, err := s.begin(ctx)
	if err != nil {
		return fmt.Errorf("swap %s: %w", s.Name, err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	var c checkpoint
	const lock = `SELECT version, position FROM checkpoints WHERE projection = $1 FOR UPDATE`
	if err := tx.QueryRow(ctx, lock, s.Name).Scan(&c.version, &c.position); err != nil {
		return fmt.Errorf("swap %s: %w", s.Name, err)
	}
	if err := s.foldTo(ctx, tx, c.position); err != nil {
		return fmt.Errorf("swap %s: %w", s.Name, err)
	}
	swap := []string{"SET LOCAL lock_timeout = '500ms'"}
	for _, table := range s.Tables {
		swap = append(swap, fmt.Sprintf("DROP TABLE %s.%s", s.live, table),
			fmt.Sprintf("ALTER TABLE %s.%s SET SCHEMA %s", s.schema, table, s.live))
	}
	if _, err := tx.Exec(ctx, strings.Join(append(swap, "DROP SCHEMA "+s.schema), ";\n")); err != nil {
		return fmt.Errorf("swap %s: %w", s.Name, err)
	}
	const moved = `UPDATE checkpoints SET version = $2, position = $3, error = NULL, error_position = NULL,
		failed_at = NULL, updated_at = now() WHERE projection = $1`
	if _, err := tx.Exec(ctx, moved, s.Name, s.Version, s.position); err != nil {
		return fmt.Errorf("swap %s: %w", s.Name, err)
	}
	return tx.Commit(ctx)
}
