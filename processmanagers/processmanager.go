// Package processmanagers runs the reconcilers: an event wakes a key, a reconciler makes what is match what should be.
//
// A process manager never trusts what woke it. It folds what it needs fresh from the log, lets a pure function decide what
// should happen now, does at most that, and says when to look again. So a wake-up may be doubled or late without harm, and
// correctness never rests on a lease: two workers on one key collide on the expected version of a stream.
package processmanagers

import (
	"context"
	"time"

	"github.com/better-compute/metal/domain/event"
)

// Manager is one process manager.
type Manager struct {
	Name string
	// Wakes tells the key that an event of the log wakes. It is pure, and passes over events it does not know.
	Wakes func(event.Recorded) (key string, ok bool)
	// Rests tells the key that has nothing left to do after an event, so that rebuilding wake-ups from the log gives those
	// that are due and not every key there ever was. Nil: no event says so. Wakes goes first where both know an event.
	Rests func(event.Recorded) (key string, ok bool)
	// Reconcile looks at a key and does what is due. again is when to look again without being woken; zero: not at all. The
	// context ends where this process may no longer work on the key.
	Reconcile func(ctx context.Context, key string) (again time.Duration, err error)
}

// Lease is a key that one process works on.
type Lease struct {
	Manager, Key string
	Generation   int64 // of the wake-up; raised by whatever wakes the key meanwhile
	Number       int64 // of the lease: an older one settles nothing
	Attempts     int   // passes in a row that failed before this one
	// Woken is how far the log was turned into wake-ups when the key was taken, at least: whoever works on the key must see
	// everything up to there.
	Woken event.Position
}

// Settled is a lease that is given back.
type Settled struct {
	Lease
	// Again is when the key is due again; zero: only when it is woken. A key that was woken meanwhile is due at once.
	Again time.Duration
	// Error is why the pass failed, bounded and scrubbed; empty: it did not.
	Error string
}

// Wakeups is the table of keys that are due, shared by every process on the log. Times are by its own clock.
type Wakeups interface {
	// Wake makes keys due now. One that is due already is not due twice; one that is worked on is looked at once more.
	Wake(ctx context.Context, manager string, keys ...string) error
	// Lease gives back what the request has settled, as Settle does, and takes up to limit keys that are due and that nobody
	// works on. After an error neither is certain: what was settled may be given back again. next is when another key may be
	// due, at the latest a minute from now; a holder's dead leases count as due once their time to live is over.
	Lease(ctx context.Context, r LeaseRequest) (leases []Lease, next time.Duration, err error)
	// Renew makes leases live for ttl from now, and gives those that the holder still has.
	Renew(ctx context.Context, holder string, ttl time.Duration, leases []Lease) (held []Lease, err error)
	// Settle gives leases back. Those that the holder has no longer are passed over.
	Settle(ctx context.Context, holder string, settled []Settled) error
	// Nudged gives a value when keys were woken through this value's process. One value may stand for many keys.
	Nudged() <-chan struct{}
}

// LeaseRequest asks for keys.
type LeaseRequest struct {
	Managers []string
	Holder   string // unique to one run of one process
	TTL      time.Duration
	Limit    int
	Settled  []Settled // of earlier requests
}
