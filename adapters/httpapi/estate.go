package httpapi

import (
	"context"
	"net/http"
	"reflect"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/tenant"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/authz"
)

// one is the input of a read of one thing.
type one struct {
	ID string `path:"id"`
	Fresh
}

// creates is the input of a creation.
type creates[B any] struct {
	Keyed
	Body B
}

// listOf reads a page after the read model has caught up, and gives its items as callers see them.
func listOf[T, C any](ctx context.Context, a *API, f Fresh, p Paging,
	read func(*Identity) ([]T, string, error), as func(T) C,
) (*answer, error) {
	return listIn(ctx, a, authz.Name, f, p, read, as)
}

// listIn is listOf over a read model.
func listIn[T, C any](ctx context.Context, a *API, model string, f Fresh, p Paging,
	read func(*Identity) ([]T, string, error), as func(T) C,
) (*answer, error) {
	if err := a.await(ctx, model, f); err != nil {
		return nil, err
	}
	reached := a.waiter.Position(model)
	found, next, err := read(requestOf(ctx).who)
	if err != nil {
		return nil, readFault(err)
	}
	items, err := encodeAll(found, as)
	if err != nil {
		return nil, err
	}
	return a.page(reached, items, next, p.Fields, fieldsOf(reflect.TypeFor[C]()))
}

// single answers with one thing that was read.
func single[T, C any](ctx context.Context, a *API, f Fresh, read func(*Identity) (T, error), as func(T) C,
	version func(T) event.Version,
) (*answer, error) {
	return singleIn(ctx, a, authz.Name, f, read, as, version)
}

// singleIn is single over a read model.
func singleIn[T, C any](ctx context.Context, a *API, model string, f Fresh, read func(*Identity) (T, error), as func(T) C,
	version func(T) event.Version,
) (*answer, error) {
	if err := a.await(ctx, model, f); err != nil {
		return nil, err
	}
	reached := a.waiter.Position(model)
	found, err := read(requestOf(ctx).who)
	if err != nil {
		return nil, readFault(err)
	}
	body, err := encode(as(found))
	out := &answer{Position: reached.String(), Body: body}
	if v := version(found); v > 0 {
		out.ETag = etag(v)
	}
	return out, err
}

func (a *API) tenantOperations() {
	operate(a, document{
		id: "create-tenant", method: http.MethodPost, path: "/v1/tenants", tag: "tenants", status: http.StatusCreated,
		summary: "Create an owner of machines", gives: oneOf[contract.Tenant](), late: true,
	}, a.createTenant)
	operate(a, document{
		id: "list-tenants", method: http.MethodGet, path: "/v1/tenants", tag: "tenants",
		summary: "List tenants, newest first", gives: pageOf[contract.Tenant](),
	}, a.listTenants)
	operate(a, document{
		id: "get-tenant", method: http.MethodGet, path: "/v1/tenants/{id}", tag: "tenants",
		summary: "Read a tenant", gives: oneOf[contract.Tenant](),
	}, a.getTenant)
	operate(a, document{
		id: "change-tenant-policy", method: http.MethodPut, path: "/v1/tenants/{id}/policy", tag: "tenants",
		summary: "Replace a tenant's policy", gives: oneOf[contract.Tenant](), late: true,
	}, a.changeTenantPolicy)
}

func (a *API) createTenant(ctx context.Context, in *creates[contract.NewTenant]) (*answer, error) {
	done, err := a.service.CreateTenant(ctx, creation(ctx), commands.NewTenant{
		Name: in.Body.Name, Labels: in.Body.Labels, Policy: tenantPolicy(in.Body.Policy),
	})
	if err != nil {
		return nil, err
	}
	out, err := a.tenantDone(ctx, done)
	return located(out, "/v1/tenants/"+done.State.ID.String(), err)
}

func (a *API) changeTenantPolicy(ctx context.Context, in *needs[contract.ChangeTenantPolicy]) (*answer, error) {
	t, call, err := target[id.Tenant](ctx, in.ID, in.Matching)
	if err != nil {
		return nil, err
	}
	done, err := a.service.ChangeTenantPolicy(ctx, call, t, tenantPolicy(in.Body.Policy))
	if err != nil {
		return nil, err
	}
	return a.tenantDone(ctx, done)
}

func (a *API) tenantDone(ctx context.Context, done commands.Outcome[tenant.State]) (*answer, error) {
	s := done.State
	return a.done(ctx, authz.Name, done.Version, done.Position, tenantOf(authz.Tenant{
		ID: s.ID, Name: s.Name, Labels: s.Labels, Policy: s.Policy,
		Version: done.Version, Position: done.Position, UpdatedAt: done.At,
	}))
}

type listTenants struct {
	Fresh
	Paging
}

func (a *API) listTenants(ctx context.Context, in *listTenants) (*answer, error) {
	return listOf(ctx, a, in.Fresh, in.Paging, func(who *Identity) ([]authz.Tenant, string, error) {
		return authz.ListTenants(ctx, a.db, who.Scope(principal.TenantsRead), in.page())
	}, tenantOf)
}

func (a *API) getTenant(ctx context.Context, in *one) (*answer, error) {
	t, err := pathID[id.Tenant](in.ID)
	if err != nil {
		return nil, err
	}
	return single(ctx, a, in.Fresh, func(who *Identity) (authz.Tenant, error) {
		return authz.GetTenant(ctx, a.db, who.Scope(principal.TenantsRead), t)
	}, tenantOf, func(t authz.Tenant) event.Version { return t.Version })
}

func tenantOf(t authz.Tenant) contract.Tenant {
	return contract.Tenant{
		ID: t.ID.String(), Name: t.Name, Labels: t.Labels, Policy: contractTenantPolicy(t.Policy),
		Version: uint64(t.Version), Position: uint64(t.Position), UpdatedAt: t.UpdatedAt.UTC(),
	}
}

func tenantPolicy(p contract.TenantPolicy) tenant.Policy {
	var out tenant.Policy
	for _, s := range p.ImageSigners {
		out.ImageSigners = append(out.ImageSigners, tenant.Signer(s))
	}
	return out
}

func contractTenantPolicy(p tenant.Policy) contract.TenantPolicy {
	var out contract.TenantPolicy
	for _, s := range p.ImageSigners {
		out.ImageSigners = append(out.ImageSigners, contract.ImageSigner(s))
	}
	return out
}

// narrowed reads a list, and refuses a filter by what the caller may not see where nothing was found.
func narrowed[T any](ctx context.Context, a *API, who *Identity, in around, action principal.Action, first bool,
	read func(projections.Scope) ([]T, string, error),
) ([]T, string, error) {
	found, next, err := read(who.Scope(action))
	if err == nil && first && len(found) == 0 {
		err = a.visible(ctx, who, in, action)
	}
	return found, next, err
}
