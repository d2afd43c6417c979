package projections

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/event"
)

// countedBehind is the most that Status counts of the events a projection is behind.
const countedBehind = 1000

// Status tells how one projection stands.
type Status struct {
	Projection    string         `json:"projection"`
	Version       int            `json:"version"` // of the rows; zero: it never ran
	Position      event.Position `json:"position"`
	Head          event.Position `json:"head"`            // of the log
	Behind        int            `json:"behind"`          // consumed events after position, at most 1,000 counted
	Since         *time.Time     `json:"since,omitempty"` // when the log took the first of them
	Error         string         `json:"error,omitempty"` // why it stands still
	ErrorPosition event.Position `json:"errorPosition,omitempty"`
	FailedAt      *time.Time     `json:"failedAt,omitempty"`
	UpdatedAt     *time.Time     `json:"updatedAt,omitempty"` // when the checkpoint last moved
}

// Status tells how the runner's projections stand, whichever process runs them.
func (r *Runner) Status(ctx context.Context) ([]Status, error) {
	head, err := r.store.Head(ctx)
	if err != nil {
		return nil, fmt.Errorf("head of the log: %w", err)
	}
	rows, err := r.pool.Query(ctx, `SELECT projection, version, position, coalesce(error, ''),
		coalesce(error_position, 0), failed_at, updated_at FROM checkpoints WHERE projection = ANY($1)`, r.names)
	if err != nil {
		return nil, fmt.Errorf("checkpoints: %w", err)
	}
	held, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Status, err error) {
		return s, row.Scan(&s.Projection, &s.Version, &s.Position, &s.Error, &s.ErrorPosition, &s.FailedAt, &s.UpdatedAt)
	})
	if err != nil {
		return nil, fmt.Errorf("checkpoints: %w", err)
	}
	all := make([]Status, len(r.names))
	for i, name := range r.names {
		all[i].Projection = name
		for _, s := range held {
			if s.Projection == name {
				all[i] = s
			}
		}
		all[i].Head = head
		if err := r.behind(ctx, &all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// behind counts what the projection has not applied.
func (r *Runner) behind(ctx context.Context, s *Status) error {
	if s.Position >= s.Head {
		return nil
	}
	events, _, err := r.store.ReadAll(ctx, s.Position, r.lanes[s.Projection].Consumes, countedBehind)
	if err != nil {
		return fmt.Errorf("%s: read the log after %s: %w", s.Projection, s.Position, err)
	}
	if s.Behind = len(events); s.Behind > 0 {
		s.Since = &events[0].At
	}
	return nil
}
