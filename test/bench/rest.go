package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	store "github.com/better-compute/metal/adapters/eventstore/postgres"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/tenant"
)

const (
	fleet = 10_000 // nodes at rest
	// What a fleet at rest may cost. What replicas do once a second each is no statement per node.
	restPromised       = 100 * time.Millisecond // of CPU time a minute
	statementsPromised = fleet / 20             // transactions a minute
	memoryPromised     = 200                    // MiB
)

// rest measures a control plane that has many nodes and nothing to do.
func rest(ctx context.Context, b *bench) (_ result, err error) {
	p, err := b.startPlane(ctx)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := p.fillReady(ctx, fleet); err != nil {
		return result{}, err
	}
	if err := settled(ctx, p.database); err != nil {
		return result{}, err
	}
	server, err := b.serverPID()
	if err != nil {
		return result{}, err
	}
	before, err := restMeters(ctx, p, server)
	if err != nil {
		return result{}, err
	}
	if b.explain {
		if _, err := p.database.Exec(ctx, "SELECT pg_stat_statements_reset()"); err != nil {
			return result{}, err
		}
	}
	begun := time.Now()
	select {
	case <-time.After(max(b.period*time.Duration(b.rounds), 15*time.Second)):
	case <-ctx.Done():
		return result{}, ctx.Err()
	}
	minutes := time.Since(begun).Minutes()
	after, err := restMeters(ctx, p, server)
	if err != nil {
		return result{}, err
	}
	memory, err := resident(p.cmd.Process.Pid)
	if err != nil {
		return result{}, err
	}
	if b.explain {
		if err := explainStatements(ctx, p.database, minutes); err != nil {
			return result{}, err
		}
	}
	own := time.Duration(float64(after.metald-before.metald) / minutes)
	theirs := time.Duration(float64(after.postgres-before.postgres) / minutes)
	transactions := (after.transactions - before.transactions) / minutes
	return result{
		text: fmt.Sprintf("%.0f + %.0f CPU-ms/min of metald and PostgreSQL, %.0f transactions/min, metald %.0f MiB; load %s",
			milliseconds(own), milliseconds(theirs), transactions, memory, loadAverage()),
		kept: own+theirs <= restPromised && transactions <= statementsPromised && memory <= memoryPromised,
	}, nil
}

func restMeters(ctx context.Context, p *plane, server int) (m meters, err error) {
	if m.metald, err = spent(p.cmd.Process.Pid); err != nil {
		return m, err
	}
	if m.postgres, err = spentWithChildren(server); err != nil {
		return m, err
	}
	m.events, m.transactions, err = counted(ctx, p.database)
	return m, err
}

// fillReady makes nodes that have come to ready, by their events alone.
func (p *plane) fillReady(ctx context.Context, nodes int) error {
	c, err := p.client()
	if err != nil {
		return err
	}
	defer c.Close()
	place, err := c.CreateSite(ctx, contract.NewSite{Tenant: tenant.Root.String(), Name: "bench"})
	if err != nil {
		return err
	}
	in, err := c.CreatePool(ctx, contract.NewPool{Tenant: tenant.Root.String(), Site: place.ID, Name: "bench"})
	if err != nil {
		return err
	}
	site, err := id.Parse[id.Site](place.ID)
	if err != nil {
		return err
	}
	pool, err := id.Parse[id.Pool](in.ID)
	if err != nil {
		return err
	}
	registry, err := commands.Registry()
	if err != nil {
		return err
	}
	log, err := store.New(ctx, p.database, registry, store.Options{})
	if err != nil {
		return err
	}
	defer log.Close()
	return appendAll(ctx, log, nodes, func(n int) node.Enrolled {
		return node.Enrolled{
			Tenant: tenant.Root, Site: site, Pool: pool, Name: fmt.Sprintf("machine-%d", n),
			BMC:  node.BMC{Driver: "redfish", Address: fmt.Sprintf("https://10.%d.%d.%d", n>>16&255, n>>8&255, n&255), Credentials: "secret:none"},
			MACs: []string{fmt.Sprintf("02:00:00:%02x:%02x:%02x", n>>16&255, n>>8&255, n&255)},
		}
	})
}

// appendAll appends the way of each node to ready.
func appendAll(ctx context.Context, log event.Store, nodes int, enrolled func(n int) node.Enrolled) error {
	const callers = 64
	var all sync.WaitGroup
	errs := make(chan error, callers)
	for caller := range callers {
		all.Go(func() {
			for n := caller; n < nodes; n += callers {
				first := enrolled(n)
				first.Node = id.Of[id.Node](uuid.Must(uuid.NewV7()))
				about := event.Meta{
					Command: uuid.New(), At: time.Now(), Tenant: first.Tenant.String(), Subject: "node/" + first.Node.String(), Principal: "system",
				}
				_, err := log.Append(ctx, node.StreamOf(first.Node), 0, about, first,
					node.Moved{To: node.Enrolling, Verb: node.VerbEnroll},
					node.Moved{From: node.Enrolling, To: node.Inspecting, Verb: node.VerbComplete},
					node.Moved{From: node.Inspecting, To: node.Commissioning, Verb: node.VerbComplete},
					node.Moved{From: node.Commissioning, To: node.Ready, Verb: node.VerbComplete})
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(errs)
	var err error
	for e := range errs {
		err = errors.Join(err, e)
	}
	return err
}

// settled waits until everything that follows the log has nothing left to do, and tidies the database, which would do it by
// itself in the midst of the measurement.
func settled(ctx context.Context, db *pgxpool.Pool) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for quiet := 0; quiet < 10; {
		var busy bool
		err := db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM wakeups) OR EXISTS (
			SELECT FROM checkpoints WHERE projection <> 'wakeups' AND position < (
				SELECT max(position) FROM events WHERE type LIKE 'node.%') AND projection IN ('metalview', 'history', 'doctor'))`).Scan(&busy)
		if err != nil {
			return err
		}
		if quiet++; busy {
			quiet = 0
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the control plane does not come to rest: %w", ctx.Err())
		}
	}
	for _, statement := range []string{"VACUUM ANALYZE", "CHECKPOINT"} {
		if _, err := db.Exec(ctx, statement); err != nil {
			return err
		}
	}
	select {
	case <-time.After(lateStatistics):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lateStatistics is how long a server process may keep what it did to itself before it tells the statistics.
const lateStatistics = 12 * time.Second
