package redfish

import (
	"context"
	"time"
)

// gate bounds how many requests one controller gets at once: some wedge on more.
type gate struct{ all, write chan struct{} }

func newGate(n int) *gate {
	return &gate{all: make(chan struct{}, n), write: make(chan struct{}, 1)}
}

// enter waits for a place; leave gives it back.
func (g *gate) enter(ctx context.Context, write bool) (leave func(), err error) {
	if write {
		select {
		case g.write <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	select {
	case g.all <- struct{}{}:
	case <-ctx.Done():
		if write {
			<-g.write
		}
		return nil, ctx.Err()
	}
	return func() {
		<-g.all
		if write {
			<-g.write
		}
	}, nil
}

// pace is a growing pause between looks: short at first, for controllers that are done at once.
type pace struct{ next, most time.Duration }

const firstPause = 50 * time.Millisecond

func (d *Driver) pace() *pace { return &pace{next: min(firstPause, d.o.Poll), most: d.o.Poll} }

// wait pauses, at least as long as atLeast, and reports the end of ctx.
func (p *pace) wait(ctx context.Context, atLeast time.Duration) error {
	t := time.NewTimer(max(p.next, atLeast))
	defer t.Stop()
	p.next = min(p.next*2, p.most)
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
