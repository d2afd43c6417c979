package postgres

import (
	"testing"

	"github.com/better-compute/metal/domain/event"
)

// Large events do not fill the memory: what is remembered is bounded by bytes, too.
func TestRecentIsBounded(t *testing.T) {
	for name, size := range map[string]int{"small": 100, "large": event.MaxEventBytes} {
		var r recent
		data := make([]byte, size)
		for p := event.Position(1); p <= 2*recentEvents; p++ {
			r.add([]*recentEvent{{wire: event.Wire{Data: data}, position: p}})
			held := 0
			for _, e := range r.events {
				held += e.size()
			}
			if held > recentBytes || len(r.events) > recentEvents || held != r.size || len(r.events) == 0 {
				t.Fatalf("%s: %d events of %d bytes, counted as %d", name, len(r.events), held, r.size)
			}
			if first, last := r.events[0].position, r.events[len(r.events)-1].position; last != p || int(last-first)+1 != len(r.events) {
				t.Fatalf("%s: %d events from %s to %s after %s", name, len(r.events), first, last, p)
			}
		}
	}
}
