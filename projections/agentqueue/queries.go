package agentqueue

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/projections"
)

const columns = `command_id, role, node_id, site_id, kind, status, agent_id, boot_id, not_after, position`

func scan(rows pgx.Rows) ([]Row, error) {
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Row, err error) {
		err = row.Scan(&r.Command, &r.Role, &r.Node, &r.Site, &r.Kind, &r.Status, &r.Agent, &r.BootID, &r.NotAfter, &r.Position)
		return r, err
	})
}

// All is every agent command that is not over, in the order of their requests, and how far the log was read: whoever goes on
// from there with With has the queue as it is.
func All(ctx context.Context, db projections.DB) (rows []Row, at event.Position, err error) {
	// One statement, so one snapshot: rows and checkpoint belong together.
	const sql = `SELECT c.position, q.* FROM (SELECT coalesce(max(position), 0) AS position FROM checkpoints WHERE projection = $1) c
		LEFT JOIN (SELECT ` + columns + ` FROM agentqueue_commands) q ON true ORDER BY q.position`
	found, err := db.Query(ctx, sql, Name)
	if err != nil {
		return nil, 0, fmt.Errorf("agent commands: %w", err)
	}
	defer found.Close()
	for found.Next() {
		var command *string
		if found.RawValues()[1] == nil { // nothing is queued
			err = found.Scan(&at, &command, nil, nil, nil, nil, nil, nil, nil, nil, nil)
		} else {
			var r Row
			err = found.Scan(&at, &r.Command, &r.Role, &r.Node, &r.Site, &r.Kind, &r.Status, &r.Agent, &r.BootID, &r.NotAfter, &r.Position)
			rows = append(rows, r)
		}
		if err != nil {
			return nil, 0, fmt.Errorf("agent commands: %w", err)
		}
	}
	if err := found.Err(); err != nil {
		return nil, 0, fmt.Errorf("agent commands: %w", err)
	}
	return rows, at, nil
}

// Of is the agent commands of a machine that are not over, whichever agent is to carry them out, in the order of their
// requests.
func Of(ctx context.Context, db projections.DB, node string) ([]Row, error) {
	return query(ctx, db, `SELECT `+columns+` FROM agentqueue_commands WHERE node_id = $1 ORDER BY position`, node)
}

// Next is what an agent may claim next: of a site for a site's agent, of a node and role for a machine's.
func Next(ctx context.Context, db projections.DB, role agentcommand.Role, place string, limit int) ([]Row, error) {
	by := "node_id"
	if role == agentcommand.RoleSite {
		by = "site_id"
	}
	return query(ctx, db, `SELECT `+columns+` FROM agentqueue_commands WHERE `+by+` = $1 AND role = $2 AND status = $3
		ORDER BY position LIMIT $4`, place, role, agentcommand.Pending, limit)
}

func query(ctx context.Context, db projections.DB, sql string, args ...any) ([]Row, error) {
	found, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("agent commands: %w", err)
	}
	rows, err := scan(found)
	if err != nil {
		return nil, fmt.Errorf("agent commands: %w", err)
	}
	return rows, nil
}
