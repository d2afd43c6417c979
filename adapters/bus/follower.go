package bus

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/better-compute/metal/domain/event"
)

// follower is a Follower while it runs. The router starts a goroutine for each nudge; oneAtATime lets one of them work
// for all.
type follower struct {
	Follower
	observe func(follower string, took time.Duration, err error)

	mu      sync.Mutex
	wanted  event.Position // the highest position of any nudge
	working chan struct{}  // closed when the one that works is done; nil while none does
	stopped bool
}

// oneAtATime is the outermost middleware. A nudge that comes while another is worked on, or waits to be retried, only
// raises the position that is wanted: however long a follower fails, one goroutine waits.
func (f *follower) oneAtATime(next message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		target, mine := f.begin(positionOf(m))
		for mine {
			if f.Position() < target {
				if _, err := next(m); err != nil { // only once the context has ended
					f.end()
					return nil, err
				}
			}
			target, mine = f.again(target)
		}
		return nil, nil
	}
}

// begin raises what is wanted and takes the work if nobody has it.
func (f *follower) begin(p event.Position) (target event.Position, mine bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wanted = max(f.wanted, p)
	if f.working != nil || f.stopped {
		return 0, false
	}
	f.working = make(chan struct{})
	return f.wanted, true
}

// again goes on if more is wanted than was when the work began, and gives the work up otherwise.
func (f *follower) again(served event.Position) (target event.Position, mine bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.wanted > served && !f.stopped {
		return f.wanted, true
	}
	f.finish()
	return 0, false
}

func (f *follower) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.finish()
}

// finish needs mu.
func (f *follower) finish() {
	close(f.working)
	f.working = nil
}

// catchUp is the handler.
func (f *follower) catchUp(m *message.Message) error {
	began := time.Now()
	panicked := true
	defer func() {
		if panicked {
			f.observe(f.Name, time.Since(began), fmt.Errorf("%s panicked", f.Name))
		}
	}()
	err := f.CatchUp(m.Context())
	panicked = false
	f.observe(f.Name, time.Since(began), err)
	return err
}

// stop takes no more work and waits for the one that works.
func (f *follower) stop(ctx context.Context) error {
	f.mu.Lock()
	f.stopped = true
	working := f.working
	f.mu.Unlock()
	if working == nil {
		return nil
	}
	select {
	case <-working:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("follower %s did not return at shutdown", f.Name)
	}
}
