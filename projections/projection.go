// Package projections keeps the read models: tables in PostgreSQL that follow the log.
//
// A projection declares its name, its version, the event types it consumes, its tables, and how a batch of events
// changes them. The Runner moves the rows and the checkpoint in one transaction, so each event counts exactly once;
// it never skips an event. Rows are functions of the log alone: a rebuild gives the same rows, and Verify checks
// that.
package projections

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/event"
)

// Projection is one read model. The zero Consumes means every type of event.
//
// A change of Apply that changes rows raises Version: the runner then builds the tables afresh beside the old ones
// and swaps them. A change of the tables themselves is a migration in schema/sql.
type Projection struct {
	Name     string   // lower case, letters only; also names the schema in which it is rebuilt
	Version  int      // from 1
	Consumes []string // stored names of events
	// Tables are what Apply writes, unqualified. Each has a primary key, no foreign keys and no generated values;
	// columns are of types with equality (jsonb or text, not json).
	Tables []string
	// Apply folds a batch, in log order, into the tables with at most a few statements, whatever the batch's size.
	// It reads no clock and no other table, and applying a batch a second time changes nothing.
	Apply func(ctx context.Context, tx pgx.Tx, batch []event.Recorded) error
	// Pace is the least time between the beginnings of two batches, unless the first was full or somebody waits for the second:
	// on a busy log, events gather for so long and share a transaction. After a quiet moment nothing waits. Zero: 2 ms.
	Pace time.Duration
	// Bulk, where set, folds many batches in memory before they are written: the fast way through a rebuild. It
	// leads to the same rows as Apply.
	Bulk func() Bulk
}

// Bulk folds batches in memory.
type Bulk interface {
	// Add folds one batch. It may read rows that an earlier Flush wrote.
	Add(ctx context.Context, tx pgx.Tx, batch []event.Recorded) error
	// Held is how many rows wait for a Flush.
	Held() int
	// Flush writes every row that is held, and forgets it.
	Flush(ctx context.Context, tx pgx.Tx) error
}

// DB is what a query needs: a *pgxpool.Pool, a connection or a transaction.
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Types lists the stored names of tables of events, for Consumes.
func Types(tables ...[]event.Spec) []string {
	var names []string
	for _, table := range tables {
		for _, row := range table {
			names = append(names, row.Names...)
		}
	}
	return names
}
