package chaos

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/bus"
	eventlog "github.com/better-compute/metal/adapters/eventstore/postgres"
	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/profile/builtin"
	"github.com/better-compute/metal/processmanagers"
	"github.com/better-compute/metal/processmanagers/enginetest"
	"github.com/better-compute/metal/processmanagers/steps"
	"github.com/better-compute/metal/test/lab"
	"github.com/better-compute/metal/test/pgtest"
)

func TestMain(m *testing.M) { lab.Main(m) }

const patience = 2 * time.Minute

// estate is machines and what several control planes on one PostgreSQL share.
type estate struct {
	t        *testing.T
	dsn      string
	registry *event.Registry
	parts    enginetest.Parts
	outside  *commands.Service
	log      *eventlog.Store
	machines map[id.Node]*enginetest.Machine
}

func newEstate(t *testing.T, machines int) *estate {
	t.Helper()
	registry, err := commands.Registry()
	must(t, err)
	e := &estate{t: t, dsn: pgtest.DSN(t), registry: registry, machines: map[id.Node]*enginetest.Machine{}}
	e.log = e.openLog()
	profiles, err := builtin.Profiles()
	must(t, err)
	catalog, err := steps.NewCatalog(agentcommand.Kinds, steps.Shipped())
	must(t, err)
	e.parts = enginetest.Parts{
		Kinds: agentcommand.Kinds, Catalog: catalog, Profiles: profiles, Config: enginetest.Config(),
		Agents: enginetest.NewAgents(e.log, time.Now), Secrets: &enginetest.Secrets{}, Now: time.Now,
	}
	e.outside = e.parts.Service(e.log)
	must(t, enginetest.CreatePool(e.log, pool.Policy{}))
	for i := range machines {
		n := id.Of[id.Node](uuid.NewSHA1(uuid.Nil, []byte{byte(i), byte(i >> 8)}))
		e.machines[n] = &enginetest.Machine{Number: i + 1, Power: node.PowerOff}
	}
	return e
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (e *estate) openLog() *eventlog.Store {
	e.t.Helper()
	pool, err := postgres.Open(e.t.Context(), e.dsn, postgres.Options{})
	must(e.t, err)
	e.t.Cleanup(pool.Close)
	log, err := eventlog.New(e.t.Context(), pool, e.registry, eventlog.Options{})
	must(e.t, err)
	e.t.Cleanup(log.Close)
	return log
}

// replica is one control plane: its own connections, caches, follower and workers.
type replica struct {
	dead   atomic.Bool
	passes atomic.Int64
	errs   chan error
	stop   func()
}

func (e *estate) replica() *replica {
	e.t.Helper()
	r := &replica{errs: make(chan error, 1000)}
	log := e.openLog()
	pool, err := postgres.Open(e.t.Context(), e.dsn, postgres.Options{})
	must(e.t, err)
	var table *postgres.Wakeups
	managers := e.parts.Managers(e.parts.Service(&dying{log, r}), func(ctx context.Context, key string) error {
		return table.Wake(ctx, "workflow", key)
	})
	table = postgres.NewWakeups(pool, log, managers...)
	workers, err := processmanagers.NewWorkers(&dyingTable{table, r}, processmanagers.Options{
		Logger: slog.New(slog.DiscardHandler), Grace: time.Second,
		Observe: func(_ string, _ time.Duration, err error) {
			r.passes.Add(1)
			if err != nil && !r.dead.Load() {
				r.errs <- err
			}
		},
	}, managers...)
	must(e.t, err)
	followers, err := bus.New(log, []bus.Follower{{
		Name: table.Name(), CatchUp: func(ctx context.Context) error {
			if r.dead.Load() {
				return errKilled
			}
			return table.CatchUp(ctx)
		}, Position: table.Position,
	}}, bus.Options{Logger: slog.New(slog.DiscardHandler)})
	must(e.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = workers.Run(ctx) })
	running.Go(func() { _ = followers.Run(ctx) })
	r.stop = sync.OnceFunc(func() { cancel(); running.Wait(); pool.Close() })
	e.t.Cleanup(r.stop)
	return r
}

var errKilled = errors.New("killed")

// kill ends a replica as SIGKILL does: nothing that it holds is given back.
func (r *replica) kill() {
	r.dead.Store(true)
	r.stop()
}

// dying is the log of a replica, which reaches nothing once the replica is dead.
type dying struct {
	event.Store
	replica *replica
}

func (d *dying) Append(ctx context.Context, s event.Stream, v event.Version, m event.Meta, events ...event.Event) (event.Position, error) {
	if d.replica.dead.Load() {
		return 0, errKilled
	}
	return d.Store.Append(ctx, s, v, m, events...)
}

// dyingTable is the table of wake-ups of a replica.
type dyingTable struct {
	*postgres.Wakeups
	replica *replica
}

func (d *dyingTable) Lease(ctx context.Context, r processmanagers.LeaseRequest) ([]processmanagers.Lease, time.Duration, error) {
	if d.replica.dead.Load() {
		return nil, 0, errKilled
	}
	return d.Wakeups.Lease(ctx, r)
}

func (d *dyingTable) Settle(ctx context.Context, holder string, settled []processmanagers.Settled) error {
	if d.replica.dead.Load() {
		return errKilled
	}
	return d.Wakeups.Settle(ctx, holder, settled)
}

// answer has the agents answer whatever the log holds, until ctx ends.
func (e *estate) answer(ctx context.Context) {
	var at event.Position
	kinds := []string{agentcommand.Requested{}.EventType()}
	for ctx.Err() == nil {
		events, head, err := e.log.ReadAll(ctx, at, kinds, 1000)
		if err != nil {
			return
		}
		for _, r := range events {
			asked := r.Event.(agentcommand.Requested)
			c := agentcommand.State{Requested: asked, Status: agentcommand.Pending}
			if err := enginetest.CarryOut(e.outside, e.parts.Agents, c, e.machines[asked.Node].Do(e.parts.Agents, c)); err != nil {
				e.t.Errorf("%s of %s: %v", asked.Kind, asked.Step, err)
			}
		}
		if head == at {
			_ = e.log.Changed(ctx, at)
		}
		at = head
	}
}

// rest waits until every machine is in a state.
func (e *estate) rest(in node.ProvisionState) {
	e.t.Helper()
	end := time.Now().Add(patience)
	for n := range e.machines {
		for {
			state, _, err := e.outside.Node(e.t.Context(), n)
			must(e.t, err)
			if state.Provision == in {
				break
			}
			if state.Provision == node.Failed || time.Now().After(end) {
				e.t.Fatalf("%s is %s (%+v), want %s", n, state.Provision, state.LastError, in)
			}
			<-time.After(5 * time.Millisecond)
		}
	}
}

// passes waits until a replica has looked at keys so many times.
func (e *estate) passes(r *replica, times int64) {
	e.t.Helper()
	for end := time.Now().Add(patience); r.passes.Load() < times; <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			e.t.Fatalf("a replica made %d passes", r.passes.Load())
		}
	}
}

// Two control planes share one PostgreSQL; one of them is killed while every machine is under way. The other finishes all
// lives: nothing is lost, and nothing destructive is asked for twice.
func TestAReplicaIsKilled(t *testing.T) {
	e := newEstate(t, 24)
	ctx, cancel := context.WithCancel(t.Context())
	var answering sync.WaitGroup
	answering.Go(func() { e.answer(ctx) })
	defer func() { cancel(); answering.Wait() }()
	first, began := e.replica(), time.Now()
	for n, m := range e.machines {
		must(t, enginetest.Enroll(e.log, n, m.Number, node.Enrolling, ""))
	}
	e.passes(first, 20) // before there is a second, which may be the quicker one
	second := e.replica()
	e.passes(second, 20)
	first.kill()
	e.rest(node.Ready)
	for n := range e.machines {
		_, err := e.outside.Deploy(t.Context(), enginetest.Operator(), n, node.Profile{ID: "image-host", Version: 1})
		must(t, err)
	}
	e.rest(node.Deployed)
	third := e.replica()
	for n := range e.machines {
		_, err := e.outside.Undeploy(t.Context(), enginetest.Operator(), n, node.WipeQuick)
		must(t, err)
	}
	e.rest(node.Ready)
	t.Logf("%d lives in %v; %d passes of the first, %d of the second, %d of the third", len(e.machines), time.Since(began),
		first.passes.Load(), second.passes.Load(), third.passes.Load())
	e.check()
	for _, r := range []*replica{first, second, third} {
		r.stop()
		close(r.errs)
		for err := range r.errs {
			if fault.CodeOf(err) != fault.Conflict && !errors.Is(err, context.Canceled) {
				t.Errorf("a pass failed: %v", err)
			}
		}
	}
}

// check looks for what was done twice.
func (e *estate) check() {
	e.t.Helper()
	for n, m := range e.machines {
		if m.Wipes != 2 || m.Writes != 1 || m.Installed {
			e.t.Errorf("%s was wiped %d times and written %d times", n, m.Wipes, m.Writes)
		}
	}
	asked := map[id.AgentCommand]int{}
	events, _, err := e.log.ReadAll(e.t.Context(), 0, []string{agentcommand.Requested{}.EventType()}, 1_000_000)
	must(e.t, err)
	for _, r := range events {
		c := r.Event.(agentcommand.Requested)
		if asked[c.AgentCommand]++; asked[c.AgentCommand] > 1 || c.Attempt > 1 {
			e.t.Errorf("%s of step %s: asked for %d times, attempt %d", c.Kind, c.Step, asked[c.AgentCommand], c.Attempt)
		}
	}
}
