package postgres

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Clock tells the time of the database, so that replicas agree on deadlines and a jump of one machine's clock fails no
// step early. Between two looks at the database it goes by this machine's monotonic clock, also while the database is away.
type Clock struct {
	pool *pgxpool.Pool
	seen atomic.Pointer[sighting]
}

// sighting is the database's time at a moment of this process.
type sighting struct {
	theirs time.Time
	ours   time.Time // with its monotonic reading
}

// clockPeriod is how often the database's time is looked at.
const clockPeriod = 5 * time.Second

// NewClock looks at the database's time once.
func NewClock(ctx context.Context, pool *pgxpool.Pool) (*Clock, error) {
	c := &Clock{pool: pool}
	return c, c.look(ctx)
}

// Now is the database's time.
func (c *Clock) Now() time.Time {
	s := c.seen.Load()
	return s.theirs.Add(time.Since(s.ours))
}

// Run looks at the database's time every few seconds, until ctx ends.
func (c *Clock) Run(ctx context.Context) error {
	ticker := time.NewTicker(clockPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			looking, cancel := context.WithTimeout(ctx, clockPeriod)
			_ = c.look(looking) // the next look may succeed; the monotonic clock goes on
			cancel()
		case <-ctx.Done():
			return nil
		}
	}
}

// look takes the database's time as being that of the middle of the question.
func (c *Clock) look(ctx context.Context) error {
	asked := time.Now()
	var theirs time.Time
	if err := c.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&theirs); err != nil {
		return Fault(err)
	}
	took := time.Since(asked)
	c.seen.Store(&sighting{theirs: theirs.UTC().Add(took / 2), ours: asked.Add(took)})
	return nil
}
