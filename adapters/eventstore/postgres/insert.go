package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	pg "github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/domain/event"
)

// appendLock is the advisory lock of the log, held from before positions are given until the commit.
const appendLock = 0x6d6574616c_02

// settings keep the writer's plans on the indexes, whatever the table looked like when they were made: the statement
// is planned once, perhaps on an empty table. An append is durable when it returns, also where the database's default
// is otherwise.
const settings = `
	SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off;
	SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'`

const lockSQL = "SELECT pg_advisory_xact_lock($1)"

// insertSQL judges a batch of appends and adds those whose stream is at the expected version. It must be a statement
// of its own after the lock was taken: its snapshot then holds all that was committed before. For each append it
// returns the stream's version, the newest position before the batch, the time that the log gives, and where the version is
// another, the position of the last event if the very same events are there already.
//
// $1 stream, $2 expected version and $3 number of events, by append; $4 ordinal of the append, $5 ordinal within it,
// $6 id, $7 type, $8 schema version, $9 data and $10 metadata, by event.
const insertSQL = `
WITH attempt AS MATERIALIZED (
	SELECT a.*, coalesce((SELECT max(version) FROM events e WHERE e.stream = a.stream), 0) AS actual
	FROM unnest($1::text[], $2::bigint[], $3::bigint[]) WITH ORDINALITY AS a (stream, expect, count, n)
), newest AS MATERIALIZED (
	SELECT coalesce(max(position), 0) AS position FROM events
), given AS (
	SELECT * FROM unnest($4::bigint[], $5::bigint[], $6::uuid[], $7::text[], $8::integer[], $9::bytea[], $10::bytea[])
		WITH ORDINALITY AS g (n, i, id, type, schema_version, data, meta, ordinal)
), added AS (
	INSERT INTO events (position, stream, version, id, type, schema_version, data, meta)
	SELECT newest.position + row_number() OVER (ORDER BY ordinal), stream, expect + i, id, type, schema_version, data, meta
	FROM given JOIN attempt USING (n) CROSS JOIN newest
	WHERE actual = expect
)
SELECT actual, newest.position, statement_timestamp(), CASE WHEN actual >= expect + count AND actual <> expect THEN (
		SELECT max(e.position) FROM given JOIN events e USING (id)
		WHERE given.n = attempt.n AND e.stream = attempt.stream AND e.version = attempt.expect + given.i
		HAVING count(*) = attempt.count
	) END
FROM attempt CROSS JOIN newest ORDER BY n`

// insertOneSQL is insertSQL for a batch of one append, which is the common one while little happens, at two thirds of
// the cost.
//
// $1 stream, $2 expected version; $3 id, $4 type, $5 schema version, $6 data and $7 metadata, by event.
const insertOneSQL = `
WITH found AS MATERIALIZED (
	SELECT coalesce((SELECT max(version) FROM events WHERE stream = $1), 0) AS actual,
		coalesce((SELECT max(position) FROM events), 0) AS newest
), added AS (
	INSERT INTO events (position, stream, version, id, type, schema_version, data, meta)
	SELECT newest + i, $1, $2::bigint + i, id, type, schema_version, data, meta
	FROM found, unnest($3::uuid[], $4::text[], $5::integer[], $6::bytea[], $7::bytea[])
		WITH ORDINALITY AS g (id, type, schema_version, data, meta, i)
	WHERE actual = $2
)
SELECT actual, newest, statement_timestamp(), CASE WHEN actual > $2 THEN (
		SELECT max(e.position) FROM unnest($3) WITH ORDINALITY AS g (id, i) JOIN events e USING (id)
		WHERE e.stream = $1 AND e.version = $2 + g.i
		HAVING count(*) = cardinality($3)
	) END
FROM found`

// prepare makes a fresh connection the writer's.
func prepare(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, settings, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	for _, statement := range []string{lockSQL, insertSQL, insertOneSQL} {
		if _, err := conn.Prepare(ctx, statement, statement); err != nil {
			return err
		}
	}
	return nil
}

// try appends a batch in one round trip and one transaction, and answers each append. An error means that none was
// answered.
func (a *appender) try(batch []*pending) error {
	answers, err := a.send(batch)
	if err != nil {
		return err
	}
	next := answers[0].newest
	var added []*recentEvent
	for i, p := range batch {
		answer := answers[i]
		switch {
		case answer.actual == p.expect:
			for _, w := range p.wires {
				next++
				added = append(added, &recentEvent{wire: w, position: next, at: answer.at})
			}
			defer p.added(next) // after the followers were woken
		case answer.found != nil:
			p.found(*answer.found)
		default:
			p.refuse(&event.ConflictError{Stream: p.stream, Expected: p.expect, Actual: answer.actual})
		}
	}
	if len(added) > 0 {
		a.committed(added)
	}
	return nil
}

// judgement is a row of insertSQL's result.
type judgement struct {
	actual event.Version
	newest event.Position
	at     time.Time
	found  *event.Position
}

// patience bounds the next transaction by the connection's deadline and not by a context, whose watching would cost two
// wake-ups of a thread for each transaction.
func (a *appender) patience() error {
	return a.conn.PgConn().Conn().SetDeadline(time.Now().Add(sendTimeout))
}

// send runs the transaction.
func (a *appender) send(batch []*pending) ([]judgement, error) {
	statements := &pgx.Batch{}
	statements.Queue(lockSQL, int64(appendLock))
	if len(batch) == 1 {
		statements.Queue(insertOneSQL, oneColumns(batch[0])...)
	} else {
		statements.Queue(insertSQL, columns(batch)...)
	}
	results := a.conn.SendBatch(context.Background(), statements)
	answers, err := judgements(results)
	if err := errors.Join(err, results.Close()); err != nil { // the commit's own error comes with Close
		for _, p := range batch {
			p.lost = p.lost || pg.IsAway(err)
		}
		return nil, err
	}
	return answers, nil
}

func judgements(results pgx.BatchResults) ([]judgement, error) {
	if _, err := results.Exec(); err != nil {
		return nil, err
	}
	rows, err := results.Query()
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (j judgement, err error) {
		err = r.Scan(&j.actual, &j.newest, &j.at, &j.found)
		return j, err
	})
}

// columns turns a batch into the arguments of insertSQL.
func columns(batch []*pending) []any {
	var streams []string
	var expects, counts, ns, is []int64
	var all []event.Wire
	for n, p := range batch {
		streams = append(streams, string(p.stream))
		expects, counts = append(expects, int64(p.expect)), append(counts, int64(len(p.wires)))
		for i := range p.wires {
			ns, is = append(ns, int64(n+1)), append(is, int64(i+1))
		}
		all = append(all, p.wires...)
	}
	return append([]any{streams, expects, counts, ns, is}, eventColumns(all)...)
}

// oneColumns turns an append into the arguments of insertOneSQL.
func oneColumns(p *pending) []any {
	return append([]any{string(p.stream), int64(p.expect)}, eventColumns(p.wires)...)
}

func eventColumns(wires []event.Wire) []any {
	ids, types, schemas := make([]pgtype.UUID, len(wires)), make([]string, len(wires)), make([]int32, len(wires))
	data, meta := make([][]byte, len(wires)), make([][]byte, len(wires))
	for i, w := range wires {
		ids[i] = pgtype.UUID{Bytes: w.ID, Valid: true}
		types[i], schemas[i], data[i], meta[i] = w.Type, int32(w.Schema), w.Data, w.Meta
	}
	return []any{ids, types, schemas, data, meta}
}

// version is where a stream ends.
func (a *appender) version(ctx context.Context, s event.Stream) (v event.Version, err error) {
	err = a.conn.QueryRow(ctx, versionSQL, string(s)).Scan(&v)
	return v, err
}

// isTakenID tells whether an event's id stands elsewhere in the log.
func isTakenID(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.ConstraintName == "events_id"
}
