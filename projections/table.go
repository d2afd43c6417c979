package projections

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Table keeps rows as Go structs of type R, whose JSON names are the table's columns: reading and writing a set of
// rows is one statement each. For rows that are many and wide, unnest is faster.
type Table[R any] struct {
	name, key          string
	load, save, remove string
}

// NewTable describes a table with a primary key of one text column. A field tagged once:"true" is written when its row is
// made and is empty in a row that was loaded: for what is large and never changes. A type R that is not a struct is a bug:
// it panics.
func NewTable[R any](name, key string) Table[R] {
	var columns, changing []string
	shape := reflect.TypeFor[R]()
	for i := range shape.NumField() {
		column, _, _ := strings.Cut(shape.Field(i).Tag.Get("json"), ",")
		columns = append(columns, column)
		if shape.Field(i).Tag.Get("once") == "" {
			changing = append(changing, column)
		}
	}
	all, list := strings.Join(columns, ", "), strings.Join(changing, ", ")
	return Table[R]{
		name: name, key: key,
		load: fmt.Sprintf(`SELECT t.%s, to_json(r) FROM %s t, LATERAL (SELECT t.%s) r WHERE t.%s = ANY($1)`,
			key, name, strings.Join(changing, ", t."), key),
		save: fmt.Sprintf(`INSERT INTO %s (%s) SELECT %s FROM json_populate_recordset(NULL::%s, $1)
			ON CONFLICT (%s) DO UPDATE SET (%s) = ROW(excluded.%s)`,
			name, all, all, name, key, list, strings.Join(changing, ", excluded.")),
		remove: fmt.Sprintf(`DELETE FROM %s WHERE %s = ANY($1)`, name, key),
	}
}

// Rows is a set of rows by key, as one batch changes it. A nil row is one that goes, or isn't there.
type Rows[R any] map[string]*R

// Load reads the rows with these keys; those that don't exist are nil.
func (t Table[R]) Load(ctx context.Context, tx pgx.Tx, keys []string) (Rows[R], error) {
	held := Rows[R]{}
	if len(keys) == 0 {
		return held, nil
	}
	for _, key := range keys {
		held[key] = nil
	}
	rows, err := tx.Query(ctx, t.load, keys)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", t.name, err)
	}
	var key string
	var raw []byte
	_, err = pgx.ForEachRow(rows, []any{&key, &raw}, func() error {
		held[key] = new(R)
		return json.Unmarshal(raw, held[key])
	})
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", t.name, err)
	}
	return held, nil
}

// Save writes the rows, in the order of keys, and removes those that are nil.
func (t Table[R]) Save(ctx context.Context, tx pgx.Tx, rows Rows[R]) error {
	var kept []*R
	var gone []string
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		if rows[key] == nil {
			gone = append(gone, key)
			continue
		}
		kept = append(kept, rows[key])
	}
	if len(gone) > 0 {
		if _, err := tx.Exec(ctx, t.remove, gone); err != nil {
			return fmt.Errorf("remove from %s: %w", t.name, err)
		}
	}
	if len(kept) == 0 {
		return nil
	}
	raw, err := json.Marshal(kept)
	if err != nil {
		return fmt.Errorf("save %s: %w", t.name, err)
	}
	if _, err := tx.Exec(ctx, t.save, string(raw)); err != nil {
		return fmt.Errorf("save %s: %w", t.name, err)
	}
	return nil
}
