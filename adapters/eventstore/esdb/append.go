package esdb

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/better-compute/metal/domain/event"
)

// maxUnclear is how often an append is sent that the server ends without a reason while the stream stays as it was.
const maxUnclear = 4

// Append implements event.Store.
func (s *Store) Append(
	ctx context.Context, stream event.Stream, expect event.Version, meta event.Meta, events ...event.Event,
) (event.Position, error) {
	patient, cancel := s.patient(ctx)
	defer cancel()
	b, err := s.seal(patient, stream, expect, meta, events)
	if err == nil {
		var p event.Position
		if p, err = s.send(patient, b); err == nil {
			s.follower.advance(p)
			return p, nil
		}
	}
	if own := ctx.Err(); own != nil && !errors.Is(err, own) {
		err = fmt.Errorf("%w: %w", own, err)
	}
	return 0, err
}

// batch is one append, sealed.
type batch struct {
	stream event.Stream
	expect event.Version
	wires  []event.Wire
	data   []client.EventData
	tip    event.Hash // of the last wire
	fresh  bool       // no other append can have these ids
}

// last is the version of the stream after the append.
func (b batch) last() event.Version { return b.expect + event.Version(len(b.wires)) }

// seal links the events to their predecessor. What the port forbids is refused before anything is read or sent.
func (s *Store) seal(
	ctx context.Context, stream event.Stream, expect event.Version, meta event.Meta, events []event.Event,
) (batch, error) {
	if err := ctx.Err(); err != nil {
		return batch{}, unavailable(err)
	}
	prev, known := s.hashes.get(stream, expect)
	wires, tip, err := s.registry.SealAll(stream, expect, prev, meta, events)
	if err == nil && !known {
		if prev, err = s.predecessor(ctx, stream, expect); err == nil {
			wires, tip, err = s.registry.SealAll(stream, expect, prev, meta, events)
		}
	}
	if err != nil {
		return batch{}, err
	}
	b := batch{stream, expect, wires, make([]client.EventData, len(wires)), tip, meta.Command == [16]byte{}}
	total := 0
	for i, w := range wires {
		b.data[i] = propose(w)
		total += size(b.data[i])
	}
	if total > s.options.MaxAppendBytes {
		return batch{}, &event.LimitError{Reason: fmt.Sprintf(
			"an append of %d bytes; the most this event store takes is %d", total, s.options.MaxAppendBytes)}
	}
	return b, nil
}

// predecessor reads the hash of the event that the append follows. No such event is a conflict.
func (s *Store) predecessor(ctx context.Context, stream event.Stream, v event.Version) (event.Hash, error) {
	if v <= math.MaxInt64 {
		events, f := s.page(ctx, stream, v-1, 1)
		if f != nil {
			return event.Hash{}, appendError(f, unavailable)
		}
		if len(events) == 1 {
			return events[0].Hash, nil
		}
	}
	actual, f := s.version(ctx, stream)
	switch {
	case f != nil:
		return event.Hash{}, appendError(f, unavailable)
	case actual >= v: // it came to be between the two reads
		return s.predecessor(ctx, stream, v)
	}
	return event.Hash{}, &event.ConflictError{Stream: stream, Expected: v, Actual: actual}
}

// send sends b until its outcome is certain or ctx ends.
func (s *Store) send(ctx context.Context, b batch) (event.Position, error) {
	wait, uncertain, unclears := pause(), false, 0
	for {
		result, f := s.write(ctx, b)
		if f == nil {
			return s.settle(ctx, b, result)
		}
		if f.kind == unreached || f.kind == refused || f.kind == ended {
			return 0, outcome(f, uncertain)
		}
		uncertain = uncertain || !f.kind.nothingWritten()
		p, written, err := s.lookUp(ctx, b)
		if err != nil || written {
			return p, err
		}
		if f.kind == unclear {
			unclears++
		}
		if unclears >= maxUnclear {
			return 0, unknownOutcome(fmt.Errorf("the server refuses it without a reason, such as its size: %w", f))
		}
		select {
		case <-time.After(wait.NextBackOff()):
		case <-ctx.Done():
			return 0, outcome(f, uncertain)
		}
	}
}

// outcome is what a writer is told of a request that failed with f; uncertain: an earlier one may have arrived.
func outcome(f *failure, uncertain bool) error {
	switch {
	case uncertain || !f.kind.nothingWritten():
		return unknownOutcome(f)
	case f.kind == refused:
		return f
	}
	return unavailable(f)
}

// appendError is what a writer is told of a read that failed.
func appendError(f *failure, otherwise func(error) error) error {
	if f.kind == refused {
		return f
	}
	return otherwise(f)
}

func (s *Store) write(ctx context.Context, b batch) (*client.WriteResult, *failure) {
	var expected client.ExpectedRevision = client.NoStream{}
	if b.expect > 0 {
		expected = client.Revision(uint64(b.expect) - 1)
	}
	timeout := s.options.CallTimeout
	return call(ctx, s.manager, timeout, func(ctx context.Context, c *client.Client) (*client.WriteResult, error) {
		options := client.AppendToStreamOptions{ExpectedRevision: expected, RequiresLeader: true, Deadline: &timeout}
		return c.AppendToStream(ctx, s.options.StreamPrefix+string(b.stream), options, b.data...)
	})
}

// settle gives the position of an append that the server took. It asks the stream where the answer can't be relied on:
// some versions answer a retry without a position, or with that of another event of the append.
func (s *Store) settle(ctx context.Context, b batch, r *client.WriteResult) (event.Position, error) {
	sure := r.CommitPosition != 0 && r.CommitPosition <= math.MaxInt64
	if b.fresh {
		s.hashes.put(b.stream, b.last(), b.tip)
	}
	if sure && (b.fresh || len(b.wires) == 1) {
		return event.Position(r.CommitPosition), nil
	}
	p, written, err := s.lookUp(ctx, b)
	if err == nil && !written {
		err = unknownOutcome(errors.New("the server took the append, but the stream does not show it"))
	}
	return p, err
}

// lookUp asks the stream whether b is in it: written, with the position of its last event; not written, where the
// stream is still at the expected version; or a conflict. A request that is still under way can change the answer only
// from "not written" to "written" or to a conflict, and the same ids sent again collide with it.
func (s *Store) lookUp(ctx context.Context, b batch) (p event.Position, written bool, err error) {
	actual, f := s.version(ctx, b.stream)
	if f != nil {
		return 0, false, unknownOutcome(f)
	}
	if actual == b.expect {
		return 0, false, nil
	}
	conflict := &event.ConflictError{Stream: b.stream, Expected: b.expect, Actual: actual}
	if actual < b.last() {
		return 0, false, conflict
	}
	there, f := s.page(ctx, b.stream, b.expect, len(b.wires))
	if f != nil {
		return 0, false, unknownOutcome(f)
	}
	if len(there) < len(b.wires) {
		return 0, false, conflict
	}
	for i, e := range there {
		if e.ID != b.wires[i].ID {
			return 0, false, conflict
		}
	}
	return there[len(there)-1].Position, true, nil
}
