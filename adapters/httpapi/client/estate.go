package client

import (
	"context"
	"iter"
	"net/url"

	"github.com/better-compute/metal/adapters/httpapi/contract"
)

var (
	opCreateTenant = post("/v1/tenants")
	opListTenants  = get("/v1/tenants", "limit", "cursor")
	opGetTenant    = get("/v1/tenants/{id}")
	opTenantPolicy = put("/v1/tenants/{id}/policy")
	opCreateSite   = post("/v1/sites")
	opListSites    = get("/v1/sites", "tenant", "limit", "cursor")
	opGetSite      = get("/v1/sites/{id}")
	opSitePolicy   = put("/v1/sites/{id}/policy")
	opCreatePool   = post("/v1/pools")
	opListPools    = get("/v1/pools", "tenant", "site", "limit", "cursor")
	opGetPool      = get("/v1/pools/{id}")
	opPoolPolicy   = put("/v1/pools/{id}/policy")
)

// CreateTenant makes an owner of machines.
func (c *Client) CreateTenant(ctx context.Context, in contract.NewTenant, o ...Option) (contract.Tenant, error) {
	return call[contract.Tenant](ctx, c, opCreateTenant, nil, nil, in, o)
}

// Tenants goes through all tenants, newest first.
func (c *Client) Tenants(ctx context.Context, o ...Option) iter.Seq2[contract.Tenant, error] {
	return pages[contract.Tenant](ctx, c, opListTenants, nil, nil, o)
}

// GetTenant reads one tenant.
func (c *Client) GetTenant(ctx context.Context, tenant string, o ...Option) (contract.Tenant, error) {
	return call[contract.Tenant](ctx, c, opGetTenant, []string{tenant}, nil, nil, o)
}

// ChangeTenantPolicy replaces a tenant's policy.
func (c *Client) ChangeTenantPolicy(ctx context.Context, tenant string, in contract.TenantPolicy, o ...Option,
) (contract.Tenant, error) {
	body := contract.ChangeTenantPolicy{Policy: in}
	return call[contract.Tenant](ctx, c, opTenantPolicy, []string{tenant}, nil, body, o)
}

// CreateSite makes a place with a network of BMCs.
func (c *Client) CreateSite(ctx context.Context, in contract.NewSite, o ...Option) (contract.Site, error) {
	return call[contract.Site](ctx, c, opCreateSite, nil, nil, in, o)
}

// Sites goes through all sites, of one tenant unless it is empty.
func (c *Client) Sites(ctx context.Context, tenant string, o ...Option) iter.Seq2[contract.Site, error] {
	return pages[contract.Site](ctx, c, opListSites, nil, given("tenant", tenant), o)
}

// GetSite reads one site.
func (c *Client) GetSite(ctx context.Context, site string, o ...Option) (contract.Site, error) {
	return call[contract.Site](ctx, c, opGetSite, []string{site}, nil, nil, o)
}

// ChangeSitePolicy replaces a site's policy.
func (c *Client) ChangeSitePolicy(ctx context.Context, site string, in contract.SitePolicy, o ...Option,
) (contract.Site, error) {
	return call[contract.Site](ctx, c, opSitePolicy, []string{site}, nil, contract.ChangeSitePolicy{Policy: in}, o)
}

// CreatePool makes a group of nodes at a site.
func (c *Client) CreatePool(ctx context.Context, in contract.NewPool, o ...Option) (contract.Pool, error) {
	return call[contract.Pool](ctx, c, opCreatePool, nil, nil, in, o)
}

// Pools goes through all pools, of one tenant and at one site unless they are empty.
func (c *Client) Pools(ctx context.Context, tenant, site string, o ...Option) iter.Seq2[contract.Pool, error] {
	return pages[contract.Pool](ctx, c, opListPools, nil, given("tenant", tenant, "site", site), o)
}

// GetPool reads one pool.
func (c *Client) GetPool(ctx context.Context, pool string, o ...Option) (contract.Pool, error) {
	return call[contract.Pool](ctx, c, opGetPool, []string{pool}, nil, nil, o)
}

// ChangePoolPolicy replaces a pool's policy.
func (c *Client) ChangePoolPolicy(ctx context.Context, pool string, in contract.PoolPolicy, o ...Option,
) (contract.Pool, error) {
	return call[contract.Pool](ctx, c, opPoolPolicy, []string{pool}, nil, contract.ChangePoolPolicy{Policy: in}, o)
}

// given makes a query of the pairs that have a value.
func given(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		set(q, pairs[i], pairs[i+1])
	}
	return q
}
