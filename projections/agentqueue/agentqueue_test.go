package agentqueue_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/better-compute/metal/adapters/eventstore/memory"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/projections/agentqueue"
	"github.com/better-compute/metal/projections/projectiontest"
	"github.com/better-compute/metal/test/pgtest"
)

func TestMain(m *testing.M) { projectiontest.Main(m) }

var (
	noon    = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	machine = id.Of[id.Node](projectiontest.ID(1))
	site    = id.Of[id.Site](projectiontest.ID(1))
	who     = id.Of[id.Agent](projectiontest.ID(1))
)

// desk applies verbs to agent commands in a log.
type desk struct {
	store  *memory.Store
	states map[string]agentcommand.State
}

func newDesk(t testing.TB) *desk {
	t.Helper()
	r, err := event.NewRegistry(agentcommand.Events)
	if err != nil {
		t.Fatal(err)
	}
	return &desk{store: memory.New(r), states: map[string]agentcommand.State{}}
}

func (d *desk) do(t testing.TB, key string, c agentcommand.Command) {
	t.Helper()
	stream := agentcommand.StreamOf(agentcommand.IDOf(key))
	events, err := agentcommand.Decide(d.states[key], c)
	if err != nil || len(events) == 0 {
		return // what can't happen is not in a log
	}
	held, err := d.store.Read(t.Context(), stream, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range events {
		if _, err := d.store.Append(t.Context(), stream, event.Version(len(held)+i), event.Meta{At: noon}, e); err != nil {
			t.Fatal(err)
		}
	}
	d.states[key] = agentcommand.Decider.Fold(d.states[key], events...)
}

func ask(key string, role agentcommand.Role) agentcommand.Command {
	return agentcommand.Request{Facts: agentcommand.Requested{
		AgentCommand: agentcommand.IDOf(key), Key: key, Kind: agentcommand.NodeReboot, Role: role, Node: machine, Site: site,
		NotAfter: noon.Add(time.Hour), Payload: json.RawMessage(`{}`),
	}}
}

// The queue holds what is not over at every point of a random history, and is a function of the log.
func TestTheQueueIsWhatIsNotOver(t *testing.T) {
	pool, p := pgtest.New(t), agentqueue.New()
	rapid.Check(t, func(rt *rapid.T) {
		projectiontest.Reset(t, pool, p)
		d := newDesk(t)
		for range rapid.IntRange(1, 30).Draw(rt, "verbs") {
			key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "key")
			boot := rapid.SampledFrom([]string{"b1", "b2"}).Draw(rt, "boot")
			d.do(t, key, rapid.SampledFrom([]agentcommand.Command{
				ask(key, agentcommand.RoleNode), ask(key, agentcommand.RoleNode),
				agentcommand.HandOut{Agent: who, BootID: boot, Now: noon},
				agentcommand.Progress{Agent: who, BootID: boot, Status: agentcommand.Running},
				agentcommand.Settle{Agent: who, BootID: boot, Status: agentcommand.Failed},
				agentcommand.Expire{Now: noon, BootID: boot}, agentcommand.Cancel{},
			}).Draw(rt, "verb"))
		}
		projectiontest.Run(t, pool, d.store, p)
		rows, _, err := agentqueue.All(t.Context(), pool)
		if err != nil {
			t.Fatal(err)
		}
		got, want := map[string]string{}, map[string]string{}
		for _, r := range rows {
			got[r.Command] = string(r.Status) + r.BootID
		}
		for key, s := range d.states {
			if s.Exists() && !s.Status.Settled() {
				want[agentcommand.IDOf(key).String()] = string(s.Status) + s.BootID
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("the queue differs (-want +got):\n%s", diff)
		}
	})
}

func TestWhoMayClaimWhat(t *testing.T) {
	pool, p := pgtest.New(t), agentqueue.New()
	d := newDesk(t)
	for i, role := range []agentcommand.Role{agentcommand.RoleNode, agentcommand.RoleSite, agentcommand.RoleRamdisk, agentcommand.RoleSite} {
		d.do(t, fmt.Sprint(i), ask(fmt.Sprint(i), role))
	}
	d.do(t, "3", agentcommand.HandOut{Agent: who, BootID: "b1", Now: noon})
	projectiontest.CatchUp(t, pool, d.store, p)
	for _, test := range []struct {
		role  agentcommand.Role
		place string
		want  []string
	}{
		{agentcommand.RoleNode, machine.String(), []string{"0"}},
		{agentcommand.RoleRamdisk, machine.String(), []string{"2"}},
		{agentcommand.RoleSite, site.String(), []string{"1"}},
		{agentcommand.RoleSite, machine.String(), nil},
	} {
		rows, err := agentqueue.Next(t.Context(), pool, test.role, test.place, 10)
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for _, r := range rows {
			got = append(got, r.Command)
		}
		for _, key := range test.want {
			want = append(want, agentcommand.IDOf(key).String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s at %s may claim %v, want %v", test.role, test.place, got, want)
		}
	}
	if rows, err := agentqueue.Of(t.Context(), pool, machine.String()); err != nil || len(rows) != 4 {
		t.Errorf("the machine has %d, %v", len(rows), err)
	}
}

func TestAnEmptyQueue(t *testing.T) {
	pool := pgtest.New(t)
	if rows, at, err := agentqueue.All(t.Context(), pool); err != nil || len(rows) != 0 || at != 0 {
		t.Errorf("%v at %d, %v", rows, at, err)
	}
	d := newDesk(t)
	d.do(t, "a", ask("a", agentcommand.RoleNode))
	d.do(t, "a", agentcommand.Cancel{})
	projectiontest.CatchUp(t, pool, d.store, agentqueue.New())
	if rows, at, err := agentqueue.All(t.Context(), pool); err != nil || len(rows) != 0 || at != 2 {
		t.Errorf("%v at %d, %v", rows, at, err)
	}
}
