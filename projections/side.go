package projections

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/event"
)

// side is a second set of a projection's tables, empty copies of the live ones in a schema of their own. It is built
// and read on one connection.
type side struct {
	*lane
	conn     *pgx.Conn
	store    event.Store
	live     string   // the schema of the live tables
	schema   string   // the schema of the side tables
	later    []string // indexes that wait until the rows are there
	position event.Position
	events   int
}

// newSide makes the tables. What is left of an earlier side of the same schema is removed.
func newSide(ctx context.Context, conn *pgx.Conn, store event.Store, l *lane, schema string) (*side, error) {
	s := &side{lane: l, conn: conn, store: store, schema: schema}
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, "SELECT current_schema()").Scan(&s.live); err != nil {
			return err
		}
		fresh := fmt.Sprintf("DROP SCHEMA IF EXISTS %s CASCADE; CREATE SCHEMA %s", schema, schema)
		if _, err := tx.Exec(ctx, fresh); err != nil {
			return err
		}
		for _, table := range l.Tables {
			if err := s.copyTable(ctx, tx, table); err != nil {
				return fmt.Errorf("copy %s: %w", table, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("side tables of %s: %w", l.Name, err)
	}
	return s, nil
}

// copyTable makes an empty copy with the same columns, checks, storage and names. LIKE alone would give the indexes
// other names, which a later migration would not find.
func (s *side) copyTable(ctx context.Context, tx pgx.Tx, table string) error {
	const settings = `SELECT coalesce('WITH (' || array_to_string(reloptions, ', ') || ')', '')
		FROM pg_class WHERE oid = to_regclass($1)`
	var with string
	if err := tx.QueryRow(ctx, settings, table).Scan(&with); err != nil {
		return err
	}
	const indexes = `SELECT pg_get_indexdef(i.indexrelid, 0, true), i.indisunique,
			CASE WHEN c.conname IS NULL THEN '' ELSE format(
			'ALTER TABLE %I ADD CONSTRAINT %I %s USING INDEX %I', $1::text, c.conname,
			CASE c.contype WHEN 'p' THEN 'PRIMARY KEY' ELSE 'UNIQUE' END, x.relname) END
		FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
		LEFT JOIN pg_constraint c ON c.conindid = i.indexrelid AND c.contype IN ('p', 'u')
		WHERE i.indrelid = to_regclass($1) ORDER BY x.relname`
	rows, err := tx.Query(ctx, indexes, table)
	if err != nil {
		return err
	}
	now := []string{
		fmt.Sprintf("CREATE TABLE %s.%s (LIKE %s INCLUDING ALL EXCLUDING INDEXES) %s", s.schema, table, table, with),
		"SET LOCAL search_path = " + s.path(),
	}
	var index, constraint string
	var unique bool
	_, err = pgx.ForEachRow(rows, []any{&index, &unique, &constraint}, func() error {
		switch {
		case constraint != "":
			now = append(now, index, constraint)
		case unique:
			now = append(now, index)
		default:
			s.later = append(s.later, index)
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, strings.Join(append(now, "SET LOCAL search_path = "+s.live), ";\n"))
	return err
}

// path is the search path under which unqualified names are the side tables.
func (s *side) path() string { return s.schema + ", " + s.live }

// begin opens a transaction in which the projection's statements reach the side tables.
func (s *side) begin(ctx context.Context) (pgx.Tx, error) {
	return s.conn.BeginTx(ctx, pgx.TxOptions{
		BeginQuery: "begin; set local synchronous_commit = off; set local search_path = " + s.path(),
	})
}

// index makes the indexes that were left for later.
func (s *side) index(ctx context.Context) error {
	if len(s.later) == 0 {
		return nil
	}
	tx, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, strings.Join(s.later, ";\n")); err != nil {
		return fmt.Errorf("index side tables of %s: %w", s.Name, err)
	}
	s.later = nil
	return tx.Commit(ctx)
}

// drop removes the side tables. It also runs after ctx has ended.
func (s *side) drop(ctx context.Context) error {
	if s.conn.IsClosed() {
		return nil // whoever makes the next side removes them
	}
	_, err := s.conn.Exec(context.WithoutCancel(ctx), "DROP SCHEMA IF EXISTS "+s.schema+" CASCADE")
	return err
}
