package processmanagers

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrLeaseLost is why the context of a pass ends when the process can't be sure any more that it alone has the key.
var ErrLeaseLost = errors.New("the lease could not be renewed")

// held is what one process holds. A pass whose lease is not renewed in time is stopped before another process may take the
// key over: times are counted from before the table was asked, on the monotonic clock.
type held struct {
	wakeups Wakeups
	holder  string
	ttl     time.Duration

	mu     *sync.Mutex
	leases map[leaseID]*holding
	first  chan struct{} // holds a token once something is held
}

type leaseID struct {
	manager, key string
	number       int64
}

type holding struct {
	Lease
	since time.Time
	stop  *time.Timer
	end   context.CancelCauseFunc
}

func newHeld(wakeups Wakeups, holder string, ttl time.Duration) held {
	return held{
		wakeups: wakeups, holder: holder, ttl: ttl, mu: &sync.Mutex{}, leases: map[leaseID]*holding{}, first: make(chan struct{}, 1),
	}
}

func idOf(l Lease) leaseID { return leaseID{l.Manager, l.Key, l.Number} }

// safe is how long after the table was asked a lease may be trusted: a part of its time is left for stopping.
func (h held) safe() time.Duration { return h.ttl * 5 / 6 }

// hold gives the context of a pass; release ends it.
func (h held) hold(ctx context.Context, l Lease, asked time.Time) (pass context.Context, release func()) {
	pass, end := context.WithCancelCause(ctx)
	x := &holding{Lease: l, since: asked, end: end}
	x.stop = time.AfterFunc(time.Until(asked.Add(h.safe())), func() { end(ErrLeaseLost) })
	h.mu.Lock()
	h.leases[idOf(l)] = x
	h.mu.Unlock()
	select {
	case h.first <- struct{}{}:
	default: // renew knows already
	}
	return pass, func() {
		h.mu.Lock()
		delete(h.leases, idOf(l))
		h.mu.Unlock()
		x.stop.Stop()
		end(nil)
	}
}

// renew keeps leases alive until ctx ends. Most passes are over before theirs needs it, and while nothing is held nothing
// happens here.
func (h held) renew(ctx context.Context) {
	look := time.NewTimer(h.ttl / 6)
	defer look.Stop()
	for {
		if !h.any() {
			select {
			case <-h.first:
			case <-ctx.Done():
				return
			}
		}
		look.Reset(h.ttl / 6)
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
		asked := time.Now()
		due := h.due(asked)
		if len(due) == 0 {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, h.ttl/2)
		still, err := h.wakeups.Renew(asking, h.holder, h.ttl, due)
		cancel()
		if err == nil {
			h.renewed(due, still, asked)
		}
	}
}

func (h held) any() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.leases) > 0
}

// due are the leases that are older than a third of their time.
func (h held) due(now time.Time) (due []Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, x := range h.leases {
		if now.Sub(x.since) >= h.ttl/3 {
			due = append(due, x.Lease)
		}
	}
	return due
}

func (h held) renewed(asked, still []Lease, at time.Time) {
	kept := map[leaseID]bool{}
	for _, l := range still {
		kept[idOf(l)] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range asked {
		x := h.leases[idOf(l)]
		switch {
		case x == nil: // the pass is over
		case !kept[idOf(l)]:
			x.end(ErrLeaseLost)
		case x.stop.Stop(): // else it has been stopped already
			x.since = at
			x.stop.Reset(time.Until(at.Add(h.safe())))
		}
	}
}
