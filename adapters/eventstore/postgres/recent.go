package postgres

import (
	"slices"
	"sync"
	"time"

	"github.com/better-compute/metal/domain/event"
)

// recentEvents bounds how many of the newest events are kept in memory, a few megabytes.
const recentEvents = 4096

// recent keeps the newest events that this process appended, so that its followers, who all read the same end of the log,
// share one decoding and ask the database only for what it does not hold: older events and those of other processes.
type recent struct {
	registry *event.Registry

	mu     sync.RWMutex
	events []*recentEvent // positions dense and rising
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

// add takes what one transaction committed. Where another process wrote in between, what is held ends before a gap, and
// is dropped.
func (r *recent) add(committed []*recentEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.events); n > 0 && r.events[n-1].position+1 != committed[0].position {
		r.events = nil
	}
	if over := len(r.events) + len(committed) - recentEvents; over > 0 {
		// A half at a time, so that events are moved seldom; a reader's slice keeps its own array.
		r.events = slices.Clone(r.events[min(len(r.events), max(over, recentEvents/2)):])
	}
	r.events = append(r.events, committed...)
}

// forget drops everything: after a lost connection the database may be an older one, restored from a backup.
func (r *recent) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = nil
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
