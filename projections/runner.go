package projections

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
)

// batchSize is how many events one transaction applies at most.
const batchSize = 1000

// Runner keeps projections at the end of the log. Any number of processes may run the same ones: each batch has one
// owner, the holder of the checkpoint's row lock. Its methods may be called from many goroutines.
type Runner struct {
	pool    *pgxpool.Pool
	store   event.Store
	lanes   map[string]*lane
	names   []string
	backoff func(failures int) time.Duration
}

// NewRunner makes a runner of the projections; it runs nothing by itself. Two projections of one name, and one
// without what it needs, are errors.
func NewRunner(pool *pgxpool.Pool, store event.Store, list ...Projection) (*Runner, error) {
	r := &Runner{pool: pool, store: store, lanes: map[string]*lane{}, backoff: backoff}
	var wrong []error
	for _, p := range list {
		if err := r.add(p); err != nil {
			wrong = append(wrong, err)
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	return r, nil
}

// projectionName keeps names usable as part of a schema's name.
var projectionName = regexp.MustCompile(`^[a-z]{1,40}$`)

func (r *Runner) add(p Projection) error {
	switch {
	case !projectionName.MatchString(p.Name):
		return fmt.Errorf("projection %q: a name is 1 to 40 lower-case letters", p.Name)
	case r.lanes[p.Name] != nil:
		return fmt.Errorf("projection %s stands twice", p.Name)
	case p.Version < 1 || p.Apply == nil || len(p.Tables) == 0:
		return fmt.Errorf("projection %s: it needs a version of 1 or more, Apply and tables", p.Name)
	}
	r.lanes[p.Name] = newLane(p)
	r.names = append(r.names, p.Name)
	return nil
}

// Names lists the projections in the order given.
func (r *Runner) Names() []string { return r.names }

// backoff is the pause after so many failures in a row: 250 ms, doubled up to a minute, give or take a quarter.
func backoff(failures int) time.Duration {
	const least, most = 250 * time.Millisecond, time.Minute
	pause := most
	if failures <= 8 {
		pause = min(most, least<<(failures-1))
	}
	return pause*3/4 + rand.N(pause/2) //nolint:gosec // jitter needs no secrecy
}

func (r *Runner) lane(name string) (*lane, error) {
	if l := r.lanes[name]; l != nil {
		return l, nil
	}
	return nil, fault.New(fault.NotFound, "there is no projection %q", name).WithDetail("projections", r.names)
}

// Position is how far the projection has come, as far as this process has seen: a nudge for an older position needs
// no catch-up. It costs no I/O. Zero for a name that is not known.
func (r *Runner) Position(name string) event.Position {
	l, err := r.lane(name)
	if err != nil {
		return 0
	}
	position, _, _ := l.look()
	return position
}

// CatchUp applies what is newer than the checkpoint until nothing is. Calls for one projection take turns. A
// projection whose version was raised is rebuilt first.
//
// Errors: UNAVAILABLE for an event that can't be applied: everything before it is applied, the checkpoint holds the
// error, and until a pause that grows has passed further calls return it at once. INVALID_CONFIG where a newer
// program built the projection. Errors of the database and of the log as they come: the next call tries again.
func (r *Runner) CatchUp(ctx context.Context, name string) error {
	l, err := r.lane(name)
	if err != nil {
		return err
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := l.resting(); err != nil {
		return err
	}
	for more := true; more; {
		if err := l.gather(ctx); err != nil {
			return err
		}
		if more, err = r.advance(ctx, l); err != nil {
			l.forget()
			return err
		}
	}
	return nil
}

// confirmEvery is how often an idle projection looks whether the checkpoint is still what it remembers: commits of
// projections are not waited for, so a crash of the database may take the last of them back.
const confirmEvery = time.Second

// advance applies one batch. more says that there may be another.
func (r *Runner) advance(ctx context.Context, l *lane) (more bool, err error) {
	from, saved, known := l.known()
	if !known {
		return true, r.load(ctx, l)
	}
	batch, head, err := r.store.ReadAll(ctx, from, l.Consumes, batchSize)
	if err != nil {
		return false, fmt.Errorf("%s: read the log after %s: %w", l.Name, from, err)
	}
	l.took(len(batch))
	due := l.due(confirmEvery)
	switch {
	case len(batch) > 0, due && head > saved:
		more, err := r.apply(ctx, l, span{saved, batch, head})
		return more && r.mayHaveMore(l), err
	case head > from:
		l.skipped(head)
		return r.mayHaveMore(l), nil
	case !due:
		return false, nil
	}
	if err := r.load(ctx, l); err != nil {
		return false, err
	}
	now, _, _ := l.known()
	return now != from, nil
}

// mayHaveMore is false where the lane is at the end of the log, as far as this process knows.
func (r *Runner) mayHaveMore(l *lane) bool {
	position, _, known := l.known()
	return !known || event.MayHaveMore(r.store, position)
}

// load reads the checkpoint and settles a difference of versions.
func (r *Runner) load(ctx context.Context, l *lane) error {
	c, err := readCheckpoint(ctx, r.pool, l.Projection)
	switch {
	case err != nil:
		return err
	case c.version < l.Version:
		return r.renew(ctx, l)
	case c.version > l.Version:
		newer := newerThan(l.Projection, c.version)
		l.failed(c.position, newer, r.backoff)
		return newer
	}
	l.reached(c.position)
	return nil
}

func newerThan(p Projection, stored int) *fault.Error {
	return fault.New(fault.InvalidConfig, "the read model %s is at version %d, this program has version %d",
		p.Name, stored, p.Version).
		WithDetail("projection", p.Name).WithRemedy("run the newer program; the tables are not built backwards")
}
