package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/event"
)

// followerName is the checkpoint's, and the follower's on the bus.
const followerName = "wakeups"

// followBatch is how many events one statement takes in at most.
const followBatch = 1000

// progress is how far this process knows the log to be turned into wake-ups.
type progress struct {
	known    bool
	position event.Position // nothing up to here is left to wake
	saved    event.Position // the checkpoint as last seen; not above position
}

// Name is the follower's on the bus.
func (w *Wakeups) Name() string { return followerName }

// Position is how far the table has come, as far as this process has seen. It costs no I/O.
func (w *Wakeups) Position() event.Position { return w.progress().position }

func (w *Wakeups) progress() progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

func (w *Wakeups) reached(p progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = p
}

// seen takes in what the checkpoint says, asked after known was true. It is behind that where a crash of the database took
// its last moments back: the bus then finds this follower behind, too.
func (w *Wakeups) seen(known progress, checkpoint *event.Position) {
	if known.known && (checkpoint == nil || *checkpoint < known.saved) {
		w.reached(progress{})
	}
}

// CatchUp wakes what the events since the checkpoint wake. Where there is no checkpoint yet, the table is built from the
// whole log.
func (w *Wakeups) CatchUp(ctx context.Context) error {
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for more := true; more; {
		var err error
		if more, err = w.advance(ctx); err != nil {
			w.reached(progress{})
			return err
		}
	}
	return nil
}

func (w *Wakeups) advance(ctx context.Context) (more bool, err error) {
	at := w.progress()
	if !at.known {
		return w.loadCheckpoint(ctx)
	}
	events, head, err := w.log.ReadAll(ctx, at.position, nil, followBatch)
	if err != nil {
		return false, fmt.Errorf("%s: read the log after %s: %w", followerName, at.position, err)
	}
	if head <= at.position {
		return false, nil
	}
	woken := wakeSet{}
	for _, r := range events {
		for _, m := range w.managers {
			if key, ok := m.Wakes(r); ok {
				woken[wakeKey{m.Name, key}] = struct{}{}
			}
		}
	}
	if len(woken) == 0 && head-at.saved < followBatch { // a crash would only read this stretch again
		w.reached(progress{known: true, position: head, saved: at.saved})
		return event.MayHaveMore(w.log, head), nil
	}
	if err := w.write(ctx, at, woken, head); err != nil {
		return false, err
	}
	now := w.progress()
	return !now.known || event.MayHaveMore(w.log, now.position), nil
}

func (w *Wakeups) loadCheckpoint(ctx context.Context) (more bool, err error) {
	const sql = `SELECT position FROM checkpoints WHERE projection = $1`
	var position event.Position
	switch err := w.pool.QueryRow(ctx, sql, followerName).Scan(&position); {
	case errors.Is(err, pgx.ErrNoRows):
		return true, w.rebuild(ctx)
	case err != nil:
		return false, fmt.Errorf("checkpoint of %s: %w", followerName, Fault(err))
	}
	w.reached(progress{known: true, position: position, saved: position})
	return true, nil
}

type wakeKey struct{ manager, key string }

type wakeSet map[wakeKey]struct{}

func (s wakeSet) columns() (managers, keys []string) {
	list := make([]wakeKey, 0, len(s))
	for k := range s {
		list = append(list, k)
	}
	slices.SortFunc(list, func(a, b wakeKey) int {
		return strings.Compare(a.manager+"\x00"+a.key, b.manager+"\x00"+b.key)
	})
	for _, k := range list {
		managers, keys = append(managers, k.manager), append(keys, k.key)
	}
	return managers, keys
}

// Rows and checkpoint move in one statement, and only from where this process believed the checkpoint to be: of several
// replicas that read the same stretch one writes it.
const followSQL = `WITH moved AS (
		UPDATE checkpoints SET position = $2, updated_at = now() WHERE projection = $1 AND position = $3 RETURNING 1),
	woken AS (
		INSERT INTO wakeups (manager, key)
		SELECT s.manager, s.key FROM unnest($4::text[], $5::text[]) AS s (manager, key)
		WHERE EXISTS (SELECT FROM moved) ORDER BY 1, 2
		ON CONFLICT (manager, key) DO UPDATE SET due = least(wakeups.due, now()), generation = wakeups.generation + 1)
	SELECT EXISTS (SELECT FROM moved)`

func (w *Wakeups) write(ctx context.Context, at progress, woken wakeSet, head event.Position) error {
	managers, keys := woken.columns()
	var moved bool
	batch := &pgx.Batch{}
	batch.Queue(unsynced)
	batch.Queue(followSQL, followerName, head, at.saved, managers, keys).
		QueryRow(func(row pgx.Row) error { return row.Scan(&moved) })
	if err := w.pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("wake %d keys: %w", len(keys), Fault(err))
	}
	if !moved { // another process did, or the database lost its last moments: see where it is
		w.reached(progress{})
		w.nudge() // to whatever that one has woken
		return nil
	}
	w.reached(progress{known: true, position: head, saved: head})
	if len(keys) > 0 {
		w.nudge()
	}
	return nil
}

// Rebuild derives the table from the log: every key that has something left to do is due now, every other is gone.
func (w *Wakeups) Rebuild(ctx context.Context) error {
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return w.rebuild(ctx)
}

// Rows that stay are woken rather than made anew: who works on one finds it dirty.
const rebuildSQL = `WITH owner AS (
		INSERT INTO checkpoints (projection, version, position) VALUES ($1, 1, $2)
		ON CONFLICT (projection) DO UPDATE SET position = $2, updated_at = now()),
	gone AS (
		DELETE FROM wakeups w WHERE NOT EXISTS (
			SELECT FROM unnest($3::text[], $4::text[]) AS s (manager, key) WHERE s.manager = w.manager AND s.key = w.key))
	INSERT INTO wakeups (manager, key) SELECT * FROM unnest($3::text[], $4::text[]) ORDER BY 1, 2
	ON CONFLICT (manager, key) DO UPDATE SET due = least(wakeups.due, now()), generation = wakeups.generation + 1`

func (w *Wakeups) rebuild(ctx context.Context) error {
	woken, head, err := w.derive(ctx)
	if err != nil {
		return err
	}
	managers, keys := woken.columns()
	if _, err := w.pool.Exec(ctx, rebuildSQL, followerName, head, managers, keys); err != nil {
		return fmt.Errorf("rebuild wake-ups: %w", Fault(err))
	}
	w.reached(progress{known: true, position: head, saved: head})
	w.nudge()
	return nil
}

// derive reads the whole log: what an event wakes is due until one says that it rests.
func (w *Wakeups) derive(ctx context.Context) (wakeSet, event.Position, error) {
	due := wakeSet{}
	var at event.Position
	for {
		events, head, err := w.log.ReadAll(ctx, at, nil, followBatch)
		if err != nil {
			return nil, 0, fmt.Errorf("%s: read the log after %s: %w", followerName, at, err)
		}
		for _, r := range events {
			for _, m := range w.managers {
				if key, ok := m.Wakes(r); ok {
					due[wakeKey{m.Name, key}] = struct{}{}
				} else if m.Rests != nil {
					if key, ok := m.Rests(r); ok {
						delete(due, wakeKey{m.Name, key})
					}
				}
			}
		}
		if head <= at {
			return due, at, nil
		}
		at = head
	}
}
