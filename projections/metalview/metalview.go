package metalview

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/projections"
)

// Name is the projection's name, to wait for it.
const Name = "metalview"

// New is the projection.
func New() projections.Projection {
	return projections.Projection{
		Name: Name, Version: 3, Pace: 50 * time.Millisecond,
		Consumes: projections.Types(node.Events), Tables: []string{"metalview_nodes"},
		Apply: func(ctx context.Context, tx pgx.Tx, batch []event.Recorded) error {
			f := newFold()
			if err := f.Add(ctx, tx, batch); err != nil {
				return err
			}
			return f.Flush(ctx, tx)
		},
		Bulk: func() projections.Bulk { return newFold() },
	}
}

const table = "metalview_nodes"

// fold holds the rows that a run of batches touches.
type fold struct{ rows map[string]*row }

// row is one machine with what its columns need beside the state. Version zero: it has no row yet.
type row struct {
	state           node.State
	version         event.Version
	position        event.Position
	at              time.Time
	createdPosition event.Position
	createdAt       time.Time
}

func newFold() *fold { return &fold{rows: map[string]*row{}} }

// Held is the number of machines whose rows wait to be written.
func (f *fold) Held() int { return len(f.rows) }

// Add folds a batch over the rows that it touches.
func (f *fold) Add(ctx context.Context, tx pgx.Tx, batch []event.Recorded) error {
	if err := f.load(ctx, tx, batch); err != nil {
		return err
	}
	for _, e := range batch {
		f.rows[e.Stream.ID()].apply(e)
	}
	return nil
}

// apply folds one event. One that the row holds already changes nothing; one that this program does not know raises
// the version alone.
func (r *row) apply(e event.Recorded) {
	if e.Version <= r.version {
		return
	}
	if known, ok := e.Event.(node.Event); ok {
		r.state = node.Evolve(r.state, known)
	}
	if r.version == 0 {
		r.createdPosition, r.createdAt = e.Position, e.Meta.At
	}
	r.version, r.position, r.at = e.Version, e.Position, e.Meta.At
}

// load reads the rows of the batch that are not held yet. A stream's first event needs no look.
func (f *fold) load(ctx context.Context, tx pgx.Tx, batch []event.Recorded) error {
	var wanted []string
	for _, e := range batch {
		key := e.Stream.ID()
		if f.rows[key] != nil {
			continue
		}
		known, remembered := projections.Remembered[row](ctx, table, key)
		if f.rows[key] = known; known == nil {
			f.rows[key] = &row{}
		}
		if !remembered {
			wanted = append(wanted, key)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	const sql = `SELECT node_id, state, version, position, updated_at, created_position, created_at
		FROM metalview_nodes WHERE node_id = ANY($1)`
	rows, err := tx.Query(ctx, sql, wanted)
	if err != nil {
		return fmt.Errorf("load nodes: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var key string
		var state []byte
		var r row
		err := rows.Scan(&key, &state, &r.version, &r.position, &r.at, &r.createdPosition, &r.createdAt)
		if err != nil {
			return fmt.Errorf("load nodes: %w", err)
		}
		if err := json.Unmarshal(state, &r.state); err != nil {
			return fmt.Errorf("state of node %s: %w", key, err)
		}
		f.rows[key] = &r
	}
	return rows.Err()
}
