package postgres

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/event"
)

// channel is where processes tell each other that the log has grown, by its position, or that they have joined.
const (
	channel = "metal_log"
	hello   = "hello"
)

// presenceLock is held, shared, by the listening connection of every process on the log.
const presenceLock = 0x6d6574616c_03

// peers knows whether other processes are on the log. A process that is alone notifies nobody: a NOTIFY for each
// commit would cost more than a third of the rate of a lone writer.
type peers struct {
	present atomic.Bool
	looked  time.Time // when the database was last asked on this connection; only the listener looks
}

// aloneLooks is how many looks a process that is alone makes one of: whoever joins says hello.
const aloneLooks = 5

// join says hello to those who are there already.
func (p *peers) join(ctx context.Context, conn *pgx.Conn) error {
	p.looked = time.Time{}
	_, err := conn.Exec(ctx, "SELECT pg_advisory_lock_shared($1)", int64(presenceLock))
	if err == nil {
		_, err = conn.Exec(ctx, "SELECT pg_notify($1, $2)", channel, hello)
	}
	return err
}

// lookSQL finds the head, and whether another process than this one holds the presence lock.
const lookSQL = `
SELECT (SELECT coalesce(max(position), 0) FROM events), EXISTS (
	SELECT FROM pg_locks
	WHERE locktype = 'advisory' AND classid::bigint << 32 | objid::bigint = $1 AND objsubid = 1 AND pid <> pg_backend_pid()
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`

// look takes head and peers as the database has them: after a backup was restored the head may be lower than what was
// known.
func (s *Store) look(ctx context.Context, conn *pgx.Conn) error {
	if !s.peers.present.Load() && time.Since(s.peers.looked) < s.poll*(2*aloneLooks-1)/2 {
		return nil
	}
	before := s.growth.known()
	var head event.Position
	var others bool
	if err := conn.QueryRow(ctx, lookSQL, int64(presenceLock)).Scan(&head, &others); err != nil {
		return err
	}
	s.peers.present.Store(others)
	s.peers.looked = time.Now()
	s.growth.replace(before, head)
	return nil
}

// heard takes a notification. Whoever joins is told the head at once, because what was committed between its own look
// and its hello arriving here was announced to nobody.
func (s *Store) heard(payload string) {
	if payload == hello {
		s.peers.present.Store(true)
		s.announcer.Announce(s.growth.known().String())
		return
	}
	if head, err := strconv.ParseUint(payload, 10, 63); err == nil {
		s.growth.atLeast(event.Position(head))
	}
}

// committed runs after each transaction that added events.
func (s *Store) committed(added []*recentEvent) {
	s.recent.add(added)
	head := added[len(added)-1].position
	s.growth.atLeast(head)
	if s.peers.present.Load() {
		s.announcer.Announce(head.String())
	}
}
