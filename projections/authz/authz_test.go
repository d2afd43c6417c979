package authz_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/better-compute/metal/adapters/eventstore/memory"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/site"
	"github.com/better-compute/metal/domain/tenant"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/authz"
	"github.com/better-compute/metal/projections/projectiontest"
	"github.com/better-compute/metal/test/pgtest"
)

func TestMain(m *testing.M) { projectiontest.Main(m) }

type world struct {
	t     testing.TB
	pool  *pgxpool.Pool
	store *memory.Store
}

func newWorld(t testing.TB, db *pgxpool.Pool) world {
	t.Helper()
	r, err := event.NewRegistry(tenant.Events, site.Events, pool.Events, principal.Events, node.Events)
	if err != nil {
		t.Fatal(err)
	}
	return world{t, db, memory.New(r)}
}

func (w world) append(s event.Stream, events ...event.Event) {
	w.t.Helper()
	held, err := w.store.Read(w.t.Context(), s, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.store.Append(w.t.Context(), s, event.Version(len(held)), event.Meta{}, events...); err != nil {
		w.t.Fatal(err)
	}
}

func (w world) catchUp() {
	w.t.Helper()
	projectiontest.CatchUp(w.t, w.pool, w.store, authz.New())
}

func tenantID(n int) id.Tenant       { return id.Of[id.Tenant](projectiontest.ID(n)) }
func siteID(n int) id.Site           { return id.Of[id.Site](projectiontest.ID(n)) }
func poolID(n int) id.Pool           { return id.Of[id.Pool](projectiontest.ID(n)) }
func nodeID(n int) id.Node           { return id.Of[id.Node](projectiontest.ID(n)) }
func principalID(n int) id.Principal { return id.Of[id.Principal](projectiontest.ID(n)) }
func tokenID(n int) id.Token         { return id.Of[id.Token](projectiontest.ID(n)) }
func bindingID(n int) id.Binding     { return id.Of[id.Binding](projectiontest.ID(n)) }

// settle makes two tenants, each with two sites, each with two pools: tenant n has sites 2n, 2n+1, site n pools 2n,
// 2n+1.
func (w world) settle() {
	for t := range 2 {
		w.append(tenant.StreamOf(tenantID(t)), tenant.Created{Tenant: tenantID(t), Name: fmt.Sprintf("tenant %d", t)})
	}
	for s := range 4 {
		w.append(site.StreamOf(siteID(s)), site.Created{Site: siteID(s), Tenant: tenantID(s / 2), Name: fmt.Sprintf("site %d", s)})
	}
	for p := range 8 {
		w.append(pool.StreamOf(poolID(p)), pool.Created{
			Pool: poolID(p), Tenant: tenantID(p / 4), Site: siteID(p / 2), Name: fmt.Sprintf("pool %d", p),
			Labels: map[string]string{"n": fmt.Sprint(p)}, Policy: pool.Policy{Agent: pool.AgentRequired},
		})
	}
}

func token(n int, expires *time.Time) principal.TokenIssued {
	return principal.TokenIssued{Principal: principalID(1), Token: principal.Token{
		ID: tokenID(n), Hash: fmt.Sprintf("%064x", n), Note: "laptop", ExpiresAt: expires,
	}}
}

func created(n int) principal.Created {
	return principal.Created{Principal: principalID(n), Tenant: tenantID(n % 2), Name: fmt.Sprintf("person %d", n), Kind: principal.Person}
}

func TestLookup(t *testing.T) {
	w := newWorld(t, pgtest.New(t))
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	soon := now.Add(time.Minute)
	binding := principal.Binding{
		ID: bindingID(1), Actions: []principal.Pattern{principal.Pattern(principal.NodesRead), "compute:pools:*"},
		Scope: principal.Scope{Kind: principal.ScopePool, ID: poolID(3).String()},
	}
	s := principal.StreamOf(principalID(1))
	w.append(s, created(1), token(1, nil), token(2, &soon), token(3, nil), token(4, nil),
		principal.Bound{Principal: principalID(1), Binding: binding},
		principal.TokenRevoked{Principal: principalID(1), Token: tokenID(3)})
	w.catchUp()

	c, err := authz.Lookup(t.Context(), w.pool, fmt.Sprintf("%064x", 1), now)
	want := authz.Caller{
		Principal: principalID(1), Tenant: tenantID(1), Name: "person 1", Kind: principal.Person, Token: tokenID(1),
		Bindings: []principal.Binding{binding},
	}
	if diff := cmp.Diff(fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", c)); err != nil || diff != "" {
		t.Errorf("caller: %v (-want +got)\n%s", err, diff)
	}
	valid := func(n int, at time.Time) bool {
		_, err := authz.Lookup(t.Context(), w.pool, fmt.Sprintf("%064x", n), at)
		if err != nil && fault.CodeOf(err) != fault.Unauthenticated {
			t.Error(err)
		}
		return err == nil
	}
	for name, c := range map[string]struct {
		token int
		at    time.Time
		want  bool
	}{
		"before it expires": {2, soon.Add(-time.Second), true}, "when it expires": {2, soon, false},
		"revoked": {3, now, false}, "unknown": {9, now, false}, "another one": {4, now, true},
	} {
		if valid(c.token, c.at) != c.want {
			t.Errorf("%s: valid is %v", name, !c.want)
		}
	}
	w.append(s, principal.Disabled{Principal: principalID(1)})
	if w.catchUp(); valid(1, now) {
		t.Error("a disabled principal's token is valid")
	}
	w.append(s, principal.Enabled{Principal: principalID(1)}, principal.Unbound{Principal: principalID(1), Binding: bindingID(1)})
	w.catchUp()
	if c, err := authz.Lookup(t.Context(), w.pool, fmt.Sprintf("%064x", 1), now); err != nil || len(c.Bindings) != 0 {
		t.Errorf("enabled again and unbound: %+v, %v", c, err)
	}
}

func TestPrincipals(t *testing.T) {
	w := newWorld(t, pgtest.New(t))
	for n := range 5 {
		w.append(principal.StreamOf(principalID(n)), created(n))
	}
	w.append(principal.StreamOf(principalID(1)), token(1, nil), principal.Bound{Principal: principalID(1), Binding: principal.Binding{
		ID: bindingID(1), Actions: []principal.Pattern{"*"}, Scope: principal.Scope{Kind: principal.ScopeTenant, ID: tenantID(1).String()},
	}})
	w.catchUp()
	inOne := projections.Scope{Tenants: []string{tenantID(1).String()}}
	p, err := authz.GetPrincipal(t.Context(), w.pool, inOne, principalID(1))
	if err != nil || len(p.Tokens) != 1 || len(p.Bindings) != 1 || p.Version != 3 {
		t.Errorf("principal: %+v, %v", p, err)
	}
	if _, err := authz.GetPrincipal(t.Context(), w.pool, inOne, principalID(2)); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("of another tenant: %v", err)
	}
	first, next, err := authz.ListPrincipals(t.Context(), w.pool, inOne, authz.Around{}, projections.Page{Limit: 1})
	if err != nil || len(first) != 1 || first[0].ID != principalID(3) {
		t.Fatalf("first page: %+v, %v", first, err)
	}
	second, next, err := authz.ListPrincipals(t.Context(), w.pool, inOne, authz.Around{}, projections.Page{Limit: 1, Cursor: next})
	if err != nil || len(second) != 1 || second[0].ID != principalID(1) || next != "" {
		t.Errorf("second page: %+v, %q, %v", second, next, err)
	}
	for scope, want := range map[*projections.Scope]int{&inOne: 1, {Tenants: []string{tenantID(0).String()}}: 0} {
		b, _, err := authz.ListBindings(t.Context(), w.pool, *scope, id.Principal{}, projections.Page{})
		if err != nil || len(b) != want {
			t.Errorf("bindings in %v: %+v, %v", scope.Tenants, b, err)
		}
	}
}

func TestPolicyChangeReachesTheRow(t *testing.T) {
	w := newWorld(t, pgtest.New(t))
	w.settle()
	w.catchUp()
	policy := pool.Policy{Agent: pool.AgentNone, UnverifiedRelease: pool.AllowUnverifiedRelease}
	w.append(pool.StreamOf(poolID(3)), pool.PolicyChanged{Policy: policy})
	w.catchUp()
	p, err := authz.GetPool(t.Context(), w.pool, projections.Everything, poolID(3))
	if err != nil || p.Policy != policy || p.Version != 2 || p.Name != "pool 3" || p.Site != siteID(1) || p.Labels["n"] != "3" {
		t.Errorf("pool: %+v, %v", p, err)
	}
	if _, err := authz.PlaceOfSite(t.Context(), w.pool, siteID(3)); err != nil {
		t.Error(err)
	}
	if _, err := authz.PlaceOfPool(t.Context(), w.pool, poolID(9)); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("place of nothing: %v", err)
	}
}

// bindings draws what a principal may hold, over a few tenants, sites, pools and nodes.
var bindings = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) principal.Binding {
	b := principal.Binding{ID: bindingID(rapid.IntRange(0, 1000).Draw(t, "binding"))}
	patterns := []principal.Pattern{"*", "compute:*", "compute:nodes:*", "compute:nodes:read", "compute:pools:read", "compute:tenants:read"}
	b.Actions = rapid.SliceOfN(rapid.SampledFrom(patterns), 1, 2).Draw(t, "actions")
	n := rapid.IntRange(0, 7).Draw(t, "n")
	b.Scope = rapid.SampledFrom([]principal.Scope{
		{Kind: principal.ScopeTenant, ID: tenantID(n % 2).String()}, {Kind: principal.ScopeSite, ID: siteID(n % 4).String()},
		{Kind: principal.ScopePool, ID: poolID(n).String()}, {Kind: principal.ScopeNode, ID: nodeID(n).String()},
		{Kind: principal.ScopeTenant, ID: tenant.Root.String()},
	}).Draw(t, "scope")
	return b
}), 0, 4)

// allowed decides on one resource by the meaning of a binding, without compiling a scope.
func allowed(held []principal.Binding, action principal.Action, p projections.Place) bool {
	return slices.ContainsFunc(held, func(b principal.Binding) bool {
		grants := slices.ContainsFunc(b.Actions, func(a principal.Pattern) bool { return a.Grants(action) })
		around := map[principal.ScopeKind]string{
			principal.ScopeTenant: p.Tenant, principal.ScopeSite: p.Site, principal.ScopePool: p.Pool, principal.ScopeNode: p.Node,
		}
		everywhere := b.Scope.Kind == principal.ScopeTenant && b.Scope.ID == tenant.Root.String()
		return grants && (everywhere || around[b.Scope.Kind] == b.Scope.ID)
	})
}

// P12: a scope reaches exactly what the bindings allow, in memory and in every list and look-up.
func TestScopeAgreesWithTheDecisionOnEachResource(t *testing.T) {
	w := newWorld(t, pgtest.New(t))
	w.settle()
	for n := range 8 {
		w.append(node.StreamOf(nodeID(n)), projectiontest.Enroll(n, tenantID(n/4), siteID(n/2), poolID(n), nil).Events...)
	}
	w.catchUp()
	places, err := authz.Places(t.Context(), w.pool, []id.Node{
		nodeID(0), nodeID(1), nodeID(2), nodeID(3), nodeID(4), nodeID(5), nodeID(6), nodeID(7), nodeID(99),
	})
	if err != nil || len(places) != 8 {
		t.Fatal(places, err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		held := bindings.Draw(rt, "bindings")
		for _, action := range []principal.Action{principal.NodesRead, principal.PoolsRead, principal.TenantsRead} {
			s := authz.ScopeOf(held, action)
			for n, p := range places {
				if s.Reaches(p) != allowed(held, action, p) {
					rt.Fatalf("%s on %s: scope %+v, bindings %+v", action, n, s, held)
				}
			}
			w.pools(rt, s, func(p projections.Place) bool { return allowed(held, action, p) })
			w.sites(rt, s, func(p projections.Place) bool { return allowed(held, action, p) })
			w.tenants(rt, s, func(p projections.Place) bool { return allowed(held, action, p) })
		}
	})
}

func (w world) pools(rt *rapid.T, s projections.Scope, may func(projections.Place) bool) {
	list, _, err := authz.ListPools(w.t.Context(), w.pool, s, authz.Around{}, projections.Page{})
	if err != nil {
		rt.Fatal(err)
	}
	for n := range 8 {
		want := may(projections.Place{Tenant: tenantID(n / 4).String(), Site: siteID(n / 2).String(), Pool: poolID(n).String()})
		listed := slices.ContainsFunc(list, func(p authz.Pool) bool { return p.ID == poolID(n) })
		_, err := authz.GetPool(w.t.Context(), w.pool, s, poolID(n))
		if listed != want || (err == nil) != want {
			rt.Fatalf("pool %d in %+v: listed %v, got %v, want %v", n, s, listed, err, want)
		}
	}
}

func (w world) sites(rt *rapid.T, s projections.Scope, may func(projections.Place) bool) {
	list, _, err := authz.ListSites(w.t.Context(), w.pool, s, authz.Around{}, projections.Page{})
	if err != nil {
		rt.Fatal(err)
	}
	for n := range 4 {
		want := may(projections.Place{Tenant: tenantID(n / 2).String(), Site: siteID(n).String()})
		listed := slices.ContainsFunc(list, func(p authz.Site) bool { return p.ID == siteID(n) })
		_, err := authz.GetSite(w.t.Context(), w.pool, s, siteID(n))
		if listed != want || (err == nil) != want {
			rt.Fatalf("site %d in %+v: listed %v, got %v, want %v", n, s, listed, err, want)
		}
	}
}

func (w world) tenants(rt *rapid.T, s projections.Scope, may func(projections.Place) bool) {
	list, _, err := authz.ListTenants(w.t.Context(), w.pool, s, projections.Page{})
	if err != nil {
		rt.Fatal(err)
	}
	for n := range 2 {
		want := may(projections.Place{Tenant: tenantID(n).String()})
		listed := slices.ContainsFunc(list, func(p authz.Tenant) bool { return p.ID == tenantID(n) })
		_, err := authz.GetTenant(w.t.Context(), w.pool, s, tenantID(n))
		if listed != want || (err == nil) != want {
			rt.Fatalf("tenant %d in %+v: listed %v, got %v, want %v", n, s, listed, err, want)
		}
	}
}

// However the log is cut and whoever folds it, the rows are the same (P11).
func TestRowsAreAFunctionOfTheLog(t *testing.T) {
	pg := pgtest.New(t)
	rapid.Check(t, func(rt *rapid.T) {
		projectiontest.Reset(t, pg, authz.New())
		w := newWorld(t, pg)
		w.settle()
		for n := range 3 {
			w.append(principal.StreamOf(principalID(n)), created(n))
		}
		for range rapid.IntRange(0, 15).Draw(rt, "events") {
			p := principalID(rapid.IntRange(0, 2).Draw(rt, "principal"))
			k := rapid.IntRange(0, 3).Draw(rt, "k")
			w.append(principal.StreamOf(p), rapid.SampledFrom([]event.Event{
				principal.Disabled{Principal: p}, principal.Enabled{Principal: p},
				principal.TokenIssued{Principal: p, Token: token(k, nil).Token},
				principal.TokenRevoked{Principal: p, Token: tokenID(k)},
				principal.Bound{Principal: p, Binding: principal.Binding{ID: bindingID(k), Actions: []principal.Pattern{"*"}}},
				principal.Unbound{Principal: p, Binding: bindingID(k)},
			}).Draw(rt, "event"))
			w.append(pool.StreamOf(poolID(k)), pool.PolicyChanged{Policy: pool.Policy{HardwareProfile: fmt.Sprint(k)}})
			w.append(site.StreamOf(siteID(k)), site.PolicyChanged{Policy: site.Policy{BMCNetworks: []string{"10.0.0.0/8"}}})
		}
		w.append(tenant.StreamOf(tenantID(0)), tenant.PolicyChanged{Policy: tenant.Policy{}})
		w.append(node.StreamOf(nodeID(1)), projectiontest.Enroll(1, tenantID(0), siteID(0), poolID(0), nil).Events...)
		w.append(node.StreamOf(nodeID(2)), node.EnrollmentVoided{Node: nodeID(2), Tenant: tenantID(0)})
		projectiontest.Run(t, pg, w.store, authz.New())
	})
}
