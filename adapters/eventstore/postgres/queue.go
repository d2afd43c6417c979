package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/better-compute/metal/domain/event"
)

// pending is one append on its way.
type pending struct {
	stream event.Stream
	expect event.Version
	wires  []event.Wire
	size   int // bytes of data and metadata
	state  atomic.Int32
	lost   bool         // the connection was lost after it was sent; only the appender looks
	done   chan outcome // of capacity 1: who answers never waits
}

// The states of an append: from waiting it becomes sent or, by its caller, abandoned.
const (
	waiting int32 = iota
	sent
	abandoned
)

// outcome is what became of an append.
type outcome struct {
	position event.Position
	added    bool // by this very append: the log holds its bytes, not those of an earlier one with the same ids
	err      error
}

func newPending(stream event.Stream, expect event.Version, wires []event.Wire) *pending {
	p := &pending{stream: stream, expect: expect, wires: wires, done: make(chan outcome, 1)}
	for _, w := range wires {
		p.size += len(w.Data) + len(w.Meta)
	}
	return p
}

// claim marks the append as sent, or tells that its caller has gone.
func (p *pending) claim() bool {
	return p.state.CompareAndSwap(waiting, sent) || p.state.Load() == sent
}

// added answers that the log holds the events of this append, found that it holds earlier ones with the same ids: decided at
// another time they have other bytes.
func (p *pending) added(position event.Position) { p.done <- outcome{position: position, added: true} }

func (p *pending) found(position event.Position) { p.done <- outcome{position: position} }

func (p *pending) refuse(err error) { p.done <- outcome{err: err} }

// fail answers with an error of which is certain that its own attempt wrote nothing.
func (p *pending) fail(err error) {
	if p.lost {
		p.refuse(fmt.Errorf("%w: %w", event.ErrUnknownOutcome, err))
		return
	}
	p.refuse(fmt.Errorf("%w: %w", event.ErrUnavailable, err))
}

// queue holds the appends that the appender has not taken yet.
type queue struct {
	maxAppends, maxBytes int
	ready                chan struct{} // holds a token while something may wait

	mu      sync.Mutex
	entries []*pending
	closed  bool
}

func newQueue(o Options) *queue {
	return &queue{maxAppends: o.MaxBatch, maxBytes: o.MaxBatchBytes, ready: make(chan struct{}, 1)}
}

var errClosed = errors.New("the store is closed")

// await waits for the outcome of an append, or for the end of its caller's context.
func await(ctx context.Context, p *pending) (position event.Position, added bool, err error) {
	select {
	case o := <-p.done: // also where the context has ended meanwhile
		return o.position, o.added, o.err
	default:
	}
	select {
	case o := <-p.done:
		return o.position, o.added, o.err
	case <-ctx.Done():
		if p.state.Swap(abandoned) == waiting {
			return 0, false, unavailable(ctx, ctx.Err())
		}
		return 0, false, fmt.Errorf("%w: %w", event.ErrUnknownOutcome, ctx.Err())
	}
}

// idle tells that nothing waits.
func (q *queue) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.closed && len(q.entries) == 0
}

// again puts an append first whose attempt failed. On a closed queue it fails for good.
func (q *queue) again(p *pending) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		p.lost = true
		p.fail(errClosed)
		return
	}
	q.entries = append([]*pending{p}, q.entries...)
	q.wake()
}

func (q *queue) put(p *pending) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.entries = append(q.entries, p)
		q.wake()
	}
	return !q.closed
}

func (q *queue) wake() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// close refuses further appends. Those that wait are still taken.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wake()
}

// take gives a batch of what waits: the oldest first, as many as the bounds allow, and of each stream one, because the
// second could only be judged after the first. ended tells that nothing waits and nothing will.
func (q *queue) take() (batch []*pending, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	streams := make(map[event.Stream]struct{}, len(q.entries))
	rest := q.entries[:0]
	size := 0
	for _, p := range q.entries {
		_, taken := streams[p.stream]
		full := len(batch) == q.maxAppends || len(batch) > 0 && size+p.size > q.maxBytes
		switch {
		case p.state.Load() == abandoned:
		case taken || full:
			rest = append(rest, p)
			streams[p.stream] = struct{}{} // what follows on this stream stays behind it
		default:
			batch = append(batch, p)
			size += p.size
			streams[p.stream] = struct{}{}
		}
	}
	clear(q.entries[len(rest):])
	q.entries = rest
	if len(rest) > 0 || q.closed {
		q.wake()
	}
	return batch, q.closed && len(rest) == 0
}
