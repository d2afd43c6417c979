package httpapi

import (
	"context"
	"net/http"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/authz"
)

func (a *API) poolOperations() {
	operate(a, document{
		id: "create-pool", method: http.MethodPost, path: "/v1/pools", tag: "pools", status: http.StatusCreated,
		summary: "Create a group of machines at a site", gives: oneOf[contract.Pool](), late: true,
	}, a.createPool)
	operate(a, document{
		id: "list-pools", method: http.MethodGet, path: "/v1/pools", tag: "pools",
		summary: "List pools, newest first", gives: pageOf[contract.Pool](),
	}, a.listPools)
	operate(a, document{
		id: "get-pool", method: http.MethodGet, path: "/v1/pools/{id}", tag: "pools",
		summary: "Read a pool", gives: oneOf[contract.Pool](),
	}, a.getPool)
	operate(a, document{
		id: "change-pool-policy", method: http.MethodPut, path: "/v1/pools/{id}/policy", tag: "pools",
		summary: "Replace a pool's policy", gives: oneOf[contract.Pool](), late: true,
	}, a.changePoolPolicy)
}

func (a *API) createPool(ctx context.Context, in *creates[contract.NewPool]) (*answer, error) {
	var wrong issues
	t, err := idAt[id.Tenant]("body.tenantId", in.Body.Tenant)
	wrong.take(err)
	s, err := idAt[id.Site]("body.siteId", in.Body.Site)
	wrong.take(err)
	if err := wrong.err(); err != nil {
		return nil, err
	}
	done, err := a.service.CreatePool(ctx, creation(ctx), commands.NewPool{
		Tenant: t, Site: s, Name: in.Body.Name, Labels: in.Body.Labels, Policy: poolPolicy(in.Body.Policy),
	})
	if err != nil {
		return nil, err
	}
	out, err := a.poolDone(ctx, done)
	return located(out, "/v1/pools/"+done.State.ID.String(), err)
}

func (a *API) changePoolPolicy(ctx context.Context, in *needs[contract.ChangePoolPolicy]) (*answer, error) {
	p, call, err := target[id.Pool](ctx, in.ID, in.Matching)
	if err != nil {
		return nil, err
	}
	done, err := a.service.ChangePoolPolicy(ctx, call, p, poolPolicy(in.Body.Policy))
	if err != nil {
		return nil, err
	}
	return a.poolDone(ctx, done)
}

func (a *API) poolDone(ctx context.Context, done commands.Outcome[pool.State]) (*answer, error) {
	s := done.State
	return a.done(ctx, authz.Name, done.Version, done.Position, poolOf(authz.Pool{
		ID: s.ID, Tenant: s.Tenant, Site: s.Site, Name: s.Name, Labels: s.Labels, Policy: s.Policy,
		Version: done.Version, Position: done.Position, UpdatedAt: done.At,
	}))
}

type listPools struct {
	Fresh
	Paging
	Tenant string `query:"tenant"`
	Site   string `query:"site"`
}

func (a *API) listPools(ctx context.Context, in *listPools) (*answer, error) {
	var wrong issues
	within := around{tenant: narrow[id.Tenant](&wrong, "tenant", in.Tenant), site: narrow[id.Site](&wrong, "site", in.Site)}
	if err := wrong.err(); err != nil {
		return nil, err
	}
	return listOf(ctx, a, in.Fresh, in.Paging, func(who *Identity) ([]authz.Pool, string, error) {
		return narrowed(ctx, a, who, within, principal.PoolsRead, in.Cursor == "",
			func(s projections.Scope) ([]authz.Pool, string, error) {
				return authz.ListPools(ctx, a.db, s, authz.Around{Tenant: within.tenant, Site: within.site}, in.page())
			})
	}, poolOf)
}

func (a *API) getPool(ctx context.Context, in *one) (*answer, error) {
	p, err := pathID[id.Pool](in.ID)
	if err != nil {
		return nil, err
	}
	return single(ctx, a, in.Fresh, func(who *Identity) (authz.Pool, error) {
		return authz.GetPool(ctx, a.db, who.Scope(principal.PoolsRead), p)
	}, poolOf, func(p authz.Pool) event.Version { return p.Version })
}

func poolPolicy(p contract.PoolPolicy) pool.Policy {
	return pool.Policy{
		Agent: pool.Agent(p.Agent), HardwareProfile: p.HardwareProfile, UnverifiedRelease: p.UnverifiedRelease,
	}
}

func poolOf(p authz.Pool) contract.Pool {
	return contract.Pool{
		ID: p.ID.String(), Tenant: p.Tenant.String(), Site: p.Site.String(), Name: p.Name, Labels: p.Labels,
		Policy: contract.PoolPolicy{
			Agent: string(p.Policy.Agent), HardwareProfile: p.Policy.HardwareProfile,
			UnverifiedRelease: p.Policy.UnverifiedRelease,
		},
		Version: uint64(p.Version), Position: uint64(p.Position), UpdatedAt: p.UpdatedAt.UTC(),
	}
}
