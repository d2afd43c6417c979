package memory

import (
	"context"
	"slices"

	"github.com/better-compute/metal/domain/event"
)

// Read implements event.Store.
func (s *Store) Read(ctx context.Context, stream event.Stream, after event.Version) ([]event.Recorded, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.log.mu.Lock()
	entries := s.log.entries
	held := s.log.streams[stream]
	s.log.mu.Unlock()
	if after >= event.Version(len(held)) {
		return nil, nil
	}
	events := make([]event.Recorded, 0, len(held)-int(after))
	for _, i := range held[after:] {
		e, err := s.open(entries, i)
		if err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, nil
}

// ReadAll implements event.Store.
func (s *Store) ReadAll(
	ctx context.Context, after event.Position, types []string, limit int,
) ([]event.Recorded, event.Position, error) {
	if err := ctx.Err(); err != nil {
		return nil, after, err
	}
	s.log.mu.Lock()
	entries := s.log.entries
	s.log.mu.Unlock()
	var events []event.Recorded
	head := after
	for ; head < event.Position(len(entries)) && len(events) < limit; head++ {
		if len(types) > 0 && !slices.Contains(types, entries[head].wire.Type) {
			continue
		}
		e, err := s.open(entries, int(head))
		if err != nil {
			return nil, after, err
		}
		events = append(events, e)
	}
	return events, head, nil
}

// open decodes a copy, so that no caller can change what is stored.
func (s *Store) open(entries []entry, i int) (event.Recorded, error) {
	w := entries[i].wire
	w.Data, w.Meta = slices.Clone(w.Data), slices.Clone(w.Meta)
	return s.registry.Open(w, event.Position(i+1), entries[i].at)
}

// Changed implements event.Store.
func (s *Store) Changed(ctx context.Context, after event.Position) error {
	for {
		s.log.mu.Lock()
		more, grown := event.Position(len(s.log.entries)) > after, s.log.grown
		s.log.mu.Unlock()
		if err := ctx.Err(); more || err != nil {
			return err
		}
		select {
		case <-grown:
		case <-ctx.Done():
		}
	}
}

// Head implements event.Store.
func (s *Store) Head(ctx context.Context) (event.Position, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return event.Position(len(s.log.entries)), nil
}

// DensePositions tells that positions are 1, 2, 3 and so on: one that is missing belonged to an event that was removed.
func (s *Store) DensePositions() bool { return true }
