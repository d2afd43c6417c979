package projections

import (
	"context"
	"strconv"
	"testing"

	"github.com/better-compute/metal/domain/event"
)

// Large rows do not fill the memory: what is remembered is bounded by the events that it follows from, too.
func TestMemoryIsBoundedByBytes(t *testing.T) {
	m := newMemory()
	data := make([]byte, event.MaxEventBytes)
	for i := range 2 * rememberedRows {
		key := strconv.Itoa(i)
		ctx := m.begin(context.Background(), []event.Recorded{{Stream: event.StreamOf("thing", key), Version: 1, Data: data}})
		Remember(ctx, "things", key, &data)
		m.keep()
		if held := len(m.tables["things"]) * len(data); held > rememberedBytes || m.tables["things"][key] == nil {
			t.Fatalf("%d bytes of rows after %d events", held, i+1)
		}
	}
}
