package httpapi

import (
	"context"
	"net/http"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/site"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/agents"
	"github.com/better-compute/metal/projections/authz"
)

func (a *API) siteOperations() {
	operate(a, document{
		id: "create-site", method: http.MethodPost, path: "/v1/sites", tag: "sites", status: http.StatusCreated,
		summary: "Create a place with a network of BMCs", gives: oneOf[contract.Site](), late: true,
	}, a.createSite)
	operate(a, document{
		id: "list-sites", method: http.MethodGet, path: "/v1/sites", tag: "sites",
		summary: "List sites, newest first", gives: pageOf[contract.Site](),
	}, a.listSites)
	operate(a, document{
		id: "get-site", method: http.MethodGet, path: "/v1/sites/{id}", tag: "sites",
		summary: "Read a site", gives: oneOf[contract.Site](),
	}, a.getSite)
	operate(a, document{
		id: "change-site-policy", method: http.MethodPut, path: "/v1/sites/{id}/policy", tag: "sites",
		summary: "Replace a site's policy; machines that are enrolled stay", gives: oneOf[contract.Site](), late: true,
	}, a.changeSitePolicy)
}

func (a *API) createSite(ctx context.Context, in *creates[contract.NewSite]) (*answer, error) {
	t, err := idAt[id.Tenant]("body.tenantId", in.Body.Tenant)
	if err != nil {
		return nil, err
	}
	done, err := a.service.CreateSite(ctx, creation(ctx), commands.NewSite{
		Tenant: t, Name: in.Body.Name, Labels: in.Body.Labels, Policy: site.Policy(in.Body.Policy),
	})
	if err != nil {
		return nil, err
	}
	out, err := a.siteDone(ctx, done)
	return located(out, "/v1/sites/"+done.State.ID.String(), err)
}

func (a *API) changeSitePolicy(ctx context.Context, in *needs[contract.ChangeSitePolicy]) (*answer, error) {
	s, call, err := target[id.Site](ctx, in.ID, in.Matching)
	if err != nil {
		return nil, err
	}
	done, err := a.service.ChangeSitePolicy(ctx, call, s, site.Policy(in.Body.Policy))
	if err != nil {
		return nil, err
	}
	return a.siteDone(ctx, done)
}

func (a *API) siteDone(ctx context.Context, done commands.Outcome[site.State]) (*answer, error) {
	s := done.State
	return a.done(ctx, authz.Name, done.Version, done.Position, siteOf(authz.Site{
		ID: s.ID, Tenant: s.Tenant, Name: s.Name, Labels: s.Labels, Policy: s.Policy,
		Version: done.Version, Position: done.Position, UpdatedAt: done.At,
	}))
}

type listSites struct {
	Fresh
	Paging
	Tenant string `query:"tenant"`
}

func (a *API) listSites(ctx context.Context, in *listSites) (*answer, error) {
	var wrong issues
	within := around{tenant: narrow[id.Tenant](&wrong, "tenant", in.Tenant)}
	if err := wrong.err(); err != nil {
		return nil, err
	}
	return listOf(ctx, a, in.Fresh, in.Paging, func(who *Identity) ([]contract.Site, string, error) {
		found, next, err := narrowed(ctx, a, who, within, principal.SitesRead, in.Cursor == "",
			func(s projections.Scope) ([]authz.Site, string, error) {
				return authz.ListSites(ctx, a.db, s, authz.Around{Tenant: within.tenant}, in.page())
			})
		if err != nil {
			return nil, "", err
		}
		sites, err := a.withBoot(ctx, found...)
		return sites, next, err
	}, asIs[contract.Site])
}

func (a *API) getSite(ctx context.Context, in *one) (*answer, error) {
	s, err := pathID[id.Site](in.ID)
	if err != nil {
		return nil, err
	}
	return single(ctx, a, in.Fresh, func(who *Identity) (contract.Site, error) {
		found, err := authz.GetSite(ctx, a.db, who.Scope(principal.SitesRead), s)
		if err != nil {
			return contract.Site{}, err
		}
		sites, err := a.withBoot(ctx, found)
		if err != nil {
			return contract.Site{}, err
		}
		return sites[0], nil
	}, asIs[contract.Site], func(s contract.Site) event.Version { return event.Version(s.Version) })
}

func asIs[T any](v T) T { return v }

// withBoot are sites with who serves their network boot now, which is asked once for all of them.
func (a *API) withBoot(ctx context.Context, found ...authz.Site) ([]contract.Site, error) {
	out, ids := make([]contract.Site, len(found)), make([]string, len(found))
	for i, s := range found {
		out[i], ids[i] = siteOf(s), s.ID.String()
	}
	if len(ids) == 0 {
		return out, nil
	}
	holders, err := agents.BootHolders(ctx, a.db, ids...)
	if err != nil {
		return nil, err
	}
	for i := range out {
		if h, held := holders[out[i].ID]; held {
			out[i].Boot = &contract.SiteBoot{Agent: h.AgentID, Until: h.Until.UTC()}
		}
	}
	return out, nil
}

func siteOf(s authz.Site) contract.Site {
	return contract.Site{
		ID: s.ID.String(), Tenant: s.Tenant.String(), Name: s.Name, Labels: s.Labels, Policy: contract.SitePolicy(s.Policy),
		Version: uint64(s.Version), Position: uint64(s.Position), UpdatedAt: s.UpdatedAt.UTC(),
	}
}
