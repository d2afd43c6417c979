package projections

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/event"
)

// watchEvery is how often Watch looks: one small statement for all projections.
const watchEvery = 5 * time.Second

// Watch confirms the projections every few seconds, until ctx ends. A failure waits for the next look.
func (r *Runner) Watch(ctx context.Context) error {
	turn := time.NewTicker(watchEvery)
	defer turn.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-turn.C:
			looking, cancel := context.WithTimeout(ctx, watchEvery)
			_ = r.Confirm(looking) // where the database is away, others say so
			cancel()
		}
	}
}

// Confirm looks whether the checkpoints are still where this process has seen them. Their commits are not waited for, so a
// crash of the database may take the last of them back; on a log at rest no event would show it, and Position would tell of rows
// that are gone. A projection that went back is behind the log again.
func (r *Runner) Confirm(ctx context.Context) error {
	before := map[string]event.Position{}
	for name, l := range r.lanes {
		before[name] = l.confirmed()
	}
	rows, err := r.pool.Query(ctx, `SELECT projection, position FROM checkpoints WHERE projection = ANY($1)`, r.names)
	if err != nil {
		return fmt.Errorf("checkpoints: %w", err)
	}
	var name string
	var position event.Position
	_, err = pgx.ForEachRow(rows, []any{&name, &position}, func() error {
		if position < before[name] {
			r.lanes[name].wentBack(position)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("checkpoints: %w", err)
	}
	return nil
}
