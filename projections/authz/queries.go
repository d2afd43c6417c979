package authz

import (
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/fault"
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
	l := listing{table: "authz_tenants", key: "tenant_id", valid: valid[id.Tenant], page: p}
	l.where.Within(s, tenantPlace)
	return list(ctx, db, l, tenantRow.resource)
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
	l := listing{table: "authz_sites", key: "site_id", valid: valid[id.Site], page: p}
	l.where.Within(s, sitePlace)
	a.where(&l.where)
	return list(ctx, db, l, siteRow.resource)
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
	l := listing{table: "authz_pools", key: "pool_id", valid: valid[id.Pool], page: p}
	l.where.Within(s, poolPlace)
	a.where(&l.where)
	return list(ctx, db, l, poolRow.resource)
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
	var zero T
	var raw []byte
	err := db.QueryRow(ctx, "SELECT to_json(t) FROM "+table+" t"+w.SQL(), w.Args()...).Scan(&raw)
	if errors.Is(err, pgx.ErrNoRows) {
		return zero, fault.New(fault.NotFound, "there is no %s", of)
	}
	if err != nil {
		return zero, fmt.Errorf("read %s: %w", of, err)
	}
	var row R
	if err := json.Unmarshal(raw, &row); err != nil {
		return zero, fmt.Errorf("read %s: %w", of, err)
	}
	return resource(row)
}

// listing is what list reads: a table by its key, newest first.
type listing struct {
	table, key string
	valid      func(key string) bool
	where      projections.Where
	page       projections.Page
}

// valid reports whether key is an id of type T.
func valid[T any, PT interface {
	*T
	encoding.TextUnmarshaler
}](key string) bool {
	return PT(new(T)).UnmarshalText([]byte(key)) == nil
}

// list reads one page.
func list[R, T any](
	ctx context.Context, db projections.DB, l listing, resource func(R) (T, error),
) ([]T, string, error) {
	size, err := l.page.Size()
	if err != nil {
		return nil, "", err
	}
	after, err := l.page.After(l.table, l.valid)
	if err != nil {
		return nil, "", err
	}
	if after != "" {
		l.where.Add(l.key+" < {}", after)
	}
	sql := fmt.Sprintf("SELECT %s, to_json(t) FROM %s t%s ORDER BY %s DESC LIMIT %s",
		l.key, l.table, l.where.SQL(), l.key, l.where.Arg(size+1))
	rows, err := db.Query(ctx, sql, l.where.Args()...)
	if err != nil {
		return nil, "", fmt.Errorf("list %s: %w", l.table, err)
	}
	items := make([]T, 0, size)
	var last, next, key string
	var raw []byte
	_, err = pgx.ForEachRow(rows, []any{&key, &raw}, func() error {
		if len(items) == size {
			next = projections.Cursor(l.table, last)
			return nil
		}
		last = key
		var row R
		if err := json.Unmarshal(raw, &row); err != nil {
			return err
		}
		item, err := resource(row)
		items = append(items, item)
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("list %s: %w", l.table, err)
	}
	return items, next, nil
}
