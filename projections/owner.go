package projections

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/better-compute/metal/domain/event"
)

// owner is a transaction that owns a projection, in as few round trips as there can be: each wakes a process on either side,
// which costs more than most statements do. It begins and takes the lock in one, and what is executed waits for the next
// question, or for the commit: its errors come with that.
type owner struct {
	conn    *pgx.Conn
	waiting *pgx.Batch
}

var _ pgx.Tx = (*owner)(nil)

// settings are those of begin, for a statement among others.
const settings = `SELECT set_config('synchronous_commit', 'off', true), set_config('idle_in_transaction_session_timeout', '10s', true),
	set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true)`

// own begins a transaction with the lock on the checkpoint; owned is false where another has it.
func own(ctx context.Context, conn *pgx.Conn, name string) (o *owner, c checkpoint, owned bool, err error) {
	batch := &pgx.Batch{}
	batch.Queue("begin")
	batch.Queue(settings)
	batch.Queue(lockSQL, name).QueryRow(func(row pgx.Row) (err error) {
		c, owned, err = scanLocked(row)
		return err
	})
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return nil, checkpoint{}, false, fmt.Errorf("lock checkpoint of %s: %w", name, err)
	}
	return &owner{conn: conn, waiting: &pgx.Batch{}}, c, owned, nil
}

// Exec puts a statement off. It tells neither how many rows it has changed nor whether it has succeeded.
func (o *owner) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	o.waiting.Queue(sql, args...)
	return pgconn.CommandTag{}, nil
}

// flush executes what waits.
func (o *owner) flush(ctx context.Context) error {
	if o.waiting.Len() == 0 {
		return nil
	}
	batch := o.waiting
	o.waiting = &pgx.Batch{}
	return o.conn.SendBatch(ctx, batch).Close()
}

// Query asks after what waits.
func (o *owner) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := o.flush(ctx); err != nil {
		return nil, err
	}
	return o.conn.Query(ctx, sql, args...)
}

// QueryRow asks after what waits.
func (o *owner) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := o.flush(ctx); err != nil {
		return failedRow{err}
	}
	return o.conn.QueryRow(ctx, sql, args...)
}

type failedRow struct{ err error }

// Scan implements pgx.Row.
func (r failedRow) Scan(...any) error { return r.err }

// CopyFrom copies after what waits.
func (o *owner) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if err := o.flush(ctx); err != nil {
		return 0, err
	}
	return o.conn.CopyFrom(ctx, table, columns, rows)
}

// SendBatch sends a batch after what waits. Where that has failed, the server refuses every statement of the batch.
func (o *owner) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	_ = o.flush(ctx) // the transaction has failed with it
	return o.conn.SendBatch(ctx, batch)
}

// commitAt moves the checkpoint and commits, with what waits.
func (o *owner) commitAt(ctx context.Context, name string, to event.Position) error {
	if err := moveCheckpoint(ctx, o, name, to); err != nil {
		return err
	}
	return o.Commit(ctx)
}

// Commit implements pgx.Tx.
func (o *owner) Commit(ctx context.Context) error {
	o.waiting.Queue("commit")
	return o.flush(ctx)
}

// Rollback implements pgx.Tx. What waits is dropped.
func (o *owner) Rollback(ctx context.Context) error {
	o.waiting = &pgx.Batch{}
	if o.conn.IsClosed() || o.conn.PgConn().TxStatus() == 'I' {
		return nil
	}
	_, err := o.conn.Exec(ctx, "rollback")
	return err
}

// Prepare implements pgx.Tx.
func (o *owner) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	return o.conn.Prepare(ctx, name, sql)
}

// errWhole is what a part of the transaction is refused with.
var errWhole = errors.New("a batch is applied in one transaction")

// Begin implements pgx.Tx. There are no parts.
func (o *owner) Begin(context.Context) (pgx.Tx, error) { return nil, errWhole }

// Conn implements pgx.Tx.
func (o *owner) Conn() *pgx.Conn { return o.conn }

// LargeObjects implements pgx.Tx. No projection has any.
func (o *owner) LargeObjects() pgx.LargeObjects { panic("a projection keeps its rows in tables") }
