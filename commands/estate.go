package commands

import (
	"context"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/site"
	"github.com/better-compute/metal/domain/tenant"
)

// NewTenant is a tenant to be created.
type NewTenant struct {
	Name   string
	Labels map[string]string
	Policy tenant.Policy
}

// CreateTenant makes an owner of machines. Decided on the root tenant.
func (s *Service) CreateTenant(ctx context.Context, call Call, in NewTenant) (Outcome[tenant.State], error) {
	if err := s.auth.Allow(call.Actor, principal.TenantsWrite, tenantResource(tenant.Root)); err != nil {
		return Outcome[tenant.State]{}, err
	}
	if err := checkNamed(in.Name, in.Labels); err != nil {
		return Outcome[tenant.State]{}, err
	}
	t := id.Of[id.Tenant](call.Command)
	return s.onTenant(ctx, call, t, tenant.Create{Facts: tenant.Created{
		Tenant: t, Name: in.Name, Labels: in.Labels, Policy: in.Policy,
	}})
}

// ChangeTenantPolicy replaces a tenant's policy.
func (s *Service) ChangeTenantPolicy(ctx context.Context, call Call, t id.Tenant, p tenant.Policy,
) (Outcome[tenant.State], error) {
	return s.onTenant(ctx, call, t, tenant.ChangePolicy{Policy: p})
}

func (s *Service) onTenant(ctx context.Context, call Call, t id.Tenant, c tenant.Command) (Outcome[tenant.State], error) {
	return handle(ctx, s, call, request[tenant.State, tenant.Command, tenant.Event]{
		decider: tenant.Decider,
		stream:  tenant.StreamOf(t),
		authorize: func(state tenant.State) error {
			if _, creating := c.(tenant.Create); creating {
				return nil // decided on the root tenant
			}
			if !state.Exists() {
				return fault.New(fault.NotFound, "there is no tenant %s", t)
			}
			return s.auth.Allow(call.Actor, principal.TenantsWrite, tenantResource(state.ID))
		},
		decide: func(tenant.State, event.Version) (tenant.Command, error) { return c, nil },
		meta: func(state tenant.State) event.Meta {
			return event.Meta{Tenant: state.ID.String(), Subject: "tenant/" + state.ID.String()}
		},
	})
}

func tenantResource(t id.Tenant) Resource { return Resource{Kind: OnTenant, Tenant: t} }

// existingTenant refuses a tenant that is not there.
func (s *Service) existingTenant(ctx context.Context, t id.Tenant) error {
	l, err := load(ctx, s, tenant.Decider, tenant.StreamOf(t))
	if err == nil && !l.state.Exists() {
		return fault.New(fault.NotFound, "there is no tenant %s", t)
	}
	return err
}

// NewSite is a site to be created.
type NewSite struct {
	Tenant id.Tenant
	Name   string
	Labels map[string]string
	Policy site.Policy
}

// CreateSite makes a place with a network of BMCs. Decided on the tenant.
func (s *Service) CreateSite(ctx context.Context, call Call, in NewSite) (Outcome[site.State], error) {
	if err := s.auth.Allow(call.Actor, principal.SitesWrite, tenantResource(in.Tenant)); err != nil {
		return Outcome[site.State]{}, err
	}
	if err := s.existingTenant(ctx, in.Tenant); err != nil {
		return Outcome[site.State]{}, err
	}
	if err := checkNamed(in.Name, in.Labels); err != nil {
		return Outcome[site.State]{}, err
	}
	at := id.Of[id.Site](call.Command)
	return s.onSite(ctx, call, at, site.Create{Facts: site.Created{
		Site: at, Tenant: in.Tenant, Name: in.Name, Labels: in.Labels, Policy: in.Policy,
	}})
}

// ChangeSitePolicy replaces a site's policy. Nodes that are enrolled already stay.
func (s *Service) ChangeSitePolicy(ctx context.Context, call Call, at id.Site, p site.Policy) (Outcome[site.State], error) {
	return s.onSite(ctx, call, at, site.ChangePolicy{Policy: p})
}

func (s *Service) onSite(ctx context.Context, call Call, at id.Site, c site.Command) (Outcome[site.State], error) {
	return handle(ctx, s, call, request[site.State, site.Command, site.Event]{
		decider: site.Decider,
		stream:  site.StreamOf(at),
		authorize: func(state site.State) error {
			if _, creating := c.(site.Create); creating {
				return nil // decided on the tenant
			}
			if !state.Exists() {
				return fault.New(fault.NotFound, "there is no site %s", at)
			}
			return s.auth.Allow(call.Actor, principal.SitesWrite, siteResource(state))
		},
		decide: func(site.State, event.Version) (site.Command, error) { return c, nil },
		meta: func(state site.State) event.Meta {
			return event.Meta{Tenant: state.Tenant.String(), Subject: "site/" + state.ID.String()}
		},
	})
}

func siteResource(state site.State) Resource {
	return Resource{Kind: OnSite, Tenant: state.Tenant, Site: state.ID}
}

// NewPool is a pool to be created.
type NewPool struct {
	Tenant id.Tenant
	Site   id.Site
	Name   string
	Labels map[string]string
	Policy pool.Policy // an empty Agent is required
}

// CreatePool makes a group of nodes at a site. Decided on the tenant; the site must be the tenant's own or the root
// tenant's.
func (s *Service) CreatePool(ctx context.Context, call Call, in NewPool) (Outcome[pool.State], error) {
	if err := s.auth.Allow(call.Actor, principal.PoolsWrite, tenantResource(in.Tenant)); err != nil {
		return Outcome[pool.State]{}, err
	}
	if err := s.existingTenant(ctx, in.Tenant); err != nil {
		return Outcome[pool.State]{}, err
	}
	if err := checkNamed(in.Name, in.Labels); err != nil {
		return Outcome[pool.State]{}, err
	}
	at, err := load(ctx, s, site.Decider, site.StreamOf(in.Site))
	if err != nil {
		return Outcome[pool.State]{}, err
	}
	if owner := at.state.Tenant; !at.state.Exists() || owner != in.Tenant && owner != tenant.Root {
		return Outcome[pool.State]{}, fault.New(fault.NotFound, "there is no site %s", in.Site)
	}
	if in.Policy.Agent == "" {
		in.Policy.Agent = pool.AgentRequired
	}
	p := id.Of[id.Pool](call.Command)
	return s.onPool(ctx, call, p, pool.Create{Facts: pool.Created{
		Pool: p, Tenant: in.Tenant, Site: in.Site, Name: in.Name, Labels: in.Labels, Policy: in.Policy,
	}})
}

// ChangePoolPolicy replaces a pool's policy.
func (s *Service) ChangePoolPolicy(ctx context.Context, call Call, p id.Pool, policy pool.Policy,
) (Outcome[pool.State], error) {
	if policy.Agent == "" {
		policy.Agent = pool.AgentRequired
	}
	return s.onPool(ctx, call, p, pool.ChangePolicy{Policy: policy})
}

func (s *Service) onPool(ctx context.Context, call Call, p id.Pool, c pool.Command) (Outcome[pool.State], error) {
	return handle(ctx, s, call, request[pool.State, pool.Command, pool.Event]{
		decider: pool.Decider,
		stream:  pool.StreamOf(p),
		authorize: func(state pool.State) error {
			if _, creating := c.(pool.Create); creating {
				return nil // decided on the tenant
			}
			if !state.Exists() {
				return fault.New(fault.NotFound, "there is no pool %s", p)
			}
			return s.auth.Allow(call.Actor, principal.PoolsWrite, poolResource(state))
		},
		decide: func(pool.State, event.Version) (pool.Command, error) { return c, nil },
		meta: func(state pool.State) event.Meta {
			return event.Meta{Tenant: state.Tenant.String(), Subject: "pool/" + state.ID.String()}
		},
	})
}

func poolResource(state pool.State) Resource {
	return Resource{Kind: OnPool, Tenant: state.Tenant, Site: state.Site, Pool: state.ID}
}

func checkNamed(name string, labels map[string]string) error {
	var wrong issues
	wrong.name("body.name", name)
	wrong.labels("body.labels", labels)
	return wrong.err()
}
