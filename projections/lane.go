package projections

import (
	"context"
	"sync"
	"time"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
)

// lane is what this process knows of one projection.
type lane struct {
	Projection
	turn chan struct{} // holds a token while a catch-up runs in this process
	late chan struct{} // holds a token while somebody waits for the next batch
	last time.Time     // when a batch was begun after which events gather, or zero; only the holder of turn looks
	rows *memory       // likewise

	mu       sync.Mutex
	loaded   bool           // position was read from the checkpoint and nothing has failed since
	position event.Position // everything up to here is applied, or of types that are not consumed
	saved    event.Position // the checkpoint as last seen; not above position
	stopped  *fault.Error   // why it stands still; nil: it doesn't
	failures int            // in a row
	resume   time.Time      // no try before
	looked   time.Time      // when the checkpoint was last seen
	moved    chan struct{}  // closed and replaced whenever position or stopped changes
}

// leastPace is the pace of a projection that has none of its own, and of one whose next batch somebody waits for.
const leastPace = 2 * time.Millisecond

func newLane(p Projection) *lane {
	if p.Pace <= 0 {
		p.Pace = leastPace
	}
	return &lane{Projection: p, turn: make(chan struct{}, 1), late: make(chan struct{}, 1), moved: make(chan struct{}), rows: newMemory()}
}

// gather waits until the next batch may begin: sooner where somebody waits for it.
func (l *lane) gather(ctx context.Context) error {
	wait := time.Until(l.last.Add(l.Pace))
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-l.late:
	case <-ctx.Done():
		return ctx.Err()
	}
	timer.Reset(time.Until(l.last.Add(leastPace)))
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hurry has the next batch begin soon.
func (l *lane) hurry() {
	select {
	case l.late <- struct{}{}:
	default: // somebody waits already
	}
}

// took notes that a batch of so many events was read just now. The one after a full batch begins at once.
func (l *lane) took(events int) {
	switch events {
	case 0:
	case batchSize:
		l.last = time.Time{}
	default:
		l.last = time.Now()
	}
}

// look gives the position, why the lane stands still, and a channel that closes when either changes.
func (l *lane) look() (event.Position, *fault.Error, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.position, l.stopped, l.moved
}

// known gives the position and the checkpoint where they are certain enough to read the log from.
func (l *lane) known() (position, saved event.Position, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.position, l.saved, l.loaded
}

// skipped says that nothing up to p is consumed. The checkpoint follows with the next batch, or within a second: until
// then a crash only reads the same stretch again.
func (l *lane) skipped(p event.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.signal(p, l.stopped)
}

// reached sets the position as the checkpoint has it: it may go back, when the database lost its last moments.
func (l *lane) reached(p event.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.loaded || p != l.saved { // somebody else was the owner meanwhile
		l.rows.forget()
	}
	l.loaded, l.looked, l.saved = true, time.Now(), p
	l.signal(p, l.stopped)
}

// passed says that everything up to p was applied without an error.
func (l *lane) passed(p event.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loaded, l.looked, l.saved, l.failures = true, time.Now(), p, 0
	l.signal(p, nil)
}

// failed says that the lane stands still at p, and for how long.
func (l *lane) failed(p event.Position, why *fault.Error, pause func(failures int) time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures++
	l.rows.forget()
	l.loaded, l.looked, l.saved, l.resume = true, time.Now(), p, time.Now().Add(pause(l.failures))
	l.signal(p, why)
}

// forget makes the next catch-up read the checkpoint again.
func (l *lane) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loaded = false
}

// seen takes in what the checkpoint says while another process may own the projection. What that one has applied was not read
// here, and the database may yet lose it: the next batch begins at the checkpoint.
func (l *lane) seen(p event.Position, why *fault.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p > l.position {
		l.loaded = false
	}
	l.signal(max(p, l.position), why)
}

// confirmed is how far the checkpoint was, as far as this process has seen.
func (l *lane) confirmed() event.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loaded {
		return l.saved
	}
	return l.position
}

// wentBack says that the checkpoint is at p, further back than it was.
func (l *lane) wentBack(p event.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loaded = false
	l.signal(p, l.stopped)
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
