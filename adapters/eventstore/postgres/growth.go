package postgres

import (
	"context"
	"strconv"
	"sync"

	"github.com/better-compute/metal/domain/event"
)

// growth is how far this process knows the log to reach, and wakes those who wait for more.
type growth struct {
	mu    sync.Mutex
	head  event.Position
	moved chan struct{} // closed and replaced when head moves
}

func newGrowth() *growth { return &growth{moved: make(chan struct{})} }

func (g *growth) known() event.Position {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.head
}

// to sets the head, even backwards.
func (g *growth) to(head event.Position) { g.set(func(event.Position) event.Position { return head }) }

// atLeast raises the head.
func (g *growth) atLeast(head event.Position) {
	g.set(func(known event.Position) event.Position { return max(known, head) })
}

func (g *growth) set(next func(event.Position) event.Position) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if head := next(g.head); head != g.head {
		g.head = head
		close(g.moved)
		g.moved = make(chan struct{})
	}
}

// heard takes a notification of another process, or our own again.
func (g *growth) heard(payload string) {
	if head, err := strconv.ParseUint(payload, 10, 63); err == nil {
		g.atLeast(event.Position(head))
	}
}

// past returns when the log reaches beyond a position.
func (g *growth) past(ctx context.Context, after event.Position) error {
	for {
		g.mu.Lock()
		head, moved := g.head, g.moved
		g.mu.Unlock()
		if err := ctx.Err(); head > after || err != nil {
			return err
		}
		select {
		case <-moved:
		case <-ctx.Done():
		}
	}
}
