package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/better-compute/metal/domain/event"
)

const (
	selectSQL = "SELECT position, stream, version, id, type, schema_version, data, meta, recorded_at FROM events "
	headSQL   = "SELECT coalesce(max(position), 0) FROM events"

	versionSQL = "SELECT coalesce(max(version), 0) FROM events WHERE stream = $1"
)

// window bounds how many positions one filtered read looks at, so that a follower of rare types never holds a long
// scan.
const window = 10_000

// row is one event as stored.
type row struct {
	wire     event.Wire
	position event.Position
	at       time.Time
}

// Read implements event.Store.
func (s *Store) Read(ctx context.Context, stream event.Stream, after event.Version) ([]event.Recorded, error) {
	rows, err := s.read(ctx, "WHERE stream = $1 AND version > $2 ORDER BY version", string(stream), int64(after))
	if err != nil {
		return nil, err
	}
	events, err := s.open(rows)
	if err == nil && len(events) > 0 {
		last := events[len(events)-1]
		s.tips.put(stream, last.Version, last.Hash)
	}
	return events, err
}

// ReadAll implements event.Store.
func (s *Store) ReadAll(
	ctx context.Context, after event.Position, types []string, limit int,
) (events []event.Recorded, head event.Position, err error) {
	if err := ctx.Err(); err != nil {
		return nil, after, unavailable(ctx, err)
	}
	if events, head, found, err := s.recent.after(after, types, limit); found || err != nil {
		s.growth.atLeast(head) // nobody has read further than it is known to reach
		return events, head, err
	}
	var rows []row
	if len(types) == 0 {
		rows, err = s.read(ctx, "WHERE position > $1 ORDER BY position LIMIT $2", int64(after), limit)
	} else {
		rows, head, err = s.readTypes(ctx, after, types, limit)
	}
	if err != nil {
		return nil, after, err
	}
	if n := len(rows); n > 0 && (n == limit || rows[n-1].position > head) {
		head = rows[n-1].position
	}
	if events, err = s.open(rows); err != nil {
		return nil, after, err
	}
	head = max(head, after)
	s.growth.atLeast(head)
	return events, head, nil
}

// readTypes reads one window. The head is read before the rows, by an older snapshot: whatever stands at or below it
// is visible to the second.
func (s *Store) readTypes(
	ctx context.Context, after event.Position, types []string, limit int,
) (rows []row, head event.Position, err error) {
	end := after + window
	batch := &pgx.Batch{}
	batch.Queue(headSQL).QueryRow(func(r pgx.Row) error { return r.Scan(&head) })
	batch.Queue(selectSQL+"WHERE position > $1 AND position <= $2 AND type = ANY($3) ORDER BY position LIMIT $4",
		int64(after), int64(end), types, limit).Query(func(r pgx.Rows) (err error) {
		rows, err = pgx.CollectRows(r, scan)
		return err
	})
	if err := s.pool.SendBatch(ctx, batch).Close(); err != nil {
		return nil, after, unavailable(ctx, err)
	}
	return rows, min(head, end), nil
}

// read runs one query of whole events.
func (s *Store) read(ctx context.Context, where string, arguments ...any) ([]row, error) {
	result, err := s.pool.Query(ctx, selectSQL+where, arguments...)
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	rows, err := pgx.CollectRows(result, scan)
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	return rows, nil
}

func scan(r pgx.CollectableRow) (e row, err error) {
	var eventID pgtype.UUID
	w := &e.wire
	err = r.Scan(&e.position, &w.Stream, &w.Version, &eventID, &w.Type, &w.Schema, &w.Data, &w.Meta, &e.at)
	w.ID = uuid.UUID(eventID.Bytes)
	return e, err
}

func (s *Store) open(rows []row) ([]event.Recorded, error) {
	events := make([]event.Recorded, len(rows))
	for i, r := range rows {
		e, err := s.registry.Open(r.wire, r.position, r.at)
		if err != nil {
			return nil, err
		}
		events[i] = e
	}
	return events, nil
}

// Changed implements event.Store.
func (s *Store) Changed(ctx context.Context, after event.Position) error {
	return s.growth.past(ctx, after)
}

// Reached implements event.Reacher.
func (s *Store) Reached() event.Position { return s.growth.known() }

// Head implements event.Store.
func (s *Store) Head(ctx context.Context) (head event.Position, err error) {
	if err := s.pool.QueryRow(ctx, headSQL).Scan(&head); err != nil {
		return 0, unavailable(ctx, err)
	}
	return head, nil
}

// DensePositions tells that positions are 1, 2, 3 and so on: one that is missing belonged to an event that was removed.
func (s *Store) DensePositions() bool { return true }

// ReadStored is ReadAll of every type for those who check the log: it asks the database also for what this process
// remembers, and gives an event that cannot be decoded as one of an unknown type, with its bytes and their hash.
func (s *Store) ReadStored(
	ctx context.Context, after event.Position, limit int,
) ([]event.Recorded, event.Position, error) {
	rows, err := s.read(ctx, "WHERE position > $1 ORDER BY position LIMIT $2", int64(after), limit)
	if err != nil {
		return nil, after, err
	}
	events := make([]event.Recorded, len(rows))
	for i, r := range rows {
		e, err := s.registry.Open(r.wire, r.position, r.at)
		if err != nil {
			w := r.wire
			e = event.Recorded{
				ID: w.ID, Stream: w.Stream, Version: w.Version, Position: r.position, At: r.at.UTC(),
				Event: event.Unknown{Type: w.Type}, Type: w.Type, Schema: w.Schema, Data: w.Data, RawMeta: w.Meta, Hash: w.Hash(),
			}
		}
		events[i], after = e, r.position
	}
	return events, after, nil
}
