package postgres

import (
	"context"
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

// replace takes the head as the database has it, even a lower one, unless it moved since before was known.
func (g *growth) replace(before, head event.Position) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.head == before {
		g.to(head)
	}
}

// atLeast raises the head.
func (g *growth) atLeast(head event.Position) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.to(max(g.head, head))
}

// to moves the head and wakes who waits; the caller holds the lock.
func (g *growth) to(head event.Position) {
	if head != g.head {
		g.head = head
		close(g.moved)
		g.moved = make(chan struct{})
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
