package esdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/better-compute/metal/domain/event"
)

// streamPage is how many events of a stream one request asks for.
const streamPage = 500

// Read implements event.Store.
func (s *Store) Read(ctx context.Context, stream event.Stream, after event.Version) ([]event.Recorded, error) {
	var all []event.Recorded
	for after <= math.MaxInt64 {
		patient, cancel := s.patient(ctx)
		page, f := s.page(patient, stream, after, streamPage)
		cancel()
		if f != nil {
			return nil, readError(ctx, f)
		}
		all = append(all, page...)
		if len(page) < streamPage {
			break
		}
		after = page[len(page)-1].Version
	}
	return all, nil
}

// page reads up to count events of stream after a version; none where the stream does not exist.
func (s *Store) page(
	ctx context.Context, stream event.Stream, after event.Version, count int,
) ([]event.Recorded, *failure) {
	options := client.ReadStreamOptions{
		Direction: client.Forwards, From: client.Revision(uint64(after)), RequiresLeader: true,
	}
	raw, f := s.readStream(ctx, stream, options, count)
	if f != nil {
		return nil, f
	}
	events := make([]event.Recorded, 0, len(raw))
	for _, r := range raw {
		w, err := s.wire(r)
		if err != nil {
			return nil, &failure{refused, fmt.Errorf("%s revision %d: %w", r.StreamID, r.EventNumber, err)}
		}
		e, err := s.open(r, w)
		if err != nil {
			return nil, &failure{refused, err}
		}
		events = append(events, e)
	}
	return events, nil
}

// version is that of the stream's last event.
func (s *Store) version(ctx context.Context, stream event.Stream) (event.Version, *failure) {
	options := client.ReadStreamOptions{Direction: client.Backwards, From: client.End{}, RequiresLeader: true}
	raw, f := s.readStream(ctx, stream, options, 1)
	if f != nil || len(raw) == 0 {
		return 0, f
	}
	return event.Version(raw[0].EventNumber) + 1, nil
}

func (s *Store) readStream(
	ctx context.Context, stream event.Stream, options client.ReadStreamOptions, count int,
) ([]*client.RecordedEvent, *failure) {
	name := s.options.StreamPrefix + string(stream)
	raw, f := persist(ctx, s, func(ctx context.Context, c *client.Client) ([]*client.RecordedEvent, error) {
		r, err := c.ReadStream(ctx, name, options, uint64(count))
		if err != nil {
			return nil, err
		}
		var raw []*client.RecordedEvent
		err = each(r, func(e *client.RecordedEvent) bool {
			raw = append(raw, e)
			return len(raw) < count
		})
		return raw, err
	})
	if f != nil && f.kind == absent {
		return nil, nil
	}
	return raw, f
}

// each gives f the events of r until it has no more or f says that it has enough, and closes r.
func each(r *client.ReadStream, f func(*client.RecordedEvent) bool) error {
	defer r.Close()
	for {
		resolved, err := r.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !f(resolved.OriginalEvent()) {
			return nil
		}
	}
}
