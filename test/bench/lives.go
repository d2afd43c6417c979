package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/node"
)

// The figures that lives must reach: lives a minute for each insert a second of pgbench, and CPU time.
const (
	livesPromised = 1000.0 / 14000
	lifePromised  = 100 * time.Millisecond
)

// lives takes every machine of a simulated site from nothing to ready, deploys it, and takes it back to ready.
func lives(ctx context.Context, b *bench) (_ result, err error) {
	yardstick, err := b.pgbench(ctx, 64)
	if err != nil {
		return result{}, err
	}
	p, err := b.startPlane(ctx)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	s, err := b.openSite(ctx, p, b.lives)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()

	before, err := b.meters(ctx, p, s)
	if err != nil {
		return result{}, err
	}
	run := newRun(s)
	if err := run.all(ctx); err != nil {
		return result{}, fmt.Errorf("%w\n%s", err, p.log)
	}
	after, err := b.meters(ctx, p, s)
	if err != nil {
		return result{}, err
	}
	rate := float64(b.lives) / run.took.Minutes()
	cost := after.minus(before, b.lives)
	if b.explain {
		if err := b.explainLives(ctx, p, run, cost); err != nil {
			return result{}, err
		}
	}
	own := cost.metald + cost.postgres
	return result{
		text: fmt.Sprintf("%.3f × (%.0f lives/min against %.0f/s), %.0f + %.0f CPU-ms per life; agent of the site %.0f, simulator %.0f; "+
			"%.0f events, %.0f transactions; load %s", rate/yardstick, rate, yardstick, milliseconds(cost.metald), milliseconds(cost.postgres),
			milliseconds(cost.agent), milliseconds(cost.sim), cost.events, cost.transactions, loadAverage()),
		kept: rate/yardstick >= livesPromised && own <= lifePromised,
	}, nil
}

// meters is what was spent, so far or per life.
type meters struct {
	metald, postgres, agent, sim time.Duration
	events, transactions         float64
}

func (b *bench) meters(ctx context.Context, p *plane, s *site) (m meters, err error) {
	server, err := b.serverPID()
	if err != nil {
		return m, err
	}
	for _, read := range []struct {
		into *time.Duration
		pid  int
		of   func(int) (time.Duration, error)
	}{
		{&m.metald, p.cmd.Process.Pid, spent}, {&m.postgres, server, spentWithChildren},
		{&m.agent, s.agent.cmd.Process.Pid, spent}, {&m.sim, s.sim.cmd.Process.Pid, spent},
	} {
		if *read.into, err = read.of(read.pid); err != nil {
			return m, err
		}
	}
	m.events, m.transactions, err = counted(ctx, p.database)
	return m, err
}

// counted is how many events and transactions there were. Each backend tells of its transactions about once a second.
func counted(ctx context.Context, db *pgxpool.Pool) (events, transactions float64, err error) {
	err = db.QueryRow(ctx, `SELECT (SELECT max(position) FROM events), (SELECT xact_commit + xact_rollback FROM pg_stat_database
		WHERE datname = current_database())`).Scan(&events, &transactions)
	return events, transactions, err
}

func (m meters) minus(o meters, lives int) meters {
	per := func(d time.Duration) time.Duration { return d / time.Duration(lives) }
	return meters{
		per(m.metald - o.metald), per(m.postgres - o.postgres), per(m.agent - o.agent), per(m.sim - o.sim),
		(m.events - o.events) / float64(lives), (m.transactions - o.transactions) / float64(lives),
	}
}

// run is the lives of the machines of a site.
type run struct {
	site *site
	took time.Duration

	mu      sync.Mutex
	entered map[string]entry                        // of each node
	stays   map[node.ProvisionState][]time.Duration // in each state
}

type entry struct {
	state    node.ProvisionState
	at       time.Time
	deployed bool
}

func newRun(s *site) *run {
	return &run{site: s, entered: map[string]entry{}, stays: map[node.ProvisionState][]time.Duration{}}
}

// asking is how many verbs are under way at once.
const asking = 16

// all enrolls every machine, and asks for the next thing as soon as one is where it was sent.
func (r *run) all(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	after, err := r.site.client.Position(ctx)
	if err != nil {
		return err
	}
	begun := time.Now()
	orders := make(chan func(context.Context) error, 4*len(r.site.machines))
	for _, m := range r.site.machines {
		orders <- func(ctx context.Context) error { _, err := r.site.enroll(ctx, m); return err }
	}
	failed := make(chan error, asking+1)
	var asked sync.WaitGroup
	for range asking {
		asked.Go(func() {
			for order := range orders {
				if err := order(ctx); err != nil {
					failed <- err
					cancel()
					return
				}
			}
		})
	}
	failed <- r.follow(ctx, after, orders)
	close(orders)
	r.took = time.Since(begun)
	cancel()
	asked.Wait()
	close(failed)
	for e := range failed {
		err = errors.Join(err, e)
	}
	return err
}

// follow sees the machines through their lives.
func (r *run) follow(ctx context.Context, after uint64, orders chan<- func(context.Context) error) error {
	left := len(r.site.machines)
	for e, err := range r.site.client.Follow(ctx, client.Feed{After: &after, Types: []string{"node.enrolled", "node.provision.*"}}) {
		if err != nil {
			return err
		}
		_, n, _ := strings.Cut(e.Subject, "/")
		next, over, err := r.moved(e, n)
		if err != nil {
			return err
		}
		if next != nil {
			orders <- next
		}
		if over {
			left--
		}
		if left == 0 {
			return nil
		}
	}
	return fmt.Errorf("%d machines did not come to the end of their lives: %w: %s", left, ctx.Err(), r.where())
}

// moved notes a move, and gives what to ask for next.
func (r *run) moved(e contract.Event, n string) (next func(context.Context) error, over bool, err error) {
	state := node.ProvisionState(strings.TrimPrefix(e.Type, "node.provision."))
	if e.Type == "node.enrolled" {
		state = node.Enrolling
	} else if !slices.ContainsFunc(node.States, func(i node.StateInfo) bool { return i.State == state }) { // such as node.provision.workflow
		return nil, false, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	was, known := r.entered[n]
	if known {
		r.stays[was.state] = append(r.stays[was.state], e.At.Sub(was.at))
	}
	now := entry{state: state, at: e.At, deployed: was.deployed || state == node.Deployed}
	r.entered[n] = now
	switch {
	case state == node.Failed:
		return nil, false, fmt.Errorf("%s failed from %s: %s", n, was.state, e.Data)
	case state == node.Ready && now.deployed:
		return nil, true, nil
	case state == node.Ready:
		return func(ctx context.Context) error {
			_, err := r.site.client.Deploy(ctx, n, contract.Deploy{Profile: "image-host", Version: 1})
			return err
		}, false, nil
	case state == node.Deployed:
		return func(ctx context.Context) error {
			_, err := r.site.client.Undeploy(ctx, n, contract.Wipe{})
			return err
		}, false, nil
	}
	return nil, false, nil
}

// where tells how many machines are in which state.
func (r *run) where() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := map[node.ProvisionState]int{}
	for _, e := range r.entered {
		count[e.state]++
	}
	return fmt.Sprint(count)
}

// explainLives prints how long machines stayed in each state, which events there were, and what the database did.
func (b *bench) explainLives(ctx context.Context, p *plane, r *run, cost meters) error {
	out := tabwriter.NewWriter(os.Stderr, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "\n%d lives in %s; CPU-ms per life: metald %.1f, PostgreSQL %.1f, agent %.1f, simulator %.1f\n", b.lives,
		r.took.Round(time.Millisecond), milliseconds(cost.metald), milliseconds(cost.postgres), milliseconds(cost.agent), milliseconds(cost.sim))
	for _, i := range node.States {
		if state := i.State; len(r.stays[state]) > 0 {
			half, most := percentiles(r.stays[state])
			fmt.Fprintf(out, "%s\tp50 %.0f ms\tp99 %.0f ms\n", state, milliseconds(half), milliseconds(most))
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if err := printRows(ctx, p.database, float64(b.lives), "events per life", `SELECT type, count(*), sum(length(data) + length(meta)) / count(*)
		FROM events GROUP BY 1 ORDER BY 2 DESC`); err != nil {
		return err
	}
	if err := explainSteps(ctx, p.database, float64(b.lives)); err != nil {
		return err
	}
	return explainStatements(ctx, p.database, float64(b.lives))
}

// explainStatements prints what the server spent its time on.
func explainStatements(ctx context.Context, db *pgxpool.Pool, per float64) error {
	return printRows(ctx, db, per, "statements, with milliseconds of each kind in all; how many were planned, in how many milliseconds", `
		SELECT plans || ' ' || round(total_plan_time) || ' ' || regexp_replace(left(query, 110), '\s+', ' ', 'g'), calls,
			round(total_exec_time)::bigint
		FROM pg_stat_statements WHERE toplevel AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
		ORDER BY total_exec_time DESC LIMIT 45`)
}

// printRows prints rows of a name, a count, which is divided, and a number.
func printRows(ctx context.Context, db *pgxpool.Pool, per float64, title, query string) error {
	rows, err := db.Query(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	out := tabwriter.NewWriter(os.Stderr, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "\n%s\n", title)
	for rows.Next() {
		var name string
		var count, number int64
		if err := rows.Scan(&name, &count, &number); err != nil {
			return err
		}
		fmt.Fprintf(out, "%.2f\t%d\t%s\n", float64(count)/per, number, name)
	}
	return errors.Join(rows.Err(), out.Flush())
}

// explainSteps prints how long the steps of workflows took, from started to settled.
func explainSteps(ctx context.Context, db *pgxpool.Pool, per float64) error {
	return printRows(ctx, db, per, "steps per life, with the mean of milliseconds", `
		WITH told AS (SELECT stream, type, recorded_at AS at, convert_from(data, 'UTF8')::jsonb AS data FROM events
			WHERE stream LIKE 'workflow-%'),
		profiles AS (SELECT stream, data->'profile'->>'id' AS profile FROM told WHERE type = 'workflow.created'),
		steps AS (SELECT stream, data->>'stepId' AS step, min(at) FILTER (WHERE type = 'workflow.step.started') AS began,
			max(at) FILTER (WHERE type = 'workflow.step.succeeded') AS ended FROM told GROUP BY 1, 2)
		SELECT coalesce(profile, '') || ' ' || step, count(*), round(avg(extract(epoch FROM ended - began) * 1000))::bigint
		FROM steps JOIN profiles USING (stream) WHERE ended IS NOT NULL AND step IS NOT NULL
		GROUP BY 1 ORDER BY 3 DESC`)
}
