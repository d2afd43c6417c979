// Package history is the past: every event of a machine in order, its state at any moment, and the proof that the
// log was not changed.
//
// The list of a machine's events is a projection; what a state was, and the proof, are read from the log itself.
package history

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/projections"
)

// Name is the projection's name, to wait for it.
const Name = "history"

// categories are the streams that may belong to a machine.
var categories = map[string]bool{node.Category: true, "workflow": true, "agentcommand": true}

// New is the projection. It reads every type, also those that only a newer program knows: an event is kept as stored.
func New() projections.Projection {
	return projections.Projection{
		Name: Name, Version: 1, Pace: 500 * time.Millisecond,
		Tables: []string{"history_events", "history_streams"}, Apply: apply,
	}
}

func apply(ctx context.Context, tx pgx.Tx, batch []event.Recorded) error {
	owners, err := known(ctx, tx, batch)
	if err != nil {
		return err
	}
	var c columns
	var found belongings
	for _, e := range batch {
		b, relevant := owners[e.Stream]
		if relevant && b.owner == "" {
			b = belonging{names(e.Data), e.Position}
			if b.owner != "" {
				owners[e.Stream] = b
				found.add(e.Stream, b)
				projections.Remember(ctx, streams, e.Stream.ID(), &b)
			}
		}
		if b.owner != "" && e.Position >= b.since {
			c.add(b.owner, e)
		}
	}
	if err := found.write(ctx, tx); err != nil {
		return err
	}
	return c.write(ctx, tx)
}

// streams is the table of what belongs to which machine.
const streams = "history_streams"

// belonging is the machine to which a stream belongs from a position on; without an owner it is not known yet.
type belonging struct {
	owner string
	since event.Position
}

// known tells to which machine each stream of a batch belongs; those that can't belong to one are missing.
func known(ctx context.Context, tx pgx.Tx, batch []event.Recorded) (map[event.Stream]belonging, error) {
	owners := map[event.Stream]belonging{}
	var asked []string
	for _, e := range batch {
		category := e.Stream.Category()
		if _, seen := owners[e.Stream]; seen || !categories[category] {
			continue
		}
		if category == node.Category {
			owners[e.Stream] = belonging{owner: e.Stream.ID()}
			continue
		}
		b, remembered := projections.Remembered[belonging](ctx, streams, e.Stream.ID())
		if owners[e.Stream] = (belonging{}); b != nil {
			owners[e.Stream] = *b
		}
		if remembered {
			continue
		}
		asked = append(asked, string(e.Stream))
	}
	if len(asked) == 0 {
		return owners, nil
	}
	rows, err := tx.Query(ctx, `SELECT stream, node_id, since FROM history_streams WHERE stream = ANY($1)`, asked)
	if err != nil {
		return nil, fmt.Errorf("read streams: %w", err)
	}
	var stream string
	var b belonging
	_, err = pgx.ForEachRow(rows, []any{&stream, &b.owner, &b.since}, func() error {
		owners[event.Stream(stream)] = b
		kept := b
		projections.Remember(ctx, streams, event.Stream(stream).ID(), &kept)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read streams: %w", err)
	}
	return owners, nil
}

// names is the machine that an event's data names; empty for none.
func names(data json.RawMessage) string {
	var about struct {
		Node string `json:"nodeId"`
	}
	if err := json.Unmarshal(data, &about); err != nil {
		return "" // its data is not an object
	}
	return projections.Text(about.Node)
}

// belongings are what a batch has found, turned on their side, as unnest takes them.
type belongings struct {
	stream, owner []string
	since         []int64
}

func (b *belongings) add(s event.Stream, to belonging) {
	b.stream, b.owner = append(b.stream, string(s)), append(b.owner, to.owner)
	b.since = append(b.since, int64(to.since))
}

func (b *belongings) write(ctx context.Context, tx pgx.Tx) error {
	if len(b.stream) == 0 {
		return nil
	}
	const sql = `INSERT INTO history_streams SELECT * FROM unnest($1::text[], $2::text[], $3::int8[])
		ON CONFLICT DO NOTHING`
	if _, err := tx.Exec(ctx, sql, b.stream, b.owner, b.since); err != nil {
		return fmt.Errorf("write streams: %w", err)
	}
	return nil
}

// columns is a set of rows turned on its side, as unnest takes it.
type columns struct {
	position, version                                             []int64
	schema                                                        []int32
	owner, id, stream, kind                                       []string
	at, decided                                                   []time.Time
	tenant, subject, principal, request, correlation, cause, data []string
}

func (c *columns) add(owner string, e event.Recorded) {
	c.position, c.version = append(c.position, int64(e.Position)), append(c.version, int64(e.Version))
	c.owner, c.id = append(c.owner, owner), append(c.id, e.ID.String())
	c.stream, c.kind = append(c.stream, string(e.Stream)), append(c.kind, projections.Text(e.Type))
	c.schema = append(c.schema, int32(e.Schema))
	c.at, c.decided = append(c.at, e.At), append(c.decided, e.Meta.At)
	c.tenant = append(c.tenant, projections.Text(e.Meta.Tenant))
	c.subject = append(c.subject, projections.Text(e.Meta.Subject))
	c.principal = append(c.principal, projections.Text(e.Meta.Principal))
	c.request = append(c.request, projections.Text(e.Meta.RequestID))
	c.correlation = append(c.correlation, projections.Text(e.Meta.CorrelationID))
	c.cause = append(c.cause, projections.Text(e.Meta.CausationID))
	c.data = append(c.data, projections.Text(string(e.Data)))
}

// names of the columns, in the order of columns.
var columnNames = []string{
	"position", "version", "node_id", "event_id", "stream", "type", "schema_version", "at", "decided_at", "tenant", "subject",
	"principal", "request_id", "correlation_id", "causation_id", "data",
}

const insert = `INSERT INTO history_events (position, version, node_id, event_id, stream, type, schema_version, at, decided_at,
		tenant, subject, principal, request_id, correlation_id, causation_id, data)
	SELECT * FROM unnest($1::int8[], $2::int8[], $3::text[], $4::uuid[], $5::text[], $6::text[], $7::int4[], $8::timestamptz[],
		$9::timestamptz[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[])
	ON CONFLICT DO NOTHING`

// row is one of the rows, as a COPY takes it, which costs less than an INSERT that minds conflicts.
func (c *columns) row(i int) ([]any, error) {
	event, err := uuid.Parse(c.id[i])
	return []any{
		c.position[i], c.version[i], c.owner[i], pgtype.UUID{Bytes: event, Valid: true}, c.stream[i], c.kind[i], c.schema[i], c.at[i],
		c.decided[i], c.tenant[i], c.subject[i], c.principal[i], c.request[i], c.correlation[i], c.cause[i], c.data[i],
	}, err
}

func (c *columns) write(ctx context.Context, tx pgx.Tx) error {
	if len(c.position) == 0 {
		return nil
	}
	if projections.Once(ctx) {
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"history_events"}, columnNames, pgx.CopyFromSlice(len(c.position), c.row)); err != nil {
			return fmt.Errorf("write history: %w", err)
		}
		return nil
	}
	_, err := tx.Exec(ctx, insert, c.position, c.version, c.owner, c.id, c.stream, c.kind, c.schema, c.at, c.decided, c.tenant,
		c.subject, c.principal, c.request, c.correlation, c.cause, c.data)
	if err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	return nil
}
