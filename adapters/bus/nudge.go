package bus

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/better-compute/metal/domain/event"
)

const (
	// nudgePause is the least time between nudges: what a busy log gains meanwhile is one nudge, and a log that wakes
	// without news makes no hot loop. A nudge after a quiet moment is not delayed.
	nudgePause = 2 * time.Millisecond
	// awayPause is how long the bus waits before it asks a log again that it could not reach.
	awayPause = time.Second
)

// nudge publishes the head of the log at the start, whenever it changes, and at every tick, until ctx ends. However
// many events were appended meanwhile, they are one nudge.
func (b *Bus) nudge(ctx context.Context) {
	away := false
	head, err := b.log.Head(ctx)
	for ctx.Err() == nil {
		if err == nil {
			b.publish(head)
			if !pause(ctx, nudgePause) {
				return
			}
			head, err = b.next(ctx, head)
		}
		if ctx.Err() != nil {
			return
		}
		if (err != nil) != away {
			away = err != nil
			b.options.Logger.Warn("following the log", "component", "bus", "away", away, "error", err)
		}
		if away {
			pause(ctx, awayPause)
			head, err = b.log.Head(ctx)
		}
	}
}

// next waits for events above head, one tick at most, and gives the new head. A log that knows how far it reaches is not asked:
// it looks for itself, so that at rest there is one who does.
func (b *Bus) next(ctx context.Context, head event.Position) (event.Position, error) {
	tick, cancel := context.WithTimeout(ctx, b.options.Tick)
	defer cancel()
	err := b.log.Changed(tick, head)
	if err != nil && !errors.Is(tick.Err(), context.DeadlineExceeded) {
		return head, err
	}
	if r, knows := b.log.(event.Reacher); knows {
		return r.Reached(), nil
	}
	return b.log.Head(ctx)
}

// publish tells the followers, unless all of them are there: a log at rest nudges nobody.
func (b *Bus) publish(head event.Position) {
	if !slices.ContainsFunc(b.followers, func(f *follower) bool { return f.Position() < head }) {
		return
	}
	m := message.NewMessage(watermill.NewUUID(), message.Payload(head.String()))
	if err := b.pubsub.Publish(advanced, m); err != nil { // it was closed under us: the router is going down
		b.options.Logger.Debug("nudge not delivered", "component", "bus", "error", err)
	}
}

// positionOf reads what publish wrote; anything else is position 0, which asks for nothing.
func positionOf(m *message.Message) event.Position {
	p, err := strconv.ParseUint(string(m.Payload), 10, 64)
	if err != nil {
		return 0
	}
	return event.Position(p)
}

// pause waits and tells whether the time passed before ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
