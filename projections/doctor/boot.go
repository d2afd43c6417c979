package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/projections"
)

// UnservedAfter is for how long a site with machines to boot may be without network boot: another agent takes over before.
const UnservedAfter = 30 * time.Second

// unservedSites joins the sites of machines whose workflows go on, and may boot them, with who serves network boot there.
const unservedSites = `SELECT s.tenant_id, s.site_id, count(*), greatest(min(s.entered_at), max(l.until))
	FROM (SELECT w.tenant_id, w.site_id, w.pool_id, w.node_id, n.entered_at FROM doctor_workflows w JOIN doctor_nodes n USING (node_id)
		WHERE w.failed_at IS NULL AND right(w.profile_id, 4) <> '` + node.OutOfBandSuffix + `') s
	LEFT JOIN boot_leases l USING (site_id)`

// unserved finds sites where machines wait for a boot that nobody serves.
func unserved(ctx context.Context, db projections.DB, in Input) ([]Finding, error) {
	var w projections.Where
	w.Add("coalesce(l.until, 'epoch') <= {}", in.Now)
	w.Within(in.Scope, projections.Place{Tenant: "s.tenant_id", Site: "s.site_id", Pool: "s.pool_id", Node: "s.node_id"})
	rows, err := db.Query(ctx, unservedSites+w.SQL()+` GROUP BY 1, 2 HAVING greatest(min(s.entered_at), max(l.until)) <= `+
		w.Arg(in.Now.Add(-UnservedAfter))+` ORDER BY 4, 2 LIMIT `+w.Arg(maxFindings), w.Args()...)
	if err != nil {
		return nil, fmt.Errorf("findings: %w", err)
	}
	var found []Finding
	var tenant, site string
	var machines int
	var since time.Time
	_, err = pgx.ForEachRow(rows, []any{&tenant, &site, &machines, &since}, func() error {
		found = append(found, Finding{
			Code: BootUnserved, Subject: "site/" + site, Tenant: tenant, Since: since,
			Message: fmt.Sprintf("no agent has served network boot at %s for %s, and %d machines may have to boot", site,
				in.Now.Sub(since).Round(time.Second), machines),
			Details: map[string]any{"machines": machines},
		}.complete())
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("findings: %w", err)
	}
	return found, nil
}
