package projections

import (
	"sync"
	"time"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
)

// lane is what this process knows of one projection.
type lane struct {
	Projection
	turn chan struct{} // holds a token while a catch-up runs in this process

	mu       sync.Mutex
	loaded   bool           // position was read from the checkpoint and nothing has failed since
	position event.Position // as last committed, by this process or another
	stopped  *fault.Error   // why it stands still; nil: it doesn't
	failures int            // in a row
	resume   time.Time      // no try before
	looked   time.Time      // when the checkpoint was last seen
	moved    chan struct{}  // closed and replaced whenever position or stopped changes
}

func newLane(p Projection) *lane {
	return &lane{Projection: p, turn: make(chan struct{}, 1), moved: make(chan struct{})}
}

// look gives the position, why the lane stands still, and a channel that closes when either changes.
func (l *lane) look() (event.Position, *fault.Error, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.position, l.stopped, l.moved
}

// known gives the position where it is certain enough to read the log from.
func (l *lane) known() (event.Position, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.position, l.loaded
}

// reached sets the position as the checkpoint has it: it may go back, when the database lost its last moments.
func (l *lane) reached(p event.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loaded, l.looked = true, time.Now()
	l.signal(p, l.stopped)
}

// passed says that everything up to p was applied without an error.
func (l *lane) passed(p event.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loaded, l.looked, l.failures = true, time.Now(), 0
	l.signal(p, nil)
}

// failed says that the lane stands still at p, and for how long.
func (l *lane) failed(p event.Position, why *fault.Error, pause func(failures int) time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures++
	l.loaded, l.looked, l.resume = true, time.Now(), time.Now().Add(pause(l.failures))
	l.signal(p, why)
}

// forget makes the next catch-up read the checkpoint again.
func (l *lane) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loaded = false
}

// seen takes in what the checkpoint says while another process may own the projection.
func (l *lane) seen(p event.Position, why *fault.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.signal(max(p, l.position), why)
}

func (l *lane) signal(p event.Position, why *fault.Error) {
	if p == l.position && (why == nil) == (l.stopped == nil) {
		l.stopped = why
		return
	}
	l.position, l.stopped = p, why
	close(l.moved)
	l.moved = make(chan struct{})
}

// resting is the error for which the lane stands still, while it is too early for another try.
func (l *lane) resting() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped != nil && time.Now().Before(l.resume) {
		return l.stopped
	}
	return nil
}

// due reports whether the checkpoint was not seen for the given time, and counts as seeing it.
func (l *lane) due(after time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.looked) < after {
		return false
	}
	l.looked = time.Now()
	return true
}
