package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

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

// insertSQL judges a batch of appends and adds those whose stream is at the expected version. It must be a statement of
// its own after the lock was taken: its snapshot then holds all that was committed before. For each append it returns
// the stream's version, the newest position before the batch, and where the version is another, the position of the last
// event if the very same events are there already.
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
SELECT actual, newest.position, CASE WHEN actual >= expect + count AND actual <> expect THEN (
		SELECT max(e.position) FROM given JOIN events e USING (id)
		WHERE given.n = attempt.n AND e.stream = attempt.stream AND e.version = attempt.expect + given.i
		HAVING count(*) = attempt.count
	) END
FROM attempt CROSS JOIN newest ORDER BY n`

// prepare makes a fresh connection the writer's.
func prepare(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, settings, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	if _, err := conn.Prepare(ctx, lockSQL, lockSQL); err != nil {
		return err
	}
	_, err := conn.Prepare(ctx, insertSQL, insertSQL)
	return err
}

// try appends a batch in one round trip and one transaction, and answers each append. An error means that none was
// answered.
func (a *appender) try(ctx context.Context, batch []*pending) error {
	answers, err := a.send(ctx, batch)
	if err != nil {
		return err
	}
	next, head := event.Position(0), event.Position(0)
	for i, p := range batch {
		answer := answers[i]
		if i == 0 {
			next = answer.newest
		}
		switch {
		case answer.actual == p.expect:
			next += event.Position(len(p.wires))
			head = next
			defer p.answer(next, nil) // after the followers were woken
		case answer.found != nil:
			p.answer(*answer.found, nil)
		default:
			p.answer(0, &event.ConflictError{Stream: p.stream, Expected: p.expect, Actual: answer.actual})
		}
	}
	if head > 0 {
		a.committed(head)
	}
	return nil
}

// judgement is a row of insertSQL's result.
type judgement struct {
	actual event.Version
	newest event.Position
	found  *event.Position
}

func (a *appender) send(ctx context.Context, batch []*pending) ([]judgement, error) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	statements := &pgx.Batch{}
	statements.Queue(lockSQL, int64(appendLock))
	statements.Queue(insertSQL, columns(batch)...)
	results := a.conn.SendBatch(ctx, statements)
	answers, err := judgements(results)
	if err := errors.Join(err, results.Close()); err != nil { // the commit's own error comes with Close
		for _, p := range batch {
			p.lost = p.lost || a.isLost(err)
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
		err = r.Scan(&j.actual, &j.newest, &j.found)
		return j, err
	})
}

// columns turns a batch into the arguments of insertSQL.
func columns(batch []*pending) []any {
	var (
		streams                 []string
		expects, counts, ns, is []int64
		ids                     []pgtype.UUID
		types                   []string
		schemas                 []int32
		data, meta              [][]byte
	)
	for n, p := range batch {
		streams = append(streams, string(p.stream))
		expects, counts = append(expects, int64(p.expect)), append(counts, int64(len(p.wires)))
		for i, w := range p.wires {
			ns, is = append(ns, int64(n+1)), append(is, int64(i+1))
			ids = append(ids, pgtype.UUID{Bytes: w.ID, Valid: true})
			types, schemas = append(types, w.Type), append(schemas, int32(w.Schema))
			data, meta = append(data, w.Data), append(meta, w.Meta)
		}
	}
	return []any{streams, expects, counts, ns, is, ids, types, schemas, data, meta}
}

// version is where a stream ends.
func (a *appender) version(ctx context.Context, s event.Stream) (v event.Version, err error) {
	err = a.conn.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM events WHERE stream = $1", string(s)).Scan(&v)
	return v, err
}

// isTakenID tells whether an event's id stands elsewhere in the log.
func isTakenID(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.ConstraintName == "events_id"
}
