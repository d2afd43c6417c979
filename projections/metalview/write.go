package metalview

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/projections"
)

const upsert = `INSERT INTO metalview_nodes (node_id, tenant_id, site_id, pool_id, name, labels, provision_state,
		maintenance, cordoned, created_position, created_at, version, position, updated_at, state, view)
	SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::jsonb[], $7::text[], $8::bool[],
		$9::bool[], $10::int8[], $11::timestamptz[], $12::int8[], $13::int8[], $14::timestamptz[], $15::text[], $16::text[])
	ON CONFLICT (node_id) DO UPDATE SET tenant_id = excluded.tenant_id, site_id = excluded.site_id,
		pool_id = excluded.pool_id, name = excluded.name, labels = excluded.labels,
		provision_state = excluded.provision_state, maintenance = excluded.maintenance, cordoned = excluded.cordoned,
		version = excluded.version, position = excluded.position, updated_at = excluded.updated_at,
		state = excluded.state, view = excluded.view`

// columns is a set of rows turned on its side, as unnest takes it.
type columns struct {
	node, tenant, site, pool, name, labels, provision []string
	maintenance, cordoned                             []bool
	createdPosition, version, position                []int64
	createdAt, at                                     []time.Time
	state, view                                       []string
}

// flushRows is how many rows one statement writes.
const flushRows = 1000

// Flush writes every row held, in the order of ids.
func (f *fold) Flush(ctx context.Context, tx pgx.Tx) error {
	for keys := range slices.Chunk(slices.Sorted(maps.Keys(f.rows)), flushRows) {
		if err := f.write(ctx, tx, keys); err != nil {
			return err
		}
	}
	clear(f.rows)
	return nil
}

// write writes the rows of some machines. An enrollment that was voided has no row.
func (f *fold) write(ctx context.Context, tx pgx.Tx, keys []string) error {
	var c columns
	var voided []string
	for _, key := range keys {
		r := f.rows[key]
		projections.Remember(ctx, table, key, r)
		switch {
		case r.state.Voided:
			voided = append(voided, key)
		case !id.IsZero(r.state.ID):
			c.add(key, r)
		}
	}
	if len(voided) > 0 {
		if _, err := tx.Exec(ctx, `DELETE FROM metalview_nodes WHERE node_id = ANY($1)`, voided); err != nil {
			return fmt.Errorf("delete voided nodes: %w", err)
		}
	}
	if len(c.node) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, upsert, c.node, c.tenant, c.site, c.pool, c.name, c.labels, c.provision,
		c.maintenance, c.cordoned, c.createdPosition, c.createdAt, c.version, c.position, c.at, c.state, c.view)
	if err != nil {
		return fmt.Errorf("write nodes: %w", err)
	}
	return nil
}

func (c *columns) add(key string, r *row) {
	s := r.state
	c.node, c.tenant = append(c.node, key), append(c.tenant, s.Tenant.String())
	c.site, c.pool = append(c.site, s.Site.String()), append(c.pool, s.Pool.String())
	c.name = append(c.name, projections.Text(s.Name))
	c.labels = append(c.labels, projections.JSON(projections.Labels(s.Labels)))
	c.provision = append(c.provision, string(s.Provision))
	c.maintenance, c.cordoned = append(c.maintenance, s.Maintenance != nil), append(c.cordoned, s.Cordon != nil)
	c.createdPosition, c.createdAt = append(c.createdPosition, int64(r.createdPosition)), append(c.createdAt, r.createdAt)
	c.version, c.position = append(c.version, int64(r.version)), append(c.position, int64(r.position))
	c.at = append(c.at, r.at)
	c.state = append(c.state, projections.JSON(s))
	c.view = append(c.view, projections.JSON(Of(s, r.version, r.position, r.at)))
}
