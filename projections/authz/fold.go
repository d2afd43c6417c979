package authz

import (
	"time"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/site"
	"github.com/better-compute/metal/domain/tenant"
	"github.com/better-compute/metal/projections"
)

// fold changes the rows by one event. An event of a newer program is passed over.
func (f *fold) fold(e event.Recorded) {
	switch known := e.Event.(type) {
	case tenant.Event:
		f.tenant(e, known)
	case site.Event:
		f.site(e, known)
	case pool.Event:
		f.pool(e, known)
	case node.Event:
		f.node(known)
	case principal.Event:
		f.principal(e, known)
	}
}

func (f *fold) tenant(e event.Recorded, known tenant.Event) {
	switch known := known.(type) {
	case tenant.Created:
		f.tenants[e.Stream.ID()] = &tenantRow{
			Tenant: known.Tenant, Name: projections.Text(known.Name), Labels: projections.Labels(known.Labels),
			Policy: projections.JSON(known.Policy), Version: e.Version, Position: e.Position, CreatedAt: e.Meta.At, UpdatedAt: e.Meta.At,
		}
	case tenant.PolicyChanged:
		row := f.tenants[e.Stream.ID()]
		row.Policy, row.Version, row.Position, row.UpdatedAt = projections.JSON(known.Policy), e.Version, e.Position, e.Meta.At
	}
}

func (f *fold) site(e event.Recorded, known site.Event) {
	switch known := known.(type) {
	case site.Created:
		f.sites[e.Stream.ID()] = &siteRow{
			Site: known.Site, Tenant: known.Tenant,
			Name: projections.Text(known.Name), Labels: projections.Labels(known.Labels),
			Policy: projections.JSON(known.Policy), Version: e.Version, Position: e.Position, CreatedAt: e.Meta.At, UpdatedAt: e.Meta.At,
		}
	case site.PolicyChanged:
		row := f.sites[e.Stream.ID()]
		row.Policy, row.Version, row.Position, row.UpdatedAt = projections.JSON(known.Policy), e.Version, e.Position, e.Meta.At
	}
}

func (f *fold) pool(e event.Recorded, known pool.Event) {
	switch known := known.(type) {
	case pool.Created:
		f.pools[e.Stream.ID()] = &poolRow{
			Pool: known.Pool, Tenant: known.Tenant, Site: known.Site,
			Name: projections.Text(known.Name), Labels: projections.Labels(known.Labels),
			Policy: projections.JSON(known.Policy), Version: e.Version, Position: e.Position, CreatedAt: e.Meta.At, UpdatedAt: e.Meta.At,
		}
	case pool.PolicyChanged:
		row := f.pools[e.Stream.ID()]
		row.Policy, row.Version, row.Position, row.UpdatedAt = projections.JSON(known.Policy), e.Version, e.Position, e.Meta.At
	}
}

func (f *fold) node(known node.Event) {
	switch known := known.(type) {
	case node.Enrolled:
		f.nodes[known.Node.String()] = &nodeRow{
			Node: known.Node, Tenant: known.Tenant, Site: known.Site, Pool: known.Pool,
			Labels: projections.Labels(known.Labels),
		}
	case node.AgentJoined:
		f.nodes[known.Node.String()] = &nodeRow{
			Node: known.Node, Tenant: known.Tenant, Site: known.Site, Pool: known.Pool,
			Labels: projections.Labels(known.Labels),
		}
	case node.EnrollmentVoided:
		f.nodes[known.Node.String()] = nil
	}
}

func (f *fold) principal(e event.Recorded, known principal.Event) {
	if created, ok := known.(principal.Created); ok {
		f.principals[e.Stream.ID()] = &principalRow{
			Principal: created.Principal, Tenant: created.Tenant, Name: projections.Text(created.Name),
			Kind: created.Kind, CreatedAt: e.Meta.At,
		}
	}
	row := f.principals[e.Stream.ID()]
	row.Version, row.Position, row.UpdatedAt = e.Version, e.Position, e.Meta.At
	switch known := known.(type) {
	case principal.Disabled:
		row.Disabled = true
	case principal.Enabled:
		row.Disabled = false
	case principal.TokenIssued:
		f.tokens[known.Token.ID.String()] = tokenOf(known, e.Meta.At)
	case principal.TokenRevoked:
		f.tokens[known.Token.String()] = nil
	case principal.Bound:
		f.bindings[known.Binding.ID.String()] = bindingOf(known, e.Meta.At)
	case principal.Unbound:
		f.bindings[known.Binding.String()] = nil
	}
}

func tokenOf(e principal.TokenIssued, at time.Time) *tokenRow {
	row := &tokenRow{
		Token: e.Token.ID, Principal: e.Principal, Hash: projections.Text(e.Token.Hash),
		Note: projections.Text(e.Token.Note), CreatedAt: at,
	}
	if e.Token.ExpiresAt != nil {
		expires := e.Token.ExpiresAt.UTC()
		row.ExpiresAt = &expires
	}
	return row
}

func bindingOf(e principal.Bound, at time.Time) *bindingRow {
	return &bindingRow{
		Binding: e.Binding.ID, Principal: e.Principal, Actions: e.Binding.Actions,
		ScopeKind: e.Binding.Scope.Kind, ScopeID: projections.Text(e.Binding.Scope.ID), CreatedAt: at,
	}
}
