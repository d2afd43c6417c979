// Package memory is an event log in memory, for tests, simulation and chaos runs. It passes the same conformance
// suite as the durable logs and stores the same bytes.
package memory

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/event"
)

// Log holds the events. Several stores may be opened on one, as several processes share one database.
type Log struct {
	now func() time.Time

	mu      sync.Mutex
	entries []entry                // by position, from 1
	streams map[event.Stream][]int // indexes into entries, by version, from 1
	taken   map[uuid.UUID]struct{}
	grown   chan struct{} // closed and replaced by every append
}

// entry is one event as stored.
type entry struct {
	wire event.Wire
	hash event.Hash
	at   time.Time
}

// NewLog makes an empty log that stamps events by now.
func NewLog(now func() time.Time) *Log {
	return &Log{
		now: now, streams: map[event.Stream][]int{}, taken: map[uuid.UUID]struct{}{}, grown: make(chan struct{}),
	}
}

// Store is a handle on a log with the registry of one program.
type Store struct {
	log      *Log
	registry *event.Registry
}

var _ event.Store = (*Store)(nil)

// Open gives a handle on the log. It needs no closing.
func (l *Log) Open(r *event.Registry) *Store { return &Store{log: l, registry: r} }

// New makes a store on a log of its own, stamped by the wall clock.
func New(r *event.Registry) *Store { return NewLog(time.Now).Open(r) }

// Append implements event.Store.
func (s *Store) Append(
	ctx context.Context, stream event.Stream, expect event.Version, meta event.Meta, events ...event.Event,
) (event.Position, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("%w: %w", event.ErrUnavailable, err)
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	wires, _, err := s.registry.SealAll(stream, expect, s.log.hashAt(stream, expect), meta, events)
	if err != nil {
		return 0, err
	}
	return s.log.append(stream, expect, wires)
}

// hashAt is the hash of version v of a stream; zero where there is none.
func (l *Log) hashAt(stream event.Stream, v event.Version) event.Hash {
	held := l.streams[stream]
	if v == 0 || v > event.Version(len(held)) {
		return event.Hash{}
	}
	return l.entries[held[v-1]].hash
}

func (l *Log) append(stream event.Stream, expect event.Version, wires []event.Wire) (event.Position, error) {
	held := l.streams[stream]
	conflict := &event.ConflictError{Stream: stream, Expected: expect, Actual: event.Version(len(held))}
	if conflict.Actual != expect {
		if p, same := l.alreadyThere(held, expect, wires); same {
			return p, nil
		}
		return 0, conflict
	}
	for _, w := range wires {
		if _, taken := l.taken[w.ID]; taken {
			return 0, conflict
		}
	}
	at := l.now().UTC().Truncate(time.Microsecond)
	for _, w := range wires {
		l.streams[stream] = append(l.streams[stream], len(l.entries))
		l.entries = append(l.entries, entry{wire: w, hash: w.Hash(), at: at})
		l.taken[w.ID] = struct{}{}
	}
	close(l.grown)
	l.grown = make(chan struct{})
	return event.Position(len(l.entries)), nil
}

// alreadyThere tells whether the events with these very ids stand after version expect, and where the last one is.
func (l *Log) alreadyThere(held []int, expect event.Version, wires []event.Wire) (event.Position, bool) {
	if expect+event.Version(len(wires)) > event.Version(len(held)) {
		return 0, false
	}
	last := 0
	for i, w := range wires {
		last = held[int(expect)+i]
		if l.entries[last].wire.ID != w.ID {
			return 0, false
		}
	}
	return event.Position(last + 1), true
}
