package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	takeoverPromised = 5 * time.Second
	takeoverMachines = 40
	takeoverHeld     = 3 // workflows that the replica works on when it is killed, at least
)

// takeover kills one of two replicas in the midst of lives, and measures until everything that it worked on goes on.
func takeover(ctx context.Context, b *bench) (_ result, err error) {
	p, err := b.startPlane(ctx)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	s, err := b.openSite(ctx, p, takeoverMachines)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()

	lives, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- newRun(s).all(lives) }()
	held, killed, err := b.killOneOfTwo(ctx, p)
	if err != nil {
		cancel()
		return result{}, errors.Join(err, <-ended)
	}
	last, err := wentOn(ctx, p.database, held, killed)
	if err != nil {
		cancel()
		return result{}, errors.Join(err, <-ended)
	}
	err = <-ended // every machine comes to the end of its life
	cancel()
	if err != nil {
		return result{}, fmt.Errorf("%w\n%s", err, p.log)
	}
	return result{
		text: fmt.Sprintf("%.1f s until the last of %d workflows that it held went on; all %d lives came to their end; load %s",
			last.Seconds(), len(held), takeoverMachines, loadAverage()),
		kept: last <= takeoverPromised,
	}, nil
}

// killOneOfTwo starts a second replica, and kills it while it works on some nodes, which it gives. Agents speak to the first.
func (b *bench) killOneOfTwo(ctx context.Context, p *plane) (held []string, at time.Time, err error) {
	first, err := holding(ctx, p.database, "", 1)
	if err != nil {
		return nil, at, err
	}
	gateway, err := freePort(ctx)
	if err != nil {
		return nil, at, err
	}
	second, err := b.startReplica(ctx, p.dsn, gateway, p.gateway, "info")
	if err != nil {
		return nil, at, err
	}
	defer second.kill()
	name, err := holding(ctx, p.database, first, takeoverHeld)
	if err != nil {
		return nil, at, err
	}
	second.kill()
	at = time.Now()
	err = p.database.QueryRow(ctx, `SELECT coalesce(array_agg(DISTINCT key), '{}') FROM wakeups
		WHERE holder = $1 AND manager = 'workflow'`, name).Scan(&held)
	if err == nil && len(held) == 0 {
		err = errors.New("the replica had settled everything when it was killed")
	}
	return held, at, err
}

// holding waits until a replica, another than the one given, has so many leases, and names it.
func holding(ctx context.Context, db *pgxpool.Pool, not string, nodes int) (name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := db.QueryRow(ctx, `SELECT holder FROM wakeups WHERE leased_until > now() AND holder <> $1 AND manager = 'workflow'
			GROUP BY 1 HAVING count(DISTINCT key) >= $2`, not, nodes).Scan(&name)
		if err == nil || !errors.Is(err, pgx.ErrNoRows) {
			return name, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", fmt.Errorf("no replica works on %d nodes at once: %w", nodes, ctx.Err())
		}
	}
}

// wentOn waits until the workflow of each node has made a transition since, and gives how long the last took.
func wentOn(ctx context.Context, db *pgxpool.Pool, nodes []string, since time.Time) (last time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		var went int
		var newest *time.Time
		err := db.QueryRow(ctx, `SELECT count(*), max(at) FROM (
			SELECT min(recorded_at) AS at FROM events WHERE recorded_at > $2 AND (type LIKE 'workflow.%' OR type LIKE 'node.provision.%')
				AND coalesce(convert_from(data, 'UTF8')::jsonb->>'nodeId', substr(stream, 6)) = ANY($1)
			GROUP BY coalesce(convert_from(data, 'UTF8')::jsonb->>'nodeId', substr(stream, 6))) first`, nodes, since).Scan(&went, &newest)
		if err != nil {
			return 0, err
		}
		if went == len(nodes) {
			return newest.Sub(since), nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("%d of %d nodes went on: %w", went, len(nodes), ctx.Err())
		}
	}
}
