// Package postgres is the event log on PostgreSQL, the embedded default.
//
// One appender per process gathers the appends of all callers into one transaction and one round trip, under an
// advisory lock that all processes on the database share. Positions are given under that lock, so that commit order
// is position order and a reader that follows positions misses nothing. Readers take no lock.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	pg "github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/domain/event"
)

// Options tune a store; the zero value is right.
type Options struct {
	// MaxBatch bounds the appends of one transaction, 1 or more. Zero: 256.
	MaxBatch int
	// MaxBatchBytes bounds the data of one transaction; a single append may be larger. Zero: 4 MiB.
	MaxBatchBytes int
	// CachedStreams bounds for how many streams the hash of the newest known event is kept in memory. Zero: 65,536.
	CachedStreams int
	// Poll is how often to look for events of other processes, in case a notification was lost, a second or more; a process
	// that is alone on the log looks less often. Zero: 2 s.
	Poll time.Duration
}

func (o Options) complete() Options {
	set := func(field *int, value int) {
		if *field <= 0 {
			*field = value
		}
	}
	set(&o.MaxBatch, 256)
	set(&o.MaxBatchBytes, 4<<20)
	set(&o.CachedStreams, 65_536)
	if o.Poll <= 0 {
		o.Poll = 2 * time.Second
	}
	o.Poll = max(o.Poll, time.Second)
	return o
}

// Store is the log. It is safe for use by many goroutines.
type Store struct {
	pool      *pgxpool.Pool
	registry  *event.Registry
	tips      *tips
	recent    *recent
	growth    *growth
	peers     peers
	queue     *queue
	appender  *appender
	poll      time.Duration
	announcer *pg.Announcer
	listener  *pg.Listener
}

var _ event.Store = (*Store)(nil)

// New opens the log in the migrated database of pool, which it uses for reading; three connections of its own are for
// appending, announcing and listening. Close the store before the pool. Error: ErrUnavailable.
func New(ctx context.Context, pool *pgxpool.Pool, r *event.Registry, o Options) (*Store, error) {
	o = o.complete()
	s := &Store{
		pool: pool, registry: r, tips: newTips(o.CachedStreams), recent: &recent{registry: r}, growth: newGrowth(), queue: newQueue(o),
		poll: o.Poll,
	}
	head, err := s.Head(ctx)
	if err != nil {
		return nil, err
	}
	s.growth.atLeast(head)
	config := pool.Config().ConnConfig
	s.announcer = pg.NewAnnouncer(config, channel)
	s.listener = pg.Listen(config, channel, pg.Hearing{
		Connected: s.peers.join, Look: s.look, Period: o.Poll, Heard: s.heard,
	})
	s.appender = startAppender(config, s.queue, s.committed, s.lost)
	return s, nil
}

// lost forgets what a lost connection makes doubtful.
func (s *Store) lost() {
	s.tips.forget()
	s.recent.forget()
}

// Close waits for the appends under way, a few seconds at most, and ends the store's goroutines and connections.
func (s *Store) Close() {
	s.appender.close()
	s.announcer.Close()
	s.listener.Close()
}

// Append implements event.Store.
func (s *Store) Append(
	ctx context.Context, stream event.Stream, expect event.Version, meta event.Meta, events ...event.Event,
) (event.Position, error) {
	if err := ctx.Err(); err != nil {
		return 0, unavailable(ctx, err)
	}
	prev, known := s.tips.get(stream, expect)
	if !known {
		var err error
		if prev, err = s.hashAt(ctx, stream, expect); err != nil {
			return 0, err
		}
	}
	wires, tip, err := s.registry.SealAll(stream, expect, prev, meta, events)
	if err != nil {
		return 0, err
	}
	p := newPending(stream, expect, wires)
	if !s.appender.lead(ctx, p) && !s.queue.put(p) {
		return 0, unavailable(ctx, errClosed)
	}
	position, added, err := await(ctx, p)
	if added {
		s.tips.put(stream, expect+event.Version(len(wires)), tip)
	}
	return position, err
}

// hashAt reads the hash of one event. A stream that is not so far is a conflict already.
func (s *Store) hashAt(ctx context.Context, stream event.Stream, v event.Version) (event.Hash, error) {
	rows, err := s.read(ctx, "WHERE stream = $1 AND version = $2", string(stream), uint64(v))
	if err != nil {
		return event.Hash{}, err
	}
	if len(rows) == 1 {
		return rows[0].wire.Hash(), nil
	}
	var actual event.Version
	err = s.pool.QueryRow(ctx, versionSQL, string(stream)).Scan(&actual)
	if err != nil {
		return event.Hash{}, unavailable(ctx, err)
	}
	return event.Hash{}, &event.ConflictError{Stream: stream, Expected: v, Actual: actual}
}

// unavailable says what a failed read, or an append that was never sent, means to a caller: nothing was written, and
// where the caller's own context ended, so it was that.
func unavailable(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = errors.Join(ended, err)
	}
	return fmt.Errorf("%w: %w", event.ErrUnavailable, err)
}
