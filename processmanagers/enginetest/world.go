// Package enginetest is a control plane in memory for tests of workflows: the real process managers, verbs and events over
// the memory log, a clock that jumps to whatever is due next, agents that answer as a script says, and a store that can be
// made to die at any append.
package enginetest

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/eventstore/memory"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/processmanagers"
	"github.com/better-compute/metal/processmanagers/provision"
	"github.com/better-compute/metal/processmanagers/steps"
	engine "github.com/better-compute/metal/processmanagers/workflow"
)

// Began is when a world's clock starts.
var Began = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// Options say what a world is made of beside what is shipped.
type Options struct {
	Steps    []steps.Step
	Profiles []profile.Document
	Kinds    []agentcommand.Kind
	// Deaf has events wake nothing, but for what operators ask of nodes: what is left are the process managers' own timers.
	Deaf bool
	// Answer is what agents do. Nil: they succeed at everything, with an empty result.
	Answer func(*World, agentcommand.State) Answer
	Config steps.Config
	Policy pool.Policy // zero: the machines run agents
	// Catalog is the shipped steps and Steps, where a test that makes many worlds has joined them. Nil: they are joined.
	Catalog *steps.Catalog
}

// World is one control plane with one machine. It runs on the test's goroutine.
type World struct {
	t       testing.TB
	Options Options
	Log     *memory.Store // as agents and operators see it
	Store   *Mortal       // as the control plane's present process sees it
	Outside *commands.Service
	Service *commands.Service
	Agents  *Agents
	Secrets *Secrets
	Node    id.Node
	Errors  []error // of passes, beside those of a dead store

	now      time.Time
	catalog  *steps.Catalog
	managers []processmanagers.Manager
	due      map[dueKey]time.Time
	at       event.Position
	orders   []id.AgentCommand
	Passes   int
}

type dueKey struct {
	manager int
	key     string
}

// New makes a world with a machine that waits in the given state. A deploy's profile is pinned to the given name.
func New(t testing.TB, o Options, state node.ProvisionState, pinned string) *World {
	t.Helper()
	w := &World{t: t, Options: o, now: Began, due: map[dueKey]time.Time{}, Secrets: &Secrets{}}
	kinds, err := agentcommand.Join(agentcommand.Kinds, o.Kinds)
	w.must(err)
	w.Options.Kinds = kinds
	registry, err := commands.Registry()
	w.must(err)
	log := memory.NewLog(w.Now)
	w.Log = log.Open(registry)
	if w.catalog = o.Catalog; w.catalog == nil {
		w.catalog, err = steps.NewCatalog(kinds, steps.Shipped(), o.Steps)
		w.must(err)
	}
	w.Outside = w.parts().Service(w.Log)
	w.Agents = NewAgents(w.Log, w.Now)
	w.Restart()
	w.enroll(state, pinned)
	return w
}

func (w *World) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// Now is the world's time.
func (w *World) Now() time.Time { return w.now }

func (w *World) parts() Parts {
	return Parts{
		Kinds: w.Options.Kinds, Catalog: w.catalog, Profiles: w.Options.Profiles, Config: w.Options.Config,
		Agents: w.Agents, Secrets: w.Secrets, Now: w.Now,
	}
}

// Restart puts a new process in place of the control plane's present one: nothing in memory is left, and what is due comes
// from the log.
func (w *World) Restart() {
	w.Store = &Mortal{Store: w.Log}
	w.Service, w.managers = w.Process(w.Store)
	clear(w.due)
	for _, r := range w.Events() {
		for i, m := range w.managers {
			if key, ok := m.Wakes(r); ok {
				w.due[dueKey{i, key}] = w.now
			} else if key, ok := m.Rests(r); ok {
				delete(w.due, dueKey{i, key})
			}
		}
	}
}

// Process makes the service and the process managers of one more process on a store.
func (w *World) Process(store event.Store) (*commands.Service, []processmanagers.Manager) {
	service := w.parts().Service(store)
	return service, w.parts().Managers(service, w.wakeEngine)
}

// Older makes the engine of a process that has only the shipped steps.
func (w *World) Older(t testing.TB) processmanagers.Manager {
	t.Helper()
	parts := w.parts()
	catalog, err := steps.NewCatalog(w.Options.Kinds, steps.Shipped())
	w.must(err)
	parts.Catalog, parts.Profiles = catalog, nil
	return parts.Managers(parts.Service(w.Log), w.wakeEngine)[1]
}

// Parts is what the processes of one installation share.
type Parts struct {
	Kinds    []agentcommand.Kind
	Catalog  *steps.Catalog
	Profiles []profile.Document
	Config   steps.Config
	Agents   *Agents
	Secrets  *Secrets
	Now      func() time.Time
}

// Service makes the write side of a process, which lets anyone do anything and believes every signature.
func (p Parts) Service(log event.Store) *commands.Service {
	s := commands.New(log, anyone{}, vault{}, p.Now, p.Kinds...).VerifyWith(believer{})
	if err := s.UseProfiles(p.Catalog, p.Profiles, nil); err != nil {
		panic(err)
	}
	return s
}

// Managers makes the process managers of a process.
func (p Parts) Managers(service *commands.Service, wakeEngine func(context.Context, string) error) []processmanagers.Manager {
	ports := steps.Ports{
		Agents: p.Agents, Secrets: p.Secrets, Tokens: p.Secrets, Images: Images{}, Config: p.Config,
		Nodes: engine.Nodes{Service: service},
	}
	logger := slog.New(slog.DiscardHandler)
	return []processmanagers.Manager{
		provision.New(service, p.Catalog, ports, p.Now, logger).WakeEngine(wakeEngine).Manager(),
		engine.New(service, p.Catalog, ports, p.Now, logger).Manager(),
	}
}

// Fixed ids of the world's estate.
var (
	Tenant = id.Of[id.Tenant](uuid.NewSHA1(uuid.Nil, []byte("tenant")))
	Site   = id.Of[id.Site](uuid.NewSHA1(uuid.Nil, []byte("site")))
	Pool   = id.Of[id.Pool](uuid.NewSHA1(uuid.Nil, []byte("pool")))
)

// Number is that of a world's one machine.
const Number = 1

func (w *World) enroll(state node.ProvisionState, pinned string) {
	w.Node = id.Of[id.Node](uuid.NewSHA1(uuid.Nil, []byte("node")))
	w.must(CreatePool(w.Log, w.Options.Policy))
	w.must(Enroll(w.Log, w.Node, Number, state, pinned))
}

// CreatePool makes the pool.
func CreatePool(log event.Store, policy pool.Policy) error {
	if policy.Agent == "" {
		policy.Agent = pool.AgentRequired
	}
	meta := event.Meta{Tenant: Tenant.String(), At: Began}
	_, err := log.Append(context.Background(), pool.StreamOf(Pool), 0, meta, pool.Created{
		Pool: Pool, Tenant: Tenant, Site: Site, Name: "pool", Policy: policy,
	})
	return err
}

// Enroll makes the number-th machine, in the given state. A deploy's profile is pinned to the given name.
func Enroll(log event.Store, n id.Node, number int, state node.ProvisionState, pinned string) error {
	m := node.Moved{To: state, Verb: node.VerbEnroll}
	if state == node.Deploying {
		m.From, m.Verb, m.Profile = node.Ready, node.VerbDeploy, &node.Profile{ID: pinned, Version: 1}
	}
	meta := event.Meta{Tenant: Tenant.String(), At: Began}
	_, err := log.Append(context.Background(), node.StreamOf(n), 0, meta, node.Enrolled{
		Node: n, Tenant: Tenant, Site: Site, Pool: Pool, Name: fmt.Sprintf("machine-%d", number),
		MACs: []string{mac(number)},
		BMC: node.BMC{
			Driver: "redfish", Address: fmt.Sprintf("https://10.0.%d.%d", number>>8, number&0xff), Credentials: "secret:bmc",
			TLS: node.TLSPolicy{Mode: node.TLSInsecure},
		},
	}, m)
	return err
}

// Events is the whole log.
func (w *World) Events() []event.Recorded {
	events, _, err := w.Log.ReadAll(context.Background(), 0, nil, 1_000_000)
	w.must(err)
	return events
}

// Len is how many events the log has.
func (w *World) Len() int {
	head, err := w.Log.Head(context.Background())
	w.must(err)
	return int(head) // dense in this log
}

// State is the node as its stream has it.
func (w *World) State() node.State {
	state, _, err := w.Outside.Node(context.Background(), w.Node)
	w.must(err)
	return state
}

// Workflow is the node's active workflow, or the newest that was.
func (w *World) Workflow() workflow.State {
	n := w.State()
	of := n.LastWorkflow
	if n.Workflow != nil {
		of = n.Workflow.ID
	}
	state, _, err := w.Outside.Workflow(context.Background(), of)
	if fault.CodeOf(err) == fault.NotFound {
		return workflow.State{}
	}
	w.must(err)
	return state
}

// Operator is a call from outside.
func Operator() commands.Call {
	return commands.Call{Actor: commands.Actor{System: true}, Command: uuid.Must(uuid.NewV7())}
}

// maxPasses bounds a run: a world that never rests is a fault.
const maxPasses = 5000

// Run works until nothing is due any more, or until stop says so; the clock jumps from one due time to the next. A store that
// died is followed by a new process.
func (w *World) Run(stop func() bool) {
	w.t.Helper()
	for passes := 0; ; passes++ {
		if passes > maxPasses {
			w.t.Fatalf("no rest after %d passes; the newest events are %v", maxPasses, w.newest(20))
		}
		w.follow()
		if stop != nil && stop() {
			return
		}
		if w.answer() {
			continue
		}
		k, at, ok := w.earliest()
		if !ok {
			return
		}
		if at.After(w.now) {
			w.now = at
		}
		w.pass(k)
	}
}

func (w *World) pass(k dueKey) {
	delete(w.due, k)
	w.Passes++
	again, err := w.managers[k.manager].Reconcile(context.Background(), k.key)
	switch {
	case w.Store.Dead():
		w.now = w.now.Add(3 * time.Second) // until another process has the lease
		w.Restart()
	case err != nil:
		w.Errors = append(w.Errors, err)
		w.wake(k, w.now.Add(time.Second))
	case again > 0:
		w.wake(k, w.now.Add(again))
	}
}

func (w *World) wake(k dueKey, at time.Time) {
	if now, due := w.due[k]; !due || at.Before(now) {
		w.due[k] = at
	}
}

func (w *World) wakeEngine(_ context.Context, key string) error {
	w.wake(dueKey{1, key}, w.now)
	return nil
}

// earliest is the key that is due first, the first manager going first.
func (w *World) earliest() (first dueKey, at time.Time, ok bool) {
	for k, due := range w.due {
		if !ok || due.Before(at) || due.Equal(at) && k.manager < first.manager {
			first, at, ok = k, due, true
		}
	}
	return first, at, ok
}

// follow wakes what new events wake, and notes what agents are asked for.
func (w *World) follow() {
	events, head, err := w.Log.ReadAll(context.Background(), w.at, nil, 1_000_000)
	w.must(err)
	w.at = head
	for _, r := range events {
		for i, m := range w.managers {
			if key, ok := m.Wakes(r); ok && (!w.Options.Deaf || r.Stream.Category() == node.Category) {
				w.wake(dueKey{i, key}, w.now)
			}
		}
		if asked, ok := r.Event.(agentcommand.Requested); ok {
			w.orders = append(w.orders, asked.AgentCommand)
		}
	}
}

func (w *World) newest(n int) []string {
	events := w.Events()
	names := []string{}
	for _, r := range events[max(0, len(events)-n):] {
		names = append(names, r.Type)
	}
	return names
}
