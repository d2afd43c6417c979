// Package projectiontest is what every projection must pass: its rows are a function of the log alone, however the
// log was cut into batches, however often a batch was applied, live or rebuilt.
package projectiontest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/projections"
)

// Rows are the rows of a projection as JSON, by table, in the order of their text.
func Rows(t testing.TB, db projections.DB, p projections.Projection) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, table := range p.Tables {
		rows, err := db.Query(t.Context(), fmt.Sprintf(`SELECT to_json(t)::text FROM %s t ORDER BY 1`, table))
		if err != nil {
			t.Fatal(err)
		}
		if all[table], err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// CatchUp brings a projection level with the log in a database of its own and gives its rows.
func CatchUp(t testing.TB, pool *pgxpool.Pool, store event.Store, p projections.Projection) map[string][]string {
	t.Helper()
	r, err := projections.NewRunner(pool, store, p)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.CatchUp(t.Context(), p.Name); err != nil {
		t.Fatal(err)
	}
	return Rows(t, pool, p)
}

// Reset takes a projection back to before the first event.
func Reset(t testing.TB, pool *pgxpool.Pool, p projections.Projection) {
	t.Helper()
	tables := strings.Join(p.Tables, ", ")
	sql := fmt.Sprintf("TRUNCATE %s; DELETE FROM checkpoints WHERE projection = '%s'", tables, p.Name)
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// Run checks the projection against the events in store: live, one by one, applied twice, rebuilt and verified all
// give the same rows.
func Run(t *testing.T, pool *pgxpool.Pool, store event.Store, p projections.Projection) {
	t.Helper()
	live := CatchUp(t, pool, store, p)
	same := func(how string) {
		t.Helper()
		if diff := cmp.Diff(live, Rows(t, pool, p)); diff != "" {
			t.Errorf("%s: rows differ from live (-live +%s):\n%s", how, how, diff)
		}
	}
	r, err := projections.NewRunner(pool, store, p)
	if err != nil {
		t.Fatal(err)
	}
	found, err := r.Verify(t.Context(), p.Name, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range found {
		t.Errorf("verify %s: live %s, fresh %s", d.Table, d.Live, d.Fresh)
	}

	twice(t, pool, store, p)
	same("applied twice")
	if err := r.Rebuild(t.Context(), p.Name, nil); err != nil {
		t.Fatal(err)
	}
	same("rebuilt")
	Reset(t, pool, p)
	inSteps(t, pool, store, p, 1)
	same("one by one")
	Reset(t, pool, p)
	inSteps(t, pool, store, p, 7)
	same("by sevens")
}

// twice applies the whole log once more over the rows.
func twice(t *testing.T, pool *pgxpool.Pool, store event.Store, p projections.Projection) {
	t.Helper()
	inSteps(t, pool, store, p, 1000)
}

func inSteps(t *testing.T, pool *pgxpool.Pool, store event.Store, p projections.Projection, size int) {
	t.Helper()
	ctx := t.Context()
	for after := event.Position(0); ; {
		batch, head, err := store.ReadAll(ctx, after, p.Consumes, size)
		if err != nil {
			t.Fatal(err)
		}
		if head == after {
			return
		}
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return apply(ctx, tx, p, batch) })
		if err != nil {
			t.Fatal(err)
		}
		after = head
	}
}

func apply(ctx context.Context, tx pgx.Tx, p projections.Projection, batch []event.Recorded) error {
	if len(batch) == 0 {
		return nil
	}
	return p.Apply(ctx, tx, batch)
}
