// Package authz is who may do what, and where everything is: principals with their tokens and bindings; tenants,
// sites, pools and nodes with what contains them. It filters lists and feeds; a verb is decided on the state it has
// just loaded.
package authz

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/site"
	"github.com/better-compute/metal/domain/tenant"
	"github.com/better-compute/metal/projections"
)

// Name is the projection's name, to wait for it.
const Name = "authz"

// New is the projection.
func New() projections.Projection {
	return projections.Projection{
		Name: Name, Version: 2, Pace: 10 * time.Millisecond,
		Consumes: append(
			projections.Types(tenant.Events, site.Events, pool.Events, principal.Events),
			node.Enrolled{}.EventType(), node.AgentJoined{}.EventType(), node.EnrollmentVoided{}.EventType(),
		),
		Tables: []string{
			"authz_tenants", "authz_sites", "authz_pools", "authz_nodes",
			"authz_principals", "authz_tokens", "authz_bindings",
		},
		Apply: apply,
	}
}

// fold holds the rows that one batch touches.
type fold struct {
	tenants    projections.Rows[tenantRow]
	sites      projections.Rows[siteRow]
	pools      projections.Rows[poolRow]
	nodes      projections.Rows[nodeRow]
	principals projections.Rows[principalRow]
	tokens     projections.Rows[tokenRow]
	bindings   projections.Rows[bindingRow]
}

// apply folds a batch: the rows whose events may change them are read, changed in memory and written, with one
// statement each per table.
func apply(ctx context.Context, tx pgx.Tx, batch []event.Recorded) error {
	keys := map[string][]string{}
	for _, e := range batch {
		keys[e.Stream.Category()] = append(keys[e.Stream.Category()], e.Stream.ID())
	}
	f := &fold{
		nodes: projections.Rows[nodeRow]{}, tokens: projections.Rows[tokenRow]{}, bindings: projections.Rows[bindingRow]{},
	}
	var err [4]error
	f.tenants, err[0] = tenants.Load(ctx, tx, keys[tenant.Category])
	f.sites, err[1] = sites.Load(ctx, tx, keys[site.Category])
	f.pools, err[2] = pools.Load(ctx, tx, keys[pool.Category])
	f.principals, err[3] = principals.Load(ctx, tx, keys[principal.Category])
	if err := errors.Join(err[:]...); err != nil {
		return err
	}
	for _, e := range batch {
		f.fold(e)
	}
	return f.save(ctx, tx)
}

func (f *fold) save(ctx context.Context, tx pgx.Tx) error {
	for _, save := range []func() error{
		func() error { return tenants.Save(ctx, tx, f.tenants) },
		func() error { return sites.Save(ctx, tx, f.sites) },
		func() error { return pools.Save(ctx, tx, f.pools) },
		func() error { return nodes.Save(ctx, tx, f.nodes) },
		func() error { return principals.Save(ctx, tx, f.principals) },
		func() error { return tokens.Save(ctx, tx, f.tokens) },
		func() error { return bindings.Save(ctx, tx, f.bindings) },
	} {
		if err := save(); err != nil {
			return err
		}
	}
	return nil
}
