package processmanagers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/fault"
)

// Options tune workers; the zero value is right for a control plane.
type Options struct {
	Logger *slog.Logger // nil: slog.Default
	// Concurrency is how many keys one process works on at once. Zero: 32.
	Concurrency int
	// TTL is how long a lease outlives its holder. Zero: 3 s.
	TTL time.Duration
	// Poll is how often the table is looked at without a nudge and without a key that falls due. Zero: 1 s.
	Poll time.Duration
	// Rest is the same of a table on which nothing has happened for that long. Zero: 10 s.
	Rest time.Duration
	// Grace is how long passes may run on at shutdown before their contexts end. Zero: 5 s.
	Grace time.Duration
	// FirstRetry and LastRetry bound the pause after a pass that failed; it doubles from the one to the other. Zero: 500 ms
	// and a minute.
	FirstRetry, LastRetry time.Duration
	// Observe is told of every pass. Nil: nobody is.
	Observe func(manager string, took time.Duration, err error)
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Concurrency <= 0 {
		o.Concurrency = 32
	}
	o.TTL = orDefault(o.TTL, 3*time.Second)
	o.Poll = orDefault(o.Poll, time.Second)
	o.Rest = max(o.Poll, orDefault(o.Rest, 10*time.Second))
	o.Grace = orDefault(o.Grace, 5*time.Second)
	o.FirstRetry = orDefault(o.FirstRetry, 500*time.Millisecond)
	o.LastRetry = max(o.FirstRetry, orDefault(o.LastRetry, time.Minute))
	if o.Observe == nil {
		o.Observe = func(string, time.Duration, error) {}
	}
	return o
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return d
}

// Workers works on the keys of process managers that are due.
type Workers struct {
	wakeups  Wakeups
	managers map[string]Manager
	names    []string
	options  Options
	holder   string
	held     held
	done     chan Settled
}

// NewWorkers makes workers; Run starts them. A manager without what it needs, and a name that stands twice, are
// INVALID_CONFIG.
func NewWorkers(wakeups Wakeups, o Options, managers ...Manager) (*Workers, error) {
	o = o.withDefaults()
	w := &Workers{
		wakeups: wakeups, options: o, managers: map[string]Manager{}, done: make(chan Settled, o.Concurrency),
		holder: uuid.NewString(),
	}
	w.held = newHeld(wakeups, w.holder, o.TTL)
	for _, m := range managers {
		if _, twice := w.managers[m.Name]; twice || m.Name == "" || m.Wakes == nil || m.Reconcile == nil {
			return nil, fault.New(fault.InvalidConfig, "process manager %q needs a name of its own, Wakes and Reconcile", m.Name)
		}
		w.managers[m.Name] = m
		w.names = append(w.names, m.Name)
	}
	return w, nil
}

// Run works until ctx ends, then waits for the passes under way and gives their keys back. It runs once.
func (w *Workers) Run(ctx context.Context) error {
	passes, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	renewing, stopRenewing := context.WithCancel(passes)
	renewed := make(chan struct{})
	go func() { defer close(renewed); w.held.renew(renewing) }()
	defer func() { stopRenewing(); <-renewed }()

	d := dispatch{Workers: w, passes: passes, stirred: time.Now()}
	for ctx.Err() == nil {
		wait, busy := d.look(ctx)
		d.wait(ctx, wait, busy)
	}
	return d.drain(passes, end)
}

// dispatch is the state of the one goroutine that claims and settles.
type dispatch struct {
	*Workers
	passes  context.Context //nolint:containedctx // of every pass; it outlives the one that Run was given
	running int
	settled []Settled
	away    bool
	looked  time.Time // when the table was last asked
	stirred time.Time // when something last happened on it
}

// pace is the least time between two looks at the table: on a busy one, what is done and what falls due gathers meanwhile.
// After a quiet moment nothing waits.
const pace = 4 * time.Millisecond

// look gives back what is done and fills the free places. busy says that there is no use in looking at the table before a pass
// is done.
func (d *dispatch) look(ctx context.Context) (wait time.Duration, busy bool) {
	for len(d.done) > 0 {
		d.took(<-d.done)
	}
	asked := time.Now()
	d.looked = asked
	free := d.options.Concurrency - d.running
	if free == 0 {
		if len(d.settled) > 0 {
			d.gave(d.wakeups.Settle(ctx, d.holder, d.settled))
		}
		return 0, true
	}
	leases, next, err := d.wakeups.Lease(ctx, LeaseRequest{
		Managers: d.names, Holder: d.holder, TTL: d.options.TTL, Limit: free, Settled: d.settled,
	})
	if len(leases)+len(d.settled) > 0 {
		d.stirred = asked
	}
	d.gave(err)
	if err != nil {
		return d.options.Poll, false
	}
	for _, lease := range leases {
		d.running++
		pass, release := d.held.hold(d.passes, lease, asked)
		go d.pass(pass, lease, release)
	}
	return min(max(next, time.Millisecond), d.poll(asked)), len(leases) == free
}

// gave forgets what was given back. What could not be is tried once more; then its lease runs out by itself.
func (d *dispatch) gave(err error) {
	if err == nil || d.away {
		d.settled = d.settled[:0]
	}
	d.tell(err)
}

func (d *dispatch) took(s Settled) {
	d.running--
	d.settled = append(d.settled, s)
}

// poll is the longest time until the table is looked at again. Whoever wakes a key tells of it; only what a process that has
// died left behind is found by looking, and that was heard of shortly before.
func (d *dispatch) poll(now time.Time) time.Duration {
	if now.Sub(d.stirred) < d.options.Rest {
		return d.options.Poll
	}
	return d.options.Rest
}

// wait returns when there is something to settle or to claim.
func (d *dispatch) wait(ctx context.Context, wait time.Duration, busy bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	due, nudged := timer.C, d.wakeups.Nudged()
	if busy {
		due, nudged = nil, nil
	}
	select {
	case s := <-d.done:
		d.took(s)
	case <-due:
	case <-nudged:
		d.stirred = time.Now()
	case <-ctx.Done():
	}
	d.gather(ctx)
}

// gather takes what is done until the next look at the table may be.
func (d *dispatch) gather(ctx context.Context) {
	timer := time.NewTimer(time.Until(d.looked.Add(pace)))
	defer timer.Stop()
	for {
		select {
		case s := <-d.done:
			d.took(s)
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// tell logs when the table goes away and when it is back, not each time it is asked meanwhile.
func (d *dispatch) tell(err error) {
	if (err != nil) == d.away || errors.Is(err, context.Canceled) {
		return
	}
	d.away = err != nil
	d.options.Logger.Warn("table of wake-ups", "component", "processmanagers", "away", d.away, "error", err)
}

// drain waits for the passes under way, ends them after the grace, and gives their keys back.
func (d *dispatch) drain(ctx context.Context, end context.CancelFunc) error {
	grace := time.AfterFunc(d.options.Grace, end)
	defer grace.Stop()
	for d.running > 0 {
		d.took(<-d.done)
	}
	if len(d.settled) == 0 {
		return nil
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.options.TTL)
	defer cancel()
	return d.wakeups.Settle(last, d.holder, d.settled)
}

// pass reconciles one key.
func (w *Workers) pass(ctx context.Context, lease Lease, release func()) {
	defer release()
	began := time.Now()
	again, err := w.guarded(commands.AsOf(ctx, lease.Woken), w.managers[lease.Manager], lease.Key)
	s := Settled{Lease: lease, Again: again}
	switch {
	case err == nil:
		s.Attempts = 0
	case ctx.Err() != nil: // it was stopped, by a lost lease or a shutdown: whoever looks next goes on
		s.Again = time.Millisecond
	default:
		s.Attempts++
		s.Again, s.Error = w.backoff(s.Attempts), bounded(err.Error())
		w.options.Logger.Warn("a pass failed", "component", "processmanagers", "manager", lease.Manager, "key", lease.Key,
			"attempts", s.Attempts, "again", s.Again, "error", err)
	}
	w.options.Observe(lease.Manager, time.Since(began), err)
	w.done <- s
}

// guarded makes an error of a panic.
func (w *Workers) guarded(ctx context.Context, m Manager, key string) (again time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			w.options.Logger.Error("a process manager panicked", "component", "processmanagers", "manager", m.Name, "key", key,
				"panic", p, "stack", string(debug.Stack()))
			err = fault.Wrap(fmt.Errorf("panic: %v", p), fault.Internal, "process manager %s panicked", m.Name)
		}
	}()
	return m.Reconcile(ctx, key)
}

// backoff is the pause after so many failures in a row, give or take a quarter.
func (w *Workers) backoff(failures int) time.Duration {
	pause := w.options.LastRetry
	if failures < 16 {
		pause = min(pause, w.options.FirstRetry<<(failures-1))
	}
	return pause*3/4 + rand.N(pause/2+1) //nolint:gosec // jitter needs no secrecy
}

// maxError bounds what the table keeps of an error, in bytes.
const maxError = 2 << 10

func bounded(text string) string {
	if len(text) > maxError {
		text = text[:maxError] + "…"
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
