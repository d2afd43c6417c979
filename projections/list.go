package projections

import (
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/fault"
)

// List is a list that is read page by page, along a column whose values are unique: the highest first, which is the newest where
// keys are made of the time or are positions.
type List[R any] struct {
	Name  string                // in cursors: one is good for the list that it was made for only
	From  string                // SELECT … FROM …: a constant of the program
	Key   string                // the column
	Up    bool                  // the lowest first
	Valid func(key string) bool // what a cursor may hold
	Scan  pgx.RowToFunc[R]
	KeyOf func(R) string
}

// Page reads one page of the rows for which w holds, and the cursor of the next, empty after the last. Errors: INVALID_INPUT for a
// bad limit or cursor.
func (l List[R]) Page(ctx context.Context, db DB, w *Where, p Page) (items []R, next string, err error) {
	size, err := p.Size()
	if err != nil {
		return nil, "", err
	}
	after, err := p.After(l.Name, l.Valid)
	if err != nil {
		return nil, "", err
	}
	beyond, direction := "<", "DESC"
	if l.Up {
		beyond, direction = ">", "ASC"
	}
	if after != "" {
		w.Add(l.Key+" "+beyond+" {}", after)
	}
	rows, err := db.Query(ctx, l.From+w.SQL()+" ORDER BY "+l.Key+" "+direction+" LIMIT "+w.Arg(size+1), w.Args()...)
	if err != nil {
		return nil, "", fmt.Errorf("list %s: %w", l.Name, err)
	}
	items, err = pgx.CollectRows(rows, l.Scan)
	if err != nil {
		return nil, "", fmt.Errorf("list %s: %w", l.Name, err)
	}
	if len(items) <= size {
		return items, "", nil
	}
	items = items[:size]
	return items, Cursor(l.Name, l.KeyOf(items[size-1])), nil
}

// ValidPosition reports whether a key is a position of the log.
func ValidPosition(key string) bool {
	_, err := strconv.ParseInt(key, 10, 64)
	return err == nil
}

// ValidID reports whether a key is an id of type T.
func ValidID[T any, PT interface {
	*T
	encoding.TextUnmarshaler
}](key string) bool {
	return PT(new(T)).UnmarshalText([]byte(key)) == nil
}

// ScanJSON reads a row that a query gives as one column of JSON.
func ScanJSON[R any](row pgx.CollectableRow) (r R, err error) { return r, row.Scan(&r) }

// One reads the one row that a query gives as JSON. Errors: NOT_FOUND, saying that there is no such thing as is named.
func One[R any](ctx context.Context, db DB, named, sql string, args ...any) (row R, err error) {
	var raw []byte
	err = db.QueryRow(ctx, sql, args...).Scan(&raw)
	if errors.Is(err, pgx.ErrNoRows) {
		return row, fault.New(fault.NotFound, "there is no %s", named)
	}
	if err == nil {
		err = json.Unmarshal(raw, &row)
	}
	if err != nil {
		return row, fmt.Errorf("read %s: %w", named, err)
	}
	return row, nil
}
