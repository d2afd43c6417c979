package workflowview

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/projections"
)

// ActiveAt lists the workflows of a site's machines that are not over, or ended at a time or after it, oldest first.
func ActiveAt(ctx context.Context, db projections.DB, at id.Site, since time.Time) ([]id.Workflow, error) {
	const sql = `SELECT workflow_id FROM workflowview_workflows WHERE (status = ANY($1) OR ended_at >= $3) AND site_id = $2
		ORDER BY created_position`
	rows, err := db.Query(ctx, sql, []workflow.Status{
		workflow.Pending, workflow.Running, workflow.Paused, workflow.Failing, workflow.Cancelling,
	}, at.String(), since)
	if err != nil {
		return nil, fmt.Errorf("workflows at %s: %w", at, err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[id.Workflow])
	if err != nil {
		return nil, fmt.Errorf("workflows at %s: %w", at, err)
	}
	return found, nil
}
