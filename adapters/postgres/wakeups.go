package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/processmanagers"
)

// Wakeups is the table of keys that are due, shared by every process on the database. All times are the database's. It is
// filled from the log by CatchUp, which belongs on the bus, from a checkpoint of its own; rows and checkpoint move in one
// transaction.
//
// What it commits is not waited for: a crash of the database takes the last moments of rows and checkpoint back alike, and
// Lease notices.
type Wakeups struct {
	pool     *pgxpool.Pool
	log      event.Store
	managers []processmanagers.Manager
	nudged   chan struct{}

	turn chan struct{} // holds a token while a catch-up runs in this process
	mu   sync.Mutex
	at   progress
}

var _ processmanagers.Wakeups = (*Wakeups)(nil)

// NewWakeups makes the table's adapter for the managers of this program.
func NewWakeups(pool *pgxpool.Pool, log event.Store, managers ...processmanagers.Manager) *Wakeups {
	return &Wakeups{
		pool: pool, log: log, managers: managers, nudged: make(chan struct{}, 1), turn: make(chan struct{}, 1),
	}
}

// longestWait is when a table without any key is looked at again at the latest.
const longestWait = time.Minute

// unsynced begins a transaction whose commit waits for no disk, and whose statements go by indexes and are planned once: the
// table is small one moment and large the next, and planning them anew costs as much as running them.
const unsynced = `SELECT set_config('synchronous_commit', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true),
	set_config('enable_seqscan', 'off', true)`

// Nudged implements processmanagers.Wakeups.
func (w *Wakeups) Nudged() <-chan struct{} { return w.nudged }

func (w *Wakeups) nudge() {
	select {
	case w.nudged <- struct{}{}:
	default: // one is under way already
	}
}

const wakeSQL = `INSERT INTO wakeups (manager, key) SELECT * FROM unnest($1::text[], $2::text[]) ORDER BY 1, 2
	ON CONFLICT (manager, key) DO UPDATE SET due = least(wakeups.due, now()), generation = wakeups.generation + 1`

// Wake implements processmanagers.Wakeups.
func (w *Wakeups) Wake(ctx context.Context, manager string, keys ...string) error {
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	batch := &pgx.Batch{}
	batch.Queue(unsynced)
	batch.Queue(wakeSQL, slices.Repeat([]string{manager}, len(keys)), keys)
	if err := w.pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("wake %d keys of %s: %w", len(keys), manager, Fault(err))
	}
	w.nudge()
	return nil
}

// Whoever takes a row at the same moment has it locked, and it is passed over.
const leaseSQL = `WITH taken AS (
		SELECT manager, key FROM wakeups WHERE free_at <= now() AND manager = ANY($1)
		ORDER BY free_at LIMIT $2 FOR UPDATE SKIP LOCKED)
	UPDATE wakeups w SET leased_until = now() + $3, holder = $4, lease = w.lease + 1
	FROM taken t WHERE w.manager = t.manager AND w.key = t.key
	RETURNING w.manager, w.key, w.generation, w.lease, w.attempts`

const nextSQL = `SELECT (SELECT free_at - clock_timestamp() FROM wakeups WHERE manager = ANY($1) ORDER BY free_at LIMIT 1),
	(SELECT position FROM checkpoints WHERE projection = $2)`

// Lease implements processmanagers.Wakeups.
func (w *Wakeups) Lease(ctx context.Context, r processmanagers.LeaseRequest) ([]processmanagers.Lease, time.Duration, error) {
	var leases []processmanagers.Lease
	var next *time.Duration
	var checkpoint *event.Position
	known := w.progress()
	batch := &pgx.Batch{}
	batch.Queue(unsynced)
	queueSettled(batch, r.Holder, r.Settled)
	batch.Queue(leaseSQL, r.Managers, r.Limit, r.TTL, r.Holder).Query(func(rows pgx.Rows) (err error) {
		leases, err = pgx.CollectRows(rows, scanLease)
		return err
	})
	batch.Queue(nextSQL, r.Managers, followerName).QueryRow(func(row pgx.Row) error { return row.Scan(&next, &checkpoint) })
	if err := w.pool.SendBatch(ctx, batch).Close(); err != nil {
		return nil, 0, fmt.Errorf("settle %d wake-ups and lease others: %w", len(r.Settled), Fault(err))
	}
	w.seen(known, checkpoint)
	for i := range leases {
		if checkpoint == nil { // nobody can say what they were woken by
			leases[i].Woken = math.MaxInt64
		} else {
			leases[i].Woken = *checkpoint
		}
	}
	if next == nil {
		return leases, longestWait, nil
	}
	return leases, min(max(*next, 0), longestWait), nil
}

func scanLease(row pgx.CollectableRow) (l processmanagers.Lease, err error) {
	err = row.Scan(&l.Manager, &l.Key, &l.Generation, &l.Number, &l.Attempts)
	return l, err
}

const renewSQL = `UPDATE wakeups w SET leased_until = now() + $2
	FROM unnest($3::text[], $4::text[], $5::bigint[]) AS l (manager, key, lease)
	WHERE w.manager = l.manager AND w.key = l.key AND w.lease = l.lease AND w.holder = $1 AND w.leased_until > now()
	RETURNING w.manager, w.key, w.generation, w.lease, w.attempts`

// Renew implements processmanagers.Wakeups. A lease that ran out is not renewed: somebody may be taking it.
func (w *Wakeups) Renew(ctx context.Context, holder string, ttl time.Duration, leases []processmanagers.Lease,
) ([]processmanagers.Lease, error) {
	var columns settledColumns
	for _, l := range ordered(leases, func(l processmanagers.Lease) processmanagers.Lease { return l }) {
		columns.add(processmanagers.Settled{Lease: l})
	}
	rows, err := w.pool.Query(ctx, renewSQL, holder, ttl, columns.managers, columns.keys, columns.numbers)
	if err != nil {
		return nil, fmt.Errorf("renew leases: %w", Fault(err))
	}
	held, err := pgx.CollectRows(rows, scanLease)
	if err != nil {
		return nil, fmt.Errorf("renew leases: %w", Fault(err))
	}
	return held, nil
}

// A key that is done goes, unless it was woken meanwhile. In one statement with the next it would not do: a row that is
// woken just then would be in neither's snapshot as it has become.
const doneSQL = `DELETE FROM wakeups w
	USING unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::interval[]) AS s (manager, key, lease, generation, again)
	WHERE w.manager = s.manager AND w.key = s.key AND w.holder = $1 AND w.lease = s.lease
		AND s.again IS NULL AND w.generation = s.generation`

// Whatever is left is due when it said, or at once where it was woken meanwhile.
const againSQL = `UPDATE wakeups w SET leased_until = NULL, holder = NULL,
		due = CASE WHEN w.generation = s.generation AND s.again IS NOT NULL THEN now() + s.again ELSE now() END,
		attempts = s.attempts, error = s.error,
		failing_since = CASE WHEN s.attempts > 0 THEN coalesce(w.failing_since, now()) END
	FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::interval[], $7::integer[], $8::text[])
		AS s (manager, key, lease, generation, again, attempts, error)
	WHERE w.manager = s.manager AND w.key = s.key AND w.holder = $1 AND w.lease = s.lease`

// Settle implements processmanagers.Wakeups.
func (w *Wakeups) Settle(ctx context.Context, holder string, settled []processmanagers.Settled) error {
	batch := &pgx.Batch{}
	batch.Queue(unsynced)
	queueSettled(batch, holder, settled)
	if err := w.pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("settle %d wake-ups: %w", len(settled), Fault(err))
	}
	return nil
}

func queueSettled(batch *pgx.Batch, holder string, settled []processmanagers.Settled) {
	if len(settled) == 0 {
		return
	}
	var c settledColumns
	for _, s := range ordered(settled, func(s processmanagers.Settled) processmanagers.Lease { return s.Lease }) {
		c.add(s)
	}
	if slices.Contains(c.again, nil) {
		batch.Queue(doneSQL, holder, c.managers, c.keys, c.numbers, c.generations, c.again)
	}
	batch.Queue(againSQL, holder, c.managers, c.keys, c.numbers, c.generations, c.again, c.attempts, c.errors)
}

// settledColumns is settled leases as the statements take them.
type settledColumns struct {
	managers, keys       []string
	numbers, generations []int64
	again                []*time.Duration
	attempts             []int
	errors               []*string
}

func (c *settledColumns) add(s processmanagers.Settled) {
	c.managers, c.keys = append(c.managers, s.Manager), append(c.keys, s.Key)
	c.numbers, c.generations = append(c.numbers, s.Number), append(c.generations, s.Generation)
	var again *time.Duration
	var failure *string
	if s.Again > 0 {
		again = &s.Again
	}
	if s.Error != "" {
		failure = &s.Error
	}
	c.again, c.attempts, c.errors = append(c.again, again), append(c.attempts, s.Attempts), append(c.errors, failure)
}

// ordered sorts by key, so that statements of several processes lock rows in one order.
func ordered[T any](list []T, lease func(T) processmanagers.Lease) []T {
	return slices.SortedFunc(slices.Values(list), func(a, b T) int {
		x, y := lease(a), lease(b)
		return cmp.Or(cmp.Compare(x.Manager, y.Manager), cmp.Compare(x.Key, y.Key))
	})
}

// Depth is how many keys are due and how long the oldest of them has been.
func (w *Wakeups) Depth(ctx context.Context) (due int, age time.Duration, err error) {
	const sql = `SELECT count(*), coalesce(now() - min(free_at), interval '0') FROM wakeups WHERE free_at <= now()`
	if err := w.pool.QueryRow(ctx, sql).Scan(&due, &age); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return 0, 0, fmt.Errorf("depth of wake-ups: %w", Fault(err))
	}
	return due, age, nil
}
