package agents_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/better-compute/metal/adapters/eventstore/memory"
	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/agents"
	"github.com/better-compute/metal/projections/projectiontest"
	"github.com/better-compute/metal/test/pgtest"
)

func TestMain(m *testing.M) { projectiontest.Main(m) }

var (
	noon   = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	tenant = id.Of[id.Tenant](projectiontest.ID(1))
	site   = id.Of[id.Site](projectiontest.ID(1))
)

// roll applies verbs to agents in a log.
type roll struct {
	store  *memory.Store
	states map[id.Agent]agent.State
	issued int
}

func newRoll(t testing.TB) *roll {
	t.Helper()
	r, err := event.NewRegistry(agent.Events)
	if err != nil {
		t.Fatal(err)
	}
	return &roll{store: memory.New(r), states: map[id.Agent]agent.State{}}
}

func (r *roll) do(t testing.TB, a id.Agent, c agent.Command) {
	t.Helper()
	events, err := agent.Decide(r.states[a], c)
	if err != nil || len(events) == 0 {
		return
	}
	held, err := r.store.Read(t.Context(), agent.StreamOf(a), 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range events {
		if _, err := r.store.Append(t.Context(), agent.StreamOf(a), event.Version(len(held)+i), event.Meta{At: noon}, e); err != nil {
			t.Fatal(err)
		}
	}
	r.states[a] = agent.Decider.Fold(r.states[a], events...)
}

func (r *roll) certificate() agent.Certificate {
	r.issued++
	return agent.Certificate{
		Fingerprint: fmt.Sprintf("%064x", r.issued), PublicKey: slices.Repeat([]byte{byte(r.issued)}, 32), Serial: fmt.Sprint(r.issued),
		NotBefore: noon.Add(-time.Hour), NotAfter: noon.Add(time.Hour),
	}
}

func (r *roll) join(n int, as agent.Role) (id.Agent, agent.Command) {
	facts := agent.Joined{Role: as, Tenant: tenant, Site: site, Name: fmt.Sprintf("host%d", n), Certificate: r.certificate()}
	facts.Agent = agent.OfSite(id.Of[id.JoinToken](projectiontest.ID(n)), "k")
	if as != agent.RoleSite {
		facts.Node = id.Of[id.Node](projectiontest.ID(n))
		facts.Agent = agent.Of(facts.Node)
	}
	return facts.Agent, agent.Join{Facts: facts}
}

func TestRowsAreTheFold(t *testing.T) {
	pool, p := pgtest.New(t), agents.New()
	rapid.Check(t, func(rt *rapid.T) {
		projectiontest.Reset(t, pool, p)
		r := newRoll(t)
		for range rapid.IntRange(1, 25).Draw(rt, "verbs") {
			a, join := r.join(rapid.IntRange(1, 2).Draw(rt, "agent"), agent.RoleRamdisk)
			current := append(slices.Clone(r.states[a].Current), "none")
			with := rapid.SampledFrom(current).Draw(rt, "with")
			r.do(t, a, rapid.SampledFrom([]agent.Command{
				join, agent.Renew{With: with, Certificate: r.certificate(), Now: noon},
				agent.OpenSession{Fingerprint: with, Role: agent.RoleRamdisk, BootID: rapid.SampledFrom([]string{"b1", "b2"}).Draw(rt, "boot"), Now: noon},
				agent.Use{Fingerprint: with, Now: noon}, agent.Revoke{Reason: "why", Now: noon},
			}).Draw(rt, "verb"))
		}
		projectiontest.Run(t, pool, r.store, p)
		for a, want := range r.states {
			view, err := agents.Get(t.Context(), pool, a)
			if err != nil || view.Role != want.Role || view.BootID != want.BootID || view.Revoked != want.Revoked || view.NodeID != want.Node.String() {
				t.Fatalf("%+v, %v; want %+v", view, err, want)
			}
			kept, err := agents.Certificates(t.Context(), pool, a)
			if err != nil || len(kept) != len(want.Certificates) {
				t.Fatalf("%d certificates, %v; want %d", len(kept), err, len(want.Certificates))
			}
			for i, c := range want.Certificates {
				k := kept[i]
				if k.Fingerprint != c.Fingerprint || !slices.Equal(k.PublicKey, c.PublicKey) || (k.RevokedAt == nil) != (c.RevokedAt == nil) || !k.NotAfter.Equal(c.NotAfter) {
					t.Fatalf("certificate %d is kept as %+v, want %+v", i, k, c)
				}
			}
		}
	})
}

func TestListAndPresence(t *testing.T) {
	pool, p := pgtest.New(t), agents.New()
	ctx := t.Context()
	r := newRoll(t)
	var ids []id.Agent
	for n, role := range []agent.Role{agent.RoleSite, agent.RoleRamdisk, agent.RoleSite} {
		a, join := r.join(n+1, role)
		r.do(t, a, join)
		ids = append(ids, a)
	}
	projectiontest.CatchUp(t, pool, r.store, p)
	work := agentcommand.IDOf("k").String()
	presence := postgres.NewPresence(pool)
	err := presence.Write(ctx, []agents.Contact{
		{Agent: ids[0], BootID: "b1", Role: agent.RoleSite, Doing: []string{work, work}},
		{Agent: ids[1], BootID: "b2", Role: agent.RoleRamdisk, Ago: time.Second},
		{Agent: ids[2], BootID: "b3", Role: agent.RoleSite, Ago: 2 * agents.Alive},
	}, []agents.Progress{{Command: work, Agent: ids[0], Percent: 12.5, Message: "writing"}})
	if err != nil {
		t.Fatal(err)
	}
	if at, err := agents.SiteAgents(ctx, pool, site); err != nil || !slices.Equal(at, ids[:1]) {
		t.Errorf("connected at the site: %v, %v", at, err)
	}
	view, err := agents.Get(ctx, pool, ids[0])
	if err != nil || !view.Connected || len(view.Doing) != 2 || view.Name != "host1" {
		t.Errorf("%+v, %v", view, err)
	}
	if err := presence.Write(ctx, []agents.Contact{{Agent: ids[0], BootID: "b0", Role: agent.RoleSite, Ago: time.Hour}}, nil); err != nil {
		t.Fatal(err)
	}
	if view, err := agents.Get(ctx, pool, ids[2]); err != nil || view.Connected {
		t.Errorf("heard of long ago, and connected: %+v, %v", view, err)
	}
	if _, err := pool.Exec(ctx, `UPDATE agents SET session_at = now() WHERE agent_id = $1`, ids[2].String()); err != nil {
		t.Fatal(err)
	}
	if view, err := agents.Get(ctx, pool, ids[2]); err != nil || !view.Connected {
		t.Errorf("in a session that was opened a moment ago, and not connected: %+v, %v", view, err)
	}
	if boot, _, is, err := agents.Connected(ctx, pool, ids[0]); err != nil || boot != "b1" || !is {
		t.Errorf("an older contact took the place of a newer one: %s, %t, %v", boot, is, err)
	}
	if err := presence.Write(ctx, []agents.Contact{{Agent: ids[0], BootID: "b1", Role: agent.RoleSite, Closed: "shutdown"}}, nil); err != nil {
		t.Fatal(err)
	}
	if _, _, is, err := agents.Connected(ctx, pool, ids[0]); err != nil || is {
		t.Errorf("gone on purpose, and connected: %t, %v", is, err)
	}
	if done, err := agents.ProgressOf(ctx, pool, agentcommand.IDOf("k"), agentcommand.IDOf("other")); err != nil || len(done) != 1 || done[work].Percent != 12.5 {
		t.Errorf("%v, %v", done, err)
	}
	if err := presence.Sweep(ctx, -time.Second); err != nil {
		t.Fatal(err)
	}
	if done, err := agents.ProgressOf(ctx, pool, agentcommand.IDOf("k")); err != nil || len(done) != 0 {
		t.Errorf("not forgotten: %v, %v", done, err)
	}

	var listed []string
	page := projections.Page{Limit: 2}
	for {
		views, next, err := agents.List(ctx, pool, agents.Filter{Scope: projections.Everything}, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range views {
			listed = append(listed, v.AgentID)
		}
		if page.Cursor = next; next == "" {
			break
		}
	}
	slices.Sort(listed)
	if len(slices.Compact(listed)) != 3 {
		t.Errorf("listed %v", listed)
	}
	if views, _, err := agents.List(ctx, pool, agents.Filter{Scope: projections.Scope{Nodes: []string{r.states[ids[1]].Node.String()}}}, projections.Page{}); err != nil || len(views) != 1 {
		t.Errorf("within a node: %d, %v", len(views), err)
	}
	if _, err := agents.Get(ctx, pool, id.Of[id.Agent](projectiontest.ID(99))); fault.CodeOf(err) != fault.NotFound {
		t.Error(err)
	}
}
