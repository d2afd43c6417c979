package projections

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
)

// checkpoint is one row of checkpoints.
type checkpoint struct {
	version       int
	position      event.Position
	err           *string
	errorPosition *event.Position
}

// stopped is the fault for callers where the projection stands still.
func (c checkpoint) stopped(name string) *fault.Error {
	if c.err == nil || c.errorPosition == nil {
		return nil
	}
	return stoppedAt(name, c.position, *c.errorPosition)
}

func stoppedAt(name string, reached, failing event.Position) *fault.Error {
	return fault.New(fault.Unavailable, "the read model %s stands still at position %s: it can't apply the event at %s",
		name, reached, failing).
		WithDetail("projection", name).WithDetail("reached", reached).WithDetail("failing", failing).
		WithRemedy("see the finding projection-stopped in `metalctl doctor`; nothing is lost, and no event is skipped")
}

// read gives the checkpoint without locking it, made first where there is none.
func readCheckpoint(ctx context.Context, db DB, p Projection) (checkpoint, error) {
	const sql = `WITH made AS (
			INSERT INTO checkpoints (projection, version)
			SELECT $1, $2 WHERE NOT EXISTS (SELECT FROM checkpoints WHERE projection = $1)
			ON CONFLICT DO NOTHING RETURNING version, position, error, error_position)
		SELECT version, position, error, error_position FROM checkpoints WHERE projection = $1
		UNION ALL SELECT version, position, error, error_position FROM made`
	var c checkpoint
	err := db.QueryRow(ctx, sql, p.Name, p.Version).Scan(&c.version, &c.position, &c.err, &c.errorPosition)
	if errors.Is(err, pgx.ErrNoRows) { // another process made it between the two looks of the statement
		return readCheckpoint(ctx, db, p)
	}
	if err != nil {
		return checkpoint{}, fmt.Errorf("checkpoint of %s: %w", p.Name, err)
	}
	return c, nil
}

// lockSQL takes the ownership of the projection for one transaction. There is no row where another has it.
const lockSQL = `SELECT version, position FROM checkpoints WHERE projection = $1 FOR UPDATE SKIP LOCKED`

func scanLocked(row pgx.Row) (c checkpoint, owned bool, err error) {
	err = row.Scan(&c.version, &c.position)
	if errors.Is(err, pgx.ErrNoRows) {
		return checkpoint{}, false, nil
	}
	return c, err == nil, err
}

func moveCheckpoint(ctx context.Context, tx pgx.Tx, name string, to event.Position) error {
	const sql = `UPDATE checkpoints SET position = $2, error = NULL, error_position = NULL, failed_at = NULL,
		updated_at = now() WHERE projection = $1`
	if _, err := tx.Exec(ctx, sql, name, to); err != nil {
		return fmt.Errorf("move checkpoint of %s: %w", name, err)
	}
	return nil
}

// maxErrorBytes bounds what a checkpoint keeps of an error.
const maxErrorBytes = 4 << 10

// stopCheckpoint records the error of the event at failing; everything up to reached is applied.
func stopCheckpoint(ctx context.Context, tx pgx.Tx, name string, reached, failing event.Position, cause error) error {
	text := cause.Error()
	if len(text) > maxErrorBytes {
		text = text[:maxErrorBytes] + "…"
	}
	text = Text(text)
	const sql = `UPDATE checkpoints SET position = $2, error = $3, error_position = $4, failed_at = now(),
		updated_at = now() WHERE projection = $1`
	if _, err := tx.Exec(ctx, sql, name, reached, text, failing); err != nil {
		return fmt.Errorf("stop checkpoint of %s: %w", name, err)
	}
	return nil
}
