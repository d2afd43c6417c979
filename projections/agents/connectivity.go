package agents

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/projections"
)

// OfNode is the agent of a machine, and whether it is there.
type OfNode struct {
	AgentID     string
	Role        agent.Role // of the newest session; before any, as joined
	Connected   bool       // heard of within Alive, and not gone on purpose
	LastContact *time.Time
}

// Connectivity tells of the agents of machines, in one query. Machines whose agents never joined, or were revoked, are left
// out: nothing is known of them.
func Connectivity(ctx context.Context, db projections.DB, nodes ...string) (map[string]OfNode, error) {
	const sql = `SELECT a.node_id, a.agent_id, coalesce(p.role, a.role), ` + present + `, p.last_contact
		FROM agents a LEFT JOIN agent_presence p USING (agent_id)
		WHERE a.node_id = ANY($1) AND a.revoked = '' ORDER BY ` + present + `, p.last_contact NULLS FIRST`
	rows, err := db.Query(ctx, sql, nodes)
	if err != nil {
		return nil, fmt.Errorf("agents of machines: %w", err)
	}
	found := map[string]OfNode{}
	var of string
	var a OfNode
	_, err = pgx.ForEachRow(rows, []any{&of, &a.AgentID, &a.Role, &a.Connected, &a.LastContact}, func() error {
		found[of] = a // the last is the one that is there, or that was last
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("agents of machines: %w", err)
	}
	return found, nil
}
