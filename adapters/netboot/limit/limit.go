// Package limit bounds what machines that boot all at once may take: transfers at a time, and bytes a second.
package limit

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/better-compute/metal/domain/fault"
)

// Transfers bounds how many transfers run at once, in total and for one machine. Safe for concurrent use.
type Transfers struct {
	wait  time.Duration
	each  int
	slots chan struct{}

	mu      sync.Mutex
	of      map[string]int
	waiting int
}

// inLine is how many may wait for each transfer that may run. Each costs memory and a socket, and the address that it comes from
// proves nothing where it is asked for by UDP.
const inLine = 16

// NewTransfers allows total transfers at once, and each for one machine. Who finds all of them taken waits for its turn.
func NewTransfers(total, each int, wait time.Duration) *Transfers {
	return &Transfers{wait: wait, each: each, slots: make(chan struct{}, total), of: map[string]int{}}
}

// Enter begins a transfer of a machine, or gives RATE_LIMITED. The function it gives ends the transfer.
func (t *Transfers) Enter(ctx context.Context, machine string) (func(), error) {
	if !t.count(machine) {
		return nil, fault.New(fault.RateLimited, "the machine has %d transfers already", t.each)
	}
	leave := sync.OnceFunc(func() { <-t.slots; t.uncount(machine) })
	select {
	case t.slots <- struct{}{}:
		return leave, nil
	default:
	}
	if !t.lineUp() {
		t.uncount(machine)
		return nil, fault.New(fault.RateLimited, "%d transfers run already, and %d wait", cap(t.slots), inLine*cap(t.slots)).
			WithRemedy("ask again in a moment")
	}
	defer t.stepOut()
	timer := time.NewTimer(t.wait)
	defer timer.Stop()
	select {
	case t.slots <- struct{}{}:
		return leave, nil
	case <-ctx.Done():
		t.uncount(machine)
		return nil, fault.Wrap(ctx.Err(), fault.Unavailable, "the machine's turn has not come while it waited")
	case <-timer.C:
		t.uncount(machine)
		return nil, fault.New(fault.RateLimited, "%d transfers run already", cap(t.slots)).WithRemedy("ask again in a moment")
	}
}

func (t *Transfers) count(machine string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[machine] >= t.each {
		return false
	}
	t.of[machine]++
	return true
}

func (t *Transfers) uncount(machine string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[machine]--; t.of[machine] <= 0 {
		delete(t.of, machine)
	}
}

// lineUp tells whether there is still room to wait.
func (t *Transfers) lineUp() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting >= inLine*cap(t.slots) {
		return false
	}
	t.waiting++
	return true
}

func (t *Transfers) stepOut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting--
}

// Rate bounds bytes a second over everything that passes it. Nil bounds nothing. Safe for concurrent use.
type Rate struct {
	perSecond float64

	mu   sync.Mutex
	free time.Time // when all that was let through is paid for
}

// NewRate allows so many bytes a second; 0 is no bound.
func NewRate(bytesPerSecond int64) *Rate {
	if bytesPerSecond <= 0 {
		return nil
	}
	return &Rate{perSecond: float64(bytesPerSecond)}
}

// Take waits until n more bytes may pass.
func (r *Rate) Take(ctx context.Context, n int) error {
	if r == nil || n <= 0 {
		return nil
	}
	wait := r.reserve(n, time.Now())
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reserve books n bytes and tells how long to wait for those booked before.
func (r *Rate) reserve(n int, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	start := r.free
	if start.Before(now) {
		start = now
	}
	r.free = start.Add(time.Duration(float64(n) / r.perSecond * float64(time.Second)))
	return start.Sub(now)
}

// Reader reads from another reader no faster than the rate, until ctx ends.
func (r *Rate) Reader(ctx context.Context, from io.Reader) io.Reader { return reader{ctx, r, from} }

type reader struct {
	ctx  context.Context
	rate *Rate
	from io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.from.Read(p)
	if gone := r.rate.Take(r.ctx, n); gone != nil {
		return 0, gone
	}
	return n, err
}
