package projections

import (
	"context"
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/event"
)

// Table keeps rows as Go structs of type R, whose JSON names are the table's columns: reading and writing a set of
// rows is one statement each.
type Table[R any] struct {
	name, key          string
	load, save, remove string
	columns            []column // nil: there are some that only JSON can tell
	once               []int    // fields
}

// NewTable describes a table with a primary key of one text column. A field tagged once:"true" is written when its row is
// made and is empty in a row that was loaded, or saved before: for what is large and never changes. A field without a JSON
// name is in no column. A type R that is not a struct is a bug: it panics.
func NewTable[R any](name, key string) Table[R] {
	var names, changing []string
	var columns []column
	var once []int
	shape := reflect.TypeFor[R]()
	simple := true
	for i := range shape.NumField() {
		field, _, _ := strings.Cut(shape.Field(i).Tag.Get("json"), ",")
		if field == "" || field == "-" {
			continue
		}
		names = append(names, field)
		if shape.Field(i).Tag.Get("once") == "" {
			changing = append(changing, field)
		} else {
			once = append(once, i)
		}
		c := columnOf(i, shape.Field(i).Type)
		columns, simple = append(columns, c), simple && c.of != nil
	}
	all, list := strings.Join(names, ", "), strings.Join(changing, ", ")
	t := Table[R]{
		name: name, key: key, once: once,
		load: fmt.Sprintf(`SELECT t.%s, to_json(r) FROM %s t, LATERAL (SELECT t.%s) r WHERE t.%s = ANY($1)`,
			key, name, strings.Join(changing, ", t."), key),
		remove: fmt.Sprintf(`DELETE FROM %s WHERE %s = ANY($1)`, name, key),
	}
	rows := fmt.Sprintf("json_populate_recordset(NULL::%s, $1)", name)
	if simple {
		t.columns = columns
		rows = fmt.Sprintf("unnest(%s) AS u (%s)", arguments(columns), all)
	}
	t.save = fmt.Sprintf(`INSERT INTO %s (%s) SELECT %s FROM %s ON CONFLICT (%s) DO UPDATE SET (%s) = ROW(excluded.%s)`,
		name, all, all, rows, key, list, strings.Join(changing, ", excluded."))
	return t
}

// column is one column of a table, as an array.
type column struct {
	field int
	sql   string // the type of the array
	of    func(rows []reflect.Value) any
}

// columnOf is the column of a field; without of where its values are no scalars.
func columnOf(field int, t reflect.Type) column {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return column{field, "timestamptz[]", collect(field, func(v reflect.Value) time.Time { return micros(v.Interface().(time.Time)) })}
	case t == reflect.TypeFor[*time.Time]():
		return column{field, "timestamptz[]", collect(field, func(v reflect.Value) *time.Time {
			at := v.Interface().(*time.Time)
			if at == nil {
				return nil
			}
			rounded := micros(*at)
			return &rounded
		})}
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return column{field, "text[]", collect(field, marshalled)}
	}
	switch t.Kind() {
	case reflect.String:
		return column{field, "text[]", collect(field, reflect.Value.String)}
	case reflect.Bool:
		return column{field, "bool[]", collect(field, reflect.Value.Bool)}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return column{field, "int8[]", collect(field, reflect.Value.Int)}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return column{field, "int8[]", collect(field, func(v reflect.Value) int64 { return int64(v.Uint()) })}
	default:
		return column{field: field}
	}
}

// micros rounds as PostgreSQL does when it reads a text.
func micros(t time.Time) time.Time { return t.Round(time.Microsecond) }

func marshalled(v reflect.Value) string {
	text, err := v.Interface().(encoding.TextMarshaler).MarshalText()
	if err != nil { // the runner stops the projection with it
		panic(err)
	}
	return string(text)
}

func collect[T any](field int, value func(reflect.Value) T) func([]reflect.Value) any {
	return func(rows []reflect.Value) any {
		list := make([]T, len(rows))
		for i, row := range rows {
			list[i] = value(row.Field(field))
		}
		return list
	}
}

// arguments are the placeholders of the columns' arrays.
func arguments(columns []column) string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = fmt.Sprintf("$%d::%s", i+1, c.sql)
	}
	return strings.Join(list, ", ")
}

// Rows is a set of rows by key, as one batch changes it. A nil row is one that goes, or isn't there.
type Rows[R any] map[string]*R

// Load gives the rows with these keys, which Apply may change; those that don't exist are nil. What this process wrote last is
// remembered.
func (t Table[R]) Load(ctx context.Context, tx pgx.Tx, keys []string) (Rows[R], error) {
	held := Rows[R]{}
	var asked []string
	for _, key := range keys {
		if _, twice := held[key]; twice {
			continue
		}
		row, known := Remembered[R](ctx, t.name, key)
		if held[key] = row; !known {
			asked = append(asked, key)
		}
	}
	if len(asked) == 0 {
		return held, nil
	}
	rows, err := tx.Query(ctx, t.load, asked)
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

// Fold brings the rows of the streams of a batch, whose ids are the keys, up to it: with gives the row after an event. It must give
// back the row where that holds the event already, and nil where there is none: before a stream's first event, or after it is gone.
func (t Table[R]) Fold(ctx context.Context, tx pgx.Tx, batch []event.Recorded, with func(*R, event.Recorded) *R) error {
	rows, err := t.Load(ctx, tx, Streams(batch))
	if err != nil {
		return err
	}
	for _, e := range batch {
		rows[e.Stream.ID()] = with(rows[e.Stream.ID()], e)
	}
	return t.Save(ctx, tx, rows)
}

// Streams is the ids of the streams of a batch, one for each event.
func Streams(batch []event.Recorded) []string {
	ids := make([]string, len(batch))
	for i, e := range batch {
		ids[i] = e.Stream.ID()
	}
	return ids
}

// Save writes the rows, in the order of keys, and removes those that are nil.
func (t Table[R]) Save(ctx context.Context, tx pgx.Tx, rows Rows[R]) error {
	var kept []*R
	var gone []string
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		Remember(ctx, t.name, key, rows[key])
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
	args, err := t.arguments(kept)
	if err != nil {
		return fmt.Errorf("save %s: %w", t.name, err)
	}
	if _, err := tx.Exec(ctx, t.save, args...); err != nil {
		return fmt.Errorf("save %s: %w", t.name, err)
	}
	for _, row := range kept {
		for _, field := range t.once {
			reflect.ValueOf(row).Elem().Field(field).SetZero()
		}
	}
	return nil
}

func (t Table[R]) arguments(rows []*R) ([]any, error) {
	if t.columns == nil {
		raw, err := json.Marshal(rows)
		return []any{string(raw)}, err
	}
	values := make([]reflect.Value, len(rows))
	for i, row := range rows {
		values[i] = reflect.ValueOf(row).Elem()
	}
	args := make([]any, len(t.columns))
	for i, c := range t.columns {
		args[i] = c.of(values)
	}
	return args, nil
}
