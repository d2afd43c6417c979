package projections

import (
	"context"

	"github.com/better-compute/metal/domain/event"
)

// rememberedRows bounds the rows that a projection remembers of each table, and rememberedBytes the data of the events that they
// follow from: a row is a kilobyte as a rule, and may be a hundred times that.
const (
	rememberedRows  = 4096
	rememberedBytes = 64 << 20
)

// memory is the rows that a process wrote last as the owner of a projection, so that it need not read them again. It holds as
// long as nobody else moves the checkpoint: an owner that finds it elsewhere forgets everything.
type memory struct {
	tables map[string]map[string]any // by table and key: a *R, nil for a row that is not there
	staged map[string]map[string]any // by the transaction under way
	born   map[string]bool           // ids of streams that begin in the batch: no row has such a key yet
	size   int                       // of the data of the events behind tables
	more   int                       // of the batch's
}

type memoryKey struct{}

func newMemory() *memory { return &memory{tables: map[string]map[string]any{}} }

// forget forgets everything.
func (m *memory) forget() {
	m.tables, m.staged, m.born, m.size, m.more = map[string]map[string]any{}, nil, nil, 0, 0
}

// begin prepares for a batch, and gives the context in which tables use the memory.
func (m *memory) begin(ctx context.Context, batch []event.Recorded) context.Context {
	m.staged, m.born, m.more = map[string]map[string]any{}, map[string]bool{}, 0
	for _, e := range batch {
		m.more += len(e.Data)
		if e.Version == 1 {
			m.born[e.Stream.ID()] = true
		}
	}
	return context.WithValue(ctx, memoryKey{}, m)
}

// keep takes over what the batch has written, once it is committed.
func (m *memory) keep() {
	if m.size += m.more; m.size > rememberedBytes {
		m.tables, m.size = map[string]map[string]any{}, m.more
	}
	for table, rows := range m.staged {
		held := m.tables[table]
		if held == nil || len(held)+len(rows) > rememberedRows {
			held = make(map[string]any, len(rows))
			m.tables[table] = held
		}
		for key, row := range rows {
			held[key] = row
		}
	}
	m.staged, m.born = nil, nil
}

// memoryOf is the memory of the batch that is applied; nil: there is none.
func memoryOf(ctx context.Context) *memory {
	m, _ := ctx.Value(memoryKey{}).(*memory)
	return m
}

// Once tells that no row of the batch was written before: it is applied by the owner of the projection, whose rows and checkpoint
// move together. Otherwise, in a rebuild or a test, rows may be there.
func Once(ctx context.Context) bool { return memoryOf(ctx) != nil }

// Remembered gives what Remember kept under a key of a table; known is false where the database is to be asked. A nil value that
// is known stands for a row that is not there.
func Remembered[R any](ctx context.Context, table, key string) (row *R, known bool) {
	m := memoryOf(ctx)
	if m == nil {
		return nil, false
	}
	for _, rows := range []map[string]map[string]any{m.staged, m.tables} {
		if found, ok := rows[table][key]; ok {
			row, known = found.(*R)
			return row, known
		}
	}
	return nil, m.born[key]
}

// Remember keeps a row that Apply has written or read, for the batches that follow.
func Remember[R any](ctx context.Context, table, key string, row *R) {
	m := memoryOf(ctx)
	if m == nil {
		return
	}
	if m.staged[table] == nil {
		m.staged[table] = map[string]any{}
	}
	m.staged[table][key] = row
}
