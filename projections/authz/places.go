package authz

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/projections"
)

// PlaceOfNode says where a node is, also one that is retired. Errors: NOT_FOUND.
func PlaceOfNode(ctx context.Context, db projections.DB, n id.Node) (projections.Place, error) {
	return place(ctx, db, `SELECT tenant_id, site_id, pool_id, node_id FROM authz_nodes WHERE node_id = $1`, n)
}

// PlaceOfPool says where a pool is. Errors: NOT_FOUND.
func PlaceOfPool(ctx context.Context, db projections.DB, p id.Pool) (projections.Place, error) {
	return place(ctx, db, `SELECT tenant_id, site_id, pool_id, '' FROM authz_pools WHERE pool_id = $1`, p)
}

// PlaceOfSite says where a site is. Errors: NOT_FOUND.
func PlaceOfSite(ctx context.Context, db projections.DB, s id.Site) (projections.Place, error) {
	return place(ctx, db, `SELECT tenant_id, site_id, '', '' FROM authz_sites WHERE site_id = $1`, s)
}

func place(ctx context.Context, db projections.DB, sql string, of fmt.Stringer) (projections.Place, error) {
	var p projections.Place
	err := db.QueryRow(ctx, sql, of.String()).Scan(&p.Tenant, &p.Site, &p.Pool, &p.Node)
	if errors.Is(err, pgx.ErrNoRows) {
		return projections.Place{}, fault.New(fault.NotFound, "there is no %s", of)
	}
	if err != nil {
		return projections.Place{}, fmt.Errorf("where is %s: %w", of, err)
	}
	return p, nil
}

// Places says where each of the nodes is, by id; those that don't exist are missing from the answer.
func Places(ctx context.Context, db projections.DB, nodes []id.Node) (map[id.Node]projections.Place, error) {
	keys := make([]string, len(nodes))
	for i, n := range nodes {
		keys[i] = n.String()
	}
	const sql = `SELECT tenant_id, site_id, pool_id, node_id FROM authz_nodes WHERE node_id = ANY($1)`
	rows, err := db.Query(ctx, sql, keys)
	if err != nil {
		return nil, fmt.Errorf("where are nodes: %w", err)
	}
	found := make(map[id.Node]projections.Place, len(nodes))
	var p projections.Place
	_, err = pgx.ForEachRow(rows, []any{&p.Tenant, &p.Site, &p.Pool, &p.Node}, func() error {
		n, err := id.Parse[id.Node](p.Node)
		found[n] = p
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("where are nodes: %w", err)
	}
	return found, nil
}
