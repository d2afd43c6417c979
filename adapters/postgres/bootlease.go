package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/bootlease"
	"github.com/better-compute/metal/domain/id"
)

// swapLeases writes leases that are as they were read, and tells how all of them, and those of further sites, stand after it.
// One that was written by somebody else meanwhile stays. A site without a row is there all the same, for its boot servers.
const swapLeases = `WITH wanted AS (
		SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::timestamptz[], $6::bigint[])
			AS u (site_id, agent_id, boot_id, term, until, revision)
	), written AS (
		INSERT INTO boot_leases AS l (site_id, agent_id, boot_id, term, until, revision)
		SELECT site_id, agent_id, boot_id, term, until, revision + 1 FROM wanted ORDER BY site_id
		ON CONFLICT (site_id) DO UPDATE SET agent_id = excluded.agent_id, boot_id = excluded.boot_id, term = excluded.term,
			until = excluded.until, revision = excluded.revision
		WHERE l.revision = excluded.revision - 1
		RETURNING l.*
	)
	SELECT s.site_id, coalesce(w.agent_id, l.agent_id), coalesce(w.boot_id, l.boot_id, ''), coalesce(w.term, l.term, 0),
		coalesce(w.until, l.until, 'epoch'), coalesce(w.revision, l.revision, 0),
		ARRAY(SELECT DISTINCT p.boot_url FROM agents a JOIN agent_presence p USING (agent_id)
			WHERE a.site_id = s.site_id AND a.node_id = '' AND a.revoked = '' AND p.boot_url <> '' AND p.closed = ''
				AND p.last_contact > now() - interval '90 seconds'
			ORDER BY 1)
	FROM unnest($7::text[]) AS s (site_id)
	LEFT JOIN written w USING (site_id) LEFT JOIN boot_leases l USING (site_id)`

// SwapBootLeases writes each lease if nobody has written it since it was read, by its revision, and tells how they and those of
// the sites in look stand. Errors: UNAVAILABLE.
func (p *Presence) SwapBootLeases(ctx context.Context, next []bootlease.Lease, look []id.Site) ([]bootlease.Standing, error) {
	var sites, holders, boots, all []string
	var terms, revisions []int64
	var until []time.Time
	for _, l := range next {
		sites, holders, boots = append(sites, l.Site.String()), append(holders, l.Agent.String()), append(boots, l.BootID)
		terms, revisions, until = append(terms, l.Term), append(revisions, l.Revision), append(until, l.Until)
	}
	all = append(all, sites...)
	for _, s := range look {
		all = append(all, s.String())
	}
	rows, err := p.pool.Query(ctx, swapLeases, sites, holders, boots, terms, until, revisions, all)
	if err != nil {
		return nil, Fault(err)
	}
	found, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (s bootlease.Standing, err error) {
		var holder *id.Agent
		err = r.Scan(&s.Site, &holder, &s.BootID, &s.Term, &s.Until, &s.Revision, &s.Servers)
		if holder != nil {
			s.Agent = *holder
		}
		return s, err
	})
	return found, Fault(err)
}
