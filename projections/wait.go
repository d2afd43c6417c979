package projections

import (
	"context"
	"fmt"
	"time"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
)

// pollEvery is how often a waiter looks at the checkpoint, which another process may move. Waiters share one look.
const pollEvery = 20 * time.Millisecond

// Wait returns once the projection has applied everything up to position, whichever process applies it. Errors:
// TIMEOUT when ctx ends first, UNAVAILABLE at once where the projection stands still before position; both tell how
// far it is.
func (r *Runner) Wait(ctx context.Context, name string, position event.Position) error {
	l, err := r.lane(name)
	if err != nil {
		return err
	}
	reached, stopped, moved := l.look()
	if reached >= position {
		return nil
	}
	l.hurry()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		if stopped != nil {
			return stopped
		}
		select {
		case <-moved:
		case <-poll.C:
			r.poll(ctx, l)
		case <-ctx.Done():
			return late(ctx, name, reached, position)
		}
		if reached, stopped, moved = l.look(); reached >= position {
			return nil
		}
	}
}

func late(ctx context.Context, name string, reached, position event.Position) error {
	return fault.
		Wrap(ctx.Err(), fault.Timeout, "the read model %s is at position %s, not yet at %s", name, reached, position).
		WithDetail("projection", name).WithDetail("reached", reached).WithDetail("position", position).
		WithRemedy(fmt.Sprintf("read again with minPosition=%s: what was written is safe in the log", position))
}

// poll looks at the checkpoint, unless another waiter has just done so. Whatever fails here, the waiter's context
// ends it.
func (r *Runner) poll(ctx context.Context, l *lane) {
	if !l.due(pollEvery) {
		return
	}
	if c, err := readCheckpoint(ctx, r.pool, l.Projection); err == nil && c.version == l.Version {
		l.seen(c.position, c.stopped(l.Name))
	}
}
