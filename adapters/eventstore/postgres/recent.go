package postgres

import (
	"slices"
	"sync"
	"time"

	"github.com/better-compute/metal/domain/event"
)

// recentEvents and recentBytes bound what is kept in memory of the newest events: as a rule a few megabytes, but one event may
// hold 256 KiB.
const (
	recentEvents = 4096
	recentBytes  = 32 << 20
)

// recent keeps the newest events that this process appended, so that its followers, who all read the same end of the log,
// share one decoding and ask the database only for what it does not hold: older events and those of other processes.
type recent struct {
	registry *event.Registry

	mu     sync.RWMutex
	events []*recentEvent // positions dense and rising
	size   int            // of all of them
}

// recentEvent is decoded by the first who reads it.
type recentEvent struct {
	wire     event.Wire
	position event.Position
	at       time.Time

	once    sync.Once
	decoded event.Recorded
	err     error
}

func (e *recentEvent) open(r *event.Registry) (event.Recorded, error) {
	e.once.Do(func() { e.decoded, e.err = r.Open(e.wire, e.position, e.at) })
	return e.decoded, e.err
}

// size is what an event takes, in bytes.
func (e *recentEvent) size() int { return len(e.wire.Data) + len(e.wire.Meta) }

// add takes what one transaction committed. Where another process wrote in between, what is held ends before a gap, and
// is dropped.
func (r *recent) add(committed []*recentEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.events); n > 0 && r.events[n-1].position+1 != committed[0].position {
		r.events, r.size = nil, 0
	}
	r.events = append(r.events, committed...)
	for _, e := range committed {
		r.size += e.size()
	}
	if len(r.events) > recentEvents || r.size > recentBytes {
		r.halve()
	}
}

// halve keeps the newest: half of the bounds, so that events are moved seldom. A reader's slice keeps its own array.
func (r *recent) halve() {
	first := len(r.events)
	for r.size = 0; first > 0 && len(r.events)-first < recentEvents/2; first-- {
		size := r.size + r.events[first-1].size()
		if size > recentBytes/2 {
			break
		}
		r.size = size
	}
	r.events = slices.Clone(r.events[first:])
}

// forget drops everything: after a lost connection the database may be an older one, restored from a backup.
func (r *recent) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events, r.size = nil, 0
}

// after is ReadAll from memory. found is false where the database has to be asked: what follows the position is not, or
// not all, held.
func (r *recent) after(p event.Position, types []string, limit int) (events []event.Recorded, head event.Position, found bool,
	err error,
) {
	r.mu.RLock()
	held := r.events
	r.mu.RUnlock()
	if len(held) == 0 || p+1 < held[0].position || p >= held[len(held)-1].position {
		return nil, p, false, nil
	}
	for _, e := range held[p+1-held[0].position:] {
		if len(types) == 0 || slices.Contains(types, e.wire.Type) {
			opened, err := e.open(r.registry)
			if err != nil {
				return nil, p, true, err
			}
			events = append(events, opened)
		}
		if head = e.position; len(events) == limit {
			break
		}
	}
	return events, head, true, nil
}
