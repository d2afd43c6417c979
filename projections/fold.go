package projections

import (
	"context"
	"fmt"
	"math"
	"sort"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/event"
)

// How a rebuild goes through the log: as many events in one read, read ahead while the batch before is folded; as
// many rows or events in one transaction.
const (
	foldBatch = 2000
	foldHeld  = 20000
)

// Progress tells how far a rebuild or a verification is.
type Progress struct {
	Projection string
	Position   event.Position // reached
	Head       event.Position // of the log, as it was when the fold began
	Events     int            // folded
	Elapsed    time.Duration
}

// direct is the Bulk of a projection that has only Apply.
type direct struct {
	apply func(context.Context, pgx.Tx, []event.Recorded) error
	held  int
}

func (d *direct) Add(ctx context.Context, tx pgx.Tx, batch []event.Recorded) error {
	d.held += len(batch)
	return d.apply(ctx, tx, batch)
}

func (d *direct) Held() int { return d.held }

func (d *direct) Flush(context.Context, pgx.Tx) error {
	d.held = 0
	return nil
}

func (s *side) bulk() Bulk {
	if s.Bulk != nil {
		return s.Bulk()
	}
	return &direct{apply: s.Apply}
}

// end stands for the end of the log, wherever it is.
const end event.Position = math.MaxInt64

// fold brings the side tables from the position they are at towards a position, not beyond it, in transactions of
// its own.
func (s *side) fold(ctx context.Context, to event.Position, progress func(Progress)) error {
	head, err := s.store.Head(ctx)
	if err != nil {
		return fmt.Errorf("%s: head of the log: %w", s.Name, err)
	}
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	spans := readAhead(ctx, s.store, s.position, to, s.Consumes)
	defer func() {
		cancel()
		for range spans { // the reader has gone when this ends
		}
	}()
	for done := false; !done; {
		tx, err := s.begin(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		done, err = s.transaction(ctx, tx, spans, func() {
			progress(Progress{s.Name, s.position, head, s.events, time.Since(began)})
		})
		if err != nil {
			_ = tx.Rollback(context.WithoutCancel(ctx))
			return fmt.Errorf("%s: fold after %s: %w", s.Name, s.position, err)
		}
	}
	return nil
}

// transaction folds spans until enough is held or, done, the log ends, and commits.
func (s *side) transaction(ctx context.Context, tx pgx.Tx, spans <-chan read, progress func()) (done bool, err error) {
	bulk := s.bulk()
	for bulk.Held() < foldHeld {
		next, more := <-spans
		if !more {
			done = true
			break
		}
		if next.err != nil {
			return false, next.err
		}
		if err := s.add(ctx, tx, bulk, next.span); err != nil {
			return false, err
		}
		progress()
	}
	if err := bulk.Flush(ctx, tx); err != nil {
		return false, err
	}
	return done, tx.Commit(ctx)
}

func (s *side) add(ctx context.Context, tx pgx.Tx, bulk Bulk, next span) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	if len(next.events) > 0 {
		if err := bulk.Add(ctx, tx, next.events); err != nil {
			return err
		}
	}
	s.position, s.events = next.head, s.events+len(next.events)
	return nil
}

// foldTo brings the side tables to exactly the position to, within a transaction.
func (s *side) foldTo(ctx context.Context, tx pgx.Tx, to event.Position) error {
	bulk := s.bulk()
	for s.position < to {
		events, head, err := s.store.ReadAll(ctx, s.position, s.Consumes, foldBatch)
		if err != nil {
			return err
		}
		if head == s.position {
			return fmt.Errorf("the log ends at %s, before the checkpoint at %s", head, to)
		}
		beyond := sort.Search(len(events), func(i int) bool { return events[i].Position > to })
		if err := s.add(ctx, tx, bulk, span{s.position, events[:beyond], min(head, to)}); err != nil {
			return err
		}
	}
	return bulk.Flush(ctx, tx)
}

// read is a span of the log, or why it couldn't be read.
type read struct {
	span
	err error
}

// readAhead reads the log after a position, a little faster than the spans are taken. The channel closes at the end
// of the log, before a span that goes beyond to, after an error, and when ctx ends.
func readAhead(ctx context.Context, store event.Store, from, to event.Position, types []string) <-chan read {
	spans := make(chan read, 2)
	go func() {
		defer close(spans)
		for {
			events, head, err := store.ReadAll(ctx, from, types, foldBatch)
			if err == nil && (head == from || head > to) {
				return
			}
			select {
			case spans <- read{span{from, events, head}, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
			from = head
		}
	}()
	return spans
}
