package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/claim"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/projections"
)

// OrphanedClaim is a claim that its holder will never release.
type OrphanedClaim struct {
	Key      claim.Key
	Holder   id.Node
	Position event.Position // of the claim
	At       time.Time      // when the log took it
	Tenant   string         // of the holder; empty where it never appeared
	Reason   string         // why it is an orphan
}

// orphans joins every claim with its holder. A holder that never appeared, was voided or is retired orphans it, once
// neither has changed since a time.
const orphans = `SELECT * FROM (
		SELECT c.kind, c.scope, c.value, c.node_id, c.position, greatest(c.at, n.last_at) AS at,
			coalesce(n.tenant_id, '') AS tenant_id, coalesce(nullif(n.site_id, ''), c.scope) AS site_id,
			coalesce(n.pool_id, '') AS pool_id,
			CASE WHEN n.node_id IS NULL THEN 'never appeared' WHEN n.voided THEN 'was never enrolled'
				ELSE 'is retired' END AS reason
		FROM doctor_claims c LEFT JOIN doctor_nodes n USING (node_id)
		WHERE n.node_id IS NULL OR n.voided OR n.provision_state = 'retired') o`

// OrphanedClaims lists the orphans of before a time, oldest first, at most 1,000: what the sweep releases.
func OrphanedClaims(ctx context.Context, db projections.DB, before time.Time) ([]OrphanedClaim, error) {
	return orphansWithin(ctx, db, projections.Everything, before)
}

func orphansWithin(
	ctx context.Context, db projections.DB, s projections.Scope, before time.Time,
) ([]OrphanedClaim, error) {
	var w projections.Where
	w.Add("at <= {}", before)
	w.Within(s, place)
	rows, err := db.Query(ctx, orphans+w.SQL()+` ORDER BY at, position LIMIT `+w.Arg(maxFindings), w.Args()...)
	if err != nil {
		return nil, fmt.Errorf("orphaned claims: %w", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c OrphanedClaim, err error) {
		var site, pool string
		err = row.Scan(&c.Key.Kind, &c.Key.Scope, &c.Key.Value, &c.Holder, &c.Position, &c.At,
			&c.Tenant, &site, &pool, &c.Reason)
		c.At = c.At.UTC()
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("orphaned claims: %w", err)
	}
	return found, nil
}

func orphaned(ctx context.Context, db projections.DB, in Input) ([]Finding, error) {
	claims, err := orphansWithin(ctx, db, in.Scope, in.Now.Add(-in.Grace))
	if err != nil {
		return nil, err
	}
	found := make([]Finding, len(claims))
	for i, c := range claims {
		found[i] = Finding{
			Code: ClaimsOrphaned, Subject: "claim/" + c.Key.String(), Tenant: c.Tenant, Since: c.At,
			Message: fmt.Sprintf("%s is held by %s, which %s", c.Key, c.Holder, c.Reason),
			Details: map[string]any{"holder": c.Holder.String(), "position": c.Position},
		}.complete()
	}
	return found, nil
}
