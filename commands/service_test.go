package commands_test

import (
	"context"
	"encoding/hex"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/eventstore/memory"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/site"
	"github.com/better-compute/metal/domain/tenant"
)

// world is a write side over a memory log.
type world struct {
	*commands.Service
	log     event.Store
	secrets *vault
	clock   *clock
	pool    id.Pool

	equipped func(*commands.Service) // gives a service its steps and profiles; nil: it has none
}

func newWorld(t *testing.T) *world {
	t.Helper()
	registry, err := commands.Registry()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{log: memory.New(registry), secrets: &vault{values: map[node.SecretRef]string{}}, clock: &clock{now: at("2026-11-29T12:00:00Z")}}
	w.Service = w.over(w.log)
	w.pool = w.newPool(t, tenant.Root, site.Policy{}, pool.Policy{})
	return w
}

// over is another replica's write side on a log, with what the present one was equipped with.
func (w *world) over(log event.Store) *commands.Service {
	s := commands.New(log, byTenant{}, w.secrets, w.clock.read)
	if w.equipped != nil {
		w.equipped(s)
	}
	return s
}

func (w *world) newPool(t *testing.T, owner id.Tenant, at site.Policy, policy pool.Policy) id.Pool {
	t.Helper()
	ctx := context.Background()
	if _, err := w.Bootstrap(ctx); err != nil {
		t.Fatal(err)
	}
	s, err := w.CreateSite(ctx, system(), commands.NewSite{Tenant: owner, Name: "fra", Policy: at})
	if err != nil {
		t.Fatal(err)
	}
	p, err := w.CreatePool(ctx, system(), commands.NewPool{Tenant: owner, Site: s.State.ID, Name: "gpu", Policy: policy})
	if err != nil {
		t.Fatal(err)
	}
	return p.State.ID
}

func (w *world) newTenant(t *testing.T) id.Tenant {
	t.Helper()
	done, err := w.CreateTenant(context.Background(), system(), commands.NewTenant{Name: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	return done.State.ID
}

func machine(p id.Pool, address string, macs ...string) commands.Enrollment {
	return commands.Enrollment{
		Pool: p, MACs: macs,
		BMC: commands.BMCAccess{Address: address, Username: "root", Password: "1234567890"},
	}
}

// enrolled enrolls a machine that must be accepted.
func (w *world) enrolled(t *testing.T, in commands.Enrollment) commands.NodeOutcome {
	t.Helper()
	done, err := w.Enroll(context.Background(), system(), in)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// ready drives a node through the workflows that lead to ready.
func (w *world) ready(t *testing.T, n id.Node) {
	t.Helper()
	ctx := context.Background()
	disk := node.Disk{WWN: "0x1"}
	w.workflow(t, n)
	w.workflow(t, n, func(id.Workflow) error {
		_, err := w.RecordHardware(ctx, system(), n, node.InBand, node.Hardware{Disks: []node.Disk{disk}})
		return err
	})
	w.workflow(t, n, func(wf id.Workflow) error {
		_, err := w.AttestWipe(ctx, system(), n, node.Wipe{Workflow: wf, Signed: true, Method: node.WipeQuick, Disks: []node.WipedDisk{
			{Disk: disk, Method: node.WipeQuick, ReadBack: true},
		}})
		return err
	})
}

func (w *world) workflow(t *testing.T, n id.Node, steps ...func(id.Workflow) error) {
	t.Helper()
	ctx := context.Background()
	started, err := w.StartWorkflow(ctx, system(), n, node.Profile{ID: "metal", Version: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range steps {
		if err := step(started.State.Workflow.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Complete(ctx, system(), n, started.State.Workflow.ID, ""); err != nil {
		t.Fatal(err)
	}
}

func system() commands.Call {
	return commands.Call{Actor: commands.Actor{System: true}, Command: fresh()}
}

// of is a call by a principal that may do everything in one tenant.
func of(t id.Tenant) commands.Call {
	return commands.Call{Command: fresh(), Actor: commands.Actor{
		Principal: id.Of[id.Principal](fresh()),
		Bindings:  []principal.Binding{{Scope: principal.Scope{Kind: principal.ScopeTenant, ID: t.String()}}},
	}}
}

func fresh() uuid.UUID { return uuid.Must(uuid.NewV7()) }

func at(text string) time.Time {
	v, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return v
}

// byTenant lets a principal do everything in the tenants it is bound to.
type byTenant struct{}

func (byTenant) Allow(a commands.Actor, _ principal.Action, on commands.Resource) error {
	for _, b := range a.Bindings {
		if b.Scope.ID == on.Tenant.String() {
			return nil
		}
	}
	if a.System {
		return nil
	}
	return fault.New(fault.NotFound, "there is no such %s", on.Kind)
}

// vault keeps secrets in memory.
type vault struct {
	mu     sync.Mutex
	values map[node.SecretRef]string
	broken bool
}

func (v *vault) Put(_ context.Context, secretID uuid.UUID, value []byte) (node.SecretRef, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.broken {
		return "", fault.New(fault.Unavailable, "the secret store is away")
	}
	ref := node.SecretRef("secret:" + secretID.String())
	v.values[ref] = string(value)
	return ref, nil
}

func (v *vault) Delete(_ context.Context, ref node.SecretRef) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.broken {
		return fault.New(fault.Unavailable, "the secret store is away")
	}
	delete(v.values, ref)
	return nil
}

func (v *vault) Mint(command uuid.UUID) string { return "metal_" + hex.EncodeToString(command[:]) }

// clock is set by the test.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
