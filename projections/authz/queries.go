package authz

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/projections"
)

// GetTenant reads one tenant. Errors: NOT_FOUND, also where the scope does not reach it.
func GetTenant(ctx context.Context, db projections.DB, s projections.Scope, t id.Tenant) (Tenant, error) {
	return get(ctx, db, "authz_tenants", "tenant_id", tenantPlace, s, t, tenantRow.resource)
}

// ListTenants reads one page, newest first, and the cursor of the next. Errors: INVALID_INPUT for a bad limit or
// cursor.
func ListTenants(
	ctx context.Context, db projections.DB, s projections.Scope, p projections.Page,
) ([]Tenant, string, error) {
	w := &projections.Where{}
	w.Within(s, tenantPlace)
	return page(ctx, db, tenantList, w, p)
}

// GetSite reads one site. Errors: NOT_FOUND, also where the scope does not reach it.
func GetSite(ctx context.Context, db projections.DB, s projections.Scope, site id.Site) (Site, error) {
	return get(ctx, db, "authz_sites", "site_id", sitePlace, s, site, siteRow.resource)
}

// Around bounds a list of sites, pools or principals; zero ids don't.
type Around struct {
	Tenant id.Tenant
	Site   id.Site // of pools
}

func (a Around) where(w *projections.Where) {
	if !id.IsZero(a.Tenant) {
		w.Add("tenant_id = {}", a.Tenant.String())
	}
	if !id.IsZero(a.Site) {
		w.Add("site_id = {}", a.Site.String())
	}
}

// ListSites reads one page, newest first, and the cursor of the next. Errors: INVALID_INPUT for a bad limit or
// cursor.
func ListSites(
	ctx context.Context, db projections.DB, s projections.Scope, a Around, p projections.Page,
) ([]Site, string, error) {
	w := &projections.Where{}
	w.Within(s, sitePlace)
	a.where(w)
	return page(ctx, db, siteList, w, p)
}

// GetPool reads one pool. Errors: NOT_FOUND, also where the scope does not reach it.
func GetPool(ctx context.Context, db projections.DB, s projections.Scope, p id.Pool) (Pool, error) {
	return get(ctx, db, "authz_pools", "pool_id", poolPlace, s, p, poolRow.resource)
}

// ListPools reads one page, newest first, and the cursor of the next. Errors: INVALID_INPUT for a bad limit or
// cursor.
func ListPools(
	ctx context.Context, db projections.DB, s projections.Scope, a Around, p projections.Page,
) ([]Pool, string, error) {
	w := &projections.Where{}
	w.Within(s, poolPlace)
	a.where(w)
	return page(ctx, db, poolList, w, p)
}

// The columns that say where a row is.
var (
	tenantPlace = projections.Place{Tenant: "tenant_id"}
	sitePlace   = projections.Place{Tenant: "tenant_id", Site: "site_id"}
	poolPlace   = projections.Place{Tenant: "tenant_id", Site: "site_id", Pool: "pool_id"}
)

// get reads one row within a scope.
func get[R, T any](
	ctx context.Context, db projections.DB, table, key string, columns projections.Place, s projections.Scope,
	of fmt.Stringer, resource func(R) (T, error),
) (T, error) {
	var w projections.Where
	w.Add(key+" = {}", of.String())
	w.Within(s, columns)
	row, err := projections.One[R](ctx, db, of.String(), "SELECT to_json(t) FROM "+table+" t"+w.SQL(), w.Args()...)
	if err != nil {
		var none T
		return none, err
	}
	return resource(row)
}

// The lists: tables by their keys, newest first.
var (
	tenantList    = listOf("authz_tenants", "tenant_id", projections.ValidID[id.Tenant], tenantRow.resource)
	siteList      = listOf("authz_sites", "site_id", projections.ValidID[id.Site], siteRow.resource)
	poolList      = listOf("authz_pools", "pool_id", projections.ValidID[id.Pool], poolRow.resource)
	principalList = listOf("authz_principals", "principal_id", projections.ValidID[id.Principal], principalRow.resource)
	bindingList   = listOf("authz_bindings", "binding_id", projections.ValidID[id.Binding], bindingRow.resource)
)

// keyed is a resource with its row's key.
type keyed[T any] struct {
	key      string
	resource T
}

// listOf is the list of a table.
func listOf[R, T any](
	table, key string, valid func(key string) bool, resource func(R) (T, error),
) projections.List[keyed[T]] {
	return projections.List[keyed[T]]{
		Name: table, From: "SELECT " + key + ", to_json(t) FROM " + table + " t", Key: key, Valid: valid,
		Scan: func(r pgx.CollectableRow) (k keyed[T], err error) {
			var row R
			if err := r.Scan(&k.key, &row); err != nil {
				return k, err
			}
			k.resource, err = resource(row)
			return k, err
		},
		KeyOf: func(k keyed[T]) string { return k.key },
	}
}

// page reads one page.
func page[T any](
	ctx context.Context, db projections.DB, l projections.List[keyed[T]], w *projections.Where, p projections.Page,
) ([]T, string, error) {
	found, next, err := l.Page(ctx, db, w, p)
	items := make([]T, len(found))
	for i, k := range found {
		items[i] = k.resource
	}
	return items, next, err
}
