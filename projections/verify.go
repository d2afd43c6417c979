package projections

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/fault"
)

// maxDifferences is the most that Verify tells of one table.
const maxDifferences = 100

// Difference is one row that the log does not account for.
type Difference struct {
	Table string          `json:"table"`
	Key   []string        `json:"key"`             // the columns of the primary key
	Live  json.RawMessage `json:"live,omitempty"`  // the row as it is; absent: it is missing
	Fresh json.RawMessage `json:"fresh,omitempty"` // the row as the log gives it; absent: there should be none
}

// Verify folds the log afresh into tables beside the live ones, up to the live checkpoint, and compares every row:
// at most 100 differences for each table. It changes nothing, and the projection goes on meanwhile. progress may be
// nil. Errors: INVALID_STATE where the tables were built by another version, CONFLICT while a rebuild or another
// verification runs.
func (r *Runner) Verify(ctx context.Context, name string, progress func(Progress)) (found []Difference, err error) {
	l, err := r.lane(name)
	if err != nil {
		return nil, err
	}
	if progress == nil {
		progress = func(Progress) {}
	}
	err = r.exclusively(ctx, l, func(conn *pgx.Conn) error {
		s, err := newSide(ctx, conn, r.store, l, "verify_"+l.Name)
		if err != nil {
			return err
		}
		found, err = s.verify(ctx, progress)
		return errors.Join(err, s.drop(ctx))
	})
	return found, err
}

// verify compares in one snapshot, in which the live rows and the live checkpoint belong together.
func (s *side) verify(ctx context.Context, progress func(Progress)) ([]Difference, error) {
	live, err := readCheckpoint(ctx, s.conn, s.Projection)
	if err != nil {
		return nil, err
	}
	if live.version != s.Version {
		return nil, fault.New(fault.InvalidState, "the read model %s is at version %d, this program has version %d",
			s.Name, live.version, s.Version).WithRemedy("let it be rebuilt first")
	}
	if err := s.fold(ctx, live.position, progress); err != nil {
		return nil, err
	}
	tx, err := s.conn.BeginTx(ctx, pgx.TxOptions{
		BeginQuery: "begin isolation level repeatable read; set local search_path = " + s.path(),
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if live, err = readCheckpoint(ctx, tx, s.Projection); err != nil {
		return nil, err
	}
	if err := s.foldTo(ctx, tx, live.position); err != nil {
		return nil, fmt.Errorf("verify %s: %w", s.Name, err)
	}
	var found []Difference
	for _, table := range s.Tables {
		some, err := s.compare(ctx, tx, table)
		if err != nil {
			return nil, fmt.Errorf("compare %s: %w", table, err)
		}
		found = append(found, some...)
	}
	return found, nil
}

// compare lists the rows that only one of the two tables has, a changed row once.
func (s *side) compare(ctx context.Context, tx pgx.Tx, table string) ([]Difference, error) {
	const key = `SELECT a.attname
		FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
		WHERE i.indrelid = to_regclass($1) AND i.indisprimary`
	rows, err := tx.Query(ctx, key, s.live+"."+table)
	if err != nil {
		return nil, err
	}
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	live, fresh := s.live+"."+table, s.schema+"."+table
	rows, err = tx.Query(ctx, fmt.Sprintf(`SELECT to_json(l), to_json(f)
		FROM (TABLE %s EXCEPT TABLE %s) l FULL JOIN (TABLE %s EXCEPT TABLE %s) f USING (%s) LIMIT %d`,
		live, fresh, fresh, live, strings.Join(columns, ", "), maxDifferences))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Difference, error) {
		d := Difference{Table: table, Key: columns}
		return d, row.Scan(&d.Live, &d.Fresh)
	})
}
