package authz_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"go.jetify.com/typeid"
	"pgregory.net/rapid"

	"github.com/better-compute/metal/adapters/authz"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/tenant"
)

// A small world, so that random bindings and resources often meet.
var (
	tenants = append([]id.Tenant{tenant.Root}, few[id.Tenant](2)...)
	sites   = few[id.Site](2)
	pools   = few[id.Pool](3)
	nodes   = few[id.Node](4)
)

func few[T id.Kind, PT typeid.SubtypePtr[T]](n int) []T {
	all := make([]T, n)
	for i := range all {
		u := uuid.MustParse(fmt.Sprintf("01900000-0000-7000-8000-%012d", i+1))
		all[i] = id.Of[T, PT](u)
	}
	return all
}

var patterns = func() []principal.Pattern {
	all := []principal.Pattern{"*", "compute:*", "compute:nodes:*", "compute:pools:*", "compute:iam:*", "compute:no:*",
		"compute"}
	for _, row := range principal.Actions {
		all = append(all, principal.Pattern(row.Action))
	}
	return all
}()

func drawActor(t *rapid.T) commands.Actor {
	actor := commands.Actor{Principal: id.Of[id.Principal](uuid.Must(uuid.NewV7()))}
	for range rapid.IntRange(0, 6).Draw(t, "bindings") {
		b := principal.Binding{
			ID:      id.Of[id.Binding](uuid.Must(uuid.NewV7())),
			Actions: rapid.SliceOfN(rapid.SampledFrom(patterns), 1, 3).Draw(t, "actions"),
			Scope:   principal.Scope{Kind: rapid.SampledFrom(principal.ScopeKinds).Draw(t, "kind")},
		}
		switch b.Scope.Kind {
		case principal.ScopeTenant:
			b.Scope.ID = rapid.SampledFrom(tenants).Draw(t, "tenant").String()
		case principal.ScopeSite:
			b.Scope.ID = rapid.SampledFrom(sites).Draw(t, "site").String()
		case principal.ScopePool:
			b.Scope.ID = rapid.SampledFrom(pools).Draw(t, "pool").String()
		case principal.ScopeNode:
			b.Scope.ID = rapid.SampledFrom(nodes).Draw(t, "node").String()
		}
		actor.Bindings = append(actor.Bindings, b)
	}
	return actor
}

func drawResource(t *rapid.T) commands.Resource {
	kinds := []commands.ResourceKind{
		commands.OnNode, commands.OnPool, commands.OnSite, commands.OnTenant, commands.OnPrincipal,
	}
	on := commands.Resource{
		Kind:   rapid.SampledFrom(kinds).Draw(t, "on"),
		Tenant: rapid.SampledFrom(tenants).Draw(t, "of tenant"),
	}
	switch on.Kind {
	case commands.OnNode:
		on.Node = rapid.SampledFrom(nodes).Draw(t, "the node")
		fallthrough
	case commands.OnPool:
		on.Pool = rapid.SampledFrom(pools).Draw(t, "in pool")
		fallthrough
	case commands.OnSite:
		on.Site = rapid.SampledFrom(sites).Draw(t, "at site")
	}
	return on
}

// plain is the rule as a person would say it, without Cedar: some binding grants the action somewhere around the
// resource.
func plain(actor commands.Actor, action principal.Action, on commands.Resource) bool {
	return slices.ContainsFunc(actor.Bindings, func(b principal.Binding) bool {
		granted := slices.ContainsFunc(b.Actions, func(p principal.Pattern) bool { return p.Grants(action) })
		if !granted {
			return false
		}
		switch b.Scope.Kind {
		case principal.ScopeTenant:
			return b.Scope.ID == tenant.Root.String() || b.Scope.ID == on.Tenant.String()
		case principal.ScopeSite:
			return b.Scope.ID == on.Site.String()
		case principal.ScopePool:
			return b.Scope.ID == on.Pool.String()
		default:
			return b.Scope.ID == on.Node.String()
		}
	})
}

func groupRead(action principal.Action) principal.Action {
	i := len(action) - 1
	for action[i] != ':' {
		i--
	}
	return action[:i+1] + "read"
}

var kindRead = map[commands.ResourceKind]principal.Action{
	commands.OnNode: principal.NodesRead, commands.OnPool: principal.PoolsRead, commands.OnSite: principal.SitesRead,
	commands.OnTenant: principal.TenantsRead, commands.OnPrincipal: principal.IAMRead,
}

func TestDecisionsAreThePlainRule(t *testing.T) {
	auth := must(authz.New())
	rapid.Check(t, func(t *rapid.T) {
		actor, on := drawActor(t), drawResource(t)
		for _, row := range principal.Actions {
			want := fault.NotFound
			switch {
			case plain(actor, row.Action, on):
				want = ""
			case plain(actor, kindRead[on.Kind], on), plain(actor, groupRead(row.Action), on):
				want = fault.Forbidden
			}
			if got := fault.CodeOf(auth.Allow(actor, row.Action, on)); got != want {
				t.Fatalf("%s on %+v with %+v: %q, want %q", row.Action, on, actor.Bindings, got, want)
			}
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
