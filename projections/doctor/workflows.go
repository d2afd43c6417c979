package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/projections"
)

var workflows = projections.NewTable[workflowRow]("doctor_workflows", "workflow_id")

// workflowRow is a workflow that is not over, or that failed.
type workflowRow struct {
	Workflow     string         `json:"workflow_id"`
	Tenant       string         `json:"tenant_id"`
	Site         string         `json:"site_id"`
	Pool         string         `json:"pool_id"`
	Node         string         `json:"node_id"`
	Profile      string         `json:"profile_id"`
	Step         string         `json:"step_id"`
	Deadline     *time.Time     `json:"deadline"`
	FailedAt     *time.Time     `json:"failed_at"`
	ErrorCode    string         `json:"error_code"`
	ErrorMessage string         `json:"error_message"`
	Position     event.Position `json:"position"`
}

// with is the row after an event; nil once nothing is left to find. An event that the row holds already changes nothing.
func (r *workflowRow) with(e event.Recorded, known workflow.Event) *workflowRow {
	if created, ok := known.(workflow.Created); ok && r == nil {
		return &workflowRow{
			Workflow: e.Stream.ID(), Tenant: created.Tenant.String(), Site: created.Site.String(), Pool: created.Pool.String(),
			Node: created.Node.String(), Profile: projections.Text(created.Profile), Position: e.Position,
		}
	}
	if r == nil || e.Position <= r.Position {
		return r
	}
	row := *r
	row.Position = e.Position
	switch known := known.(type) {
	case workflow.StepStarted:
		deadline := known.Deadline
		row.Step, row.Deadline = projections.Text(known.Step), &deadline
	case workflow.StepDone, workflow.StepFaulted, workflow.StepRetries, workflow.StepLeft:
		row.Step, row.Deadline = "", nil
	case workflow.RetriedRun:
		row.FailedAt, row.ErrorCode, row.ErrorMessage = nil, "", ""
	case workflow.Ended:
		if known.Status != workflow.Failed {
			return nil
		}
		at := known.At
		row.Step, row.Deadline, row.FailedAt = "", nil, &at
		if known.Error != nil {
			row.ErrorCode, row.ErrorMessage = projections.Text(known.Error.Code), projections.Text(known.Error.Message)
		}
	}
	return &row
}

// StuckAfter is how long a step may be past its deadline before its workflow is stuck: the engine fails an overdue step as
// soon as it looks, so nobody is looking.
const StuckAfter = 5 * time.Minute

// failedFor is how long a failed workflow is told of.
const failedFor = 24 * time.Hour

func stuck(ctx context.Context, db projections.DB, in Input) ([]Finding, error) {
	var w projections.Where
	w.Add("deadline <= {}", in.Now.Add(-StuckAfter))
	w.Within(in.Scope, place)
	return runs(ctx, db, w, "deadline", func(r workflowRow) Finding {
		return Finding{
			Code: WorkflowsStuck, Since: *r.Deadline,
			Message: fmt.Sprintf("step %s of %s is %s past its deadline", r.Step, r.Profile, in.Now.Sub(*r.Deadline).Round(time.Second)),
			Details: map[string]any{"stepId": r.Step, "profileId": r.Profile},
		}
	})
}

func failedWorkflows(ctx context.Context, db projections.DB, in Input) ([]Finding, error) {
	var w projections.Where
	w.Add("failed_at > {}", in.Now.Add(-failedFor))
	w.Within(in.Scope, place)
	return runs(ctx, db, w, "failed_at", func(r workflowRow) Finding {
		return Finding{
			Code: WorkflowsFailed, Since: *r.FailedAt, Message: fmt.Sprintf("%s failed: %s", r.Profile, r.ErrorMessage),
			Details: map[string]any{"errorCode": r.ErrorCode, "profileId": r.Profile},
		}
	})
}

// runs makes a finding of each workflow that the conditions leave, in the order of a time.
func runs(ctx context.Context, db projections.DB, w projections.Where, since string, finding func(workflowRow) Finding,
) ([]Finding, error) {
	sql := `SELECT to_json(t) FROM doctor_workflows t` + w.SQL() + ` ORDER BY ` + since + `, workflow_id LIMIT ` + w.Arg(maxFindings)
	rows, err := db.Query(ctx, sql, w.Args()...)
	if err != nil {
		return nil, fmt.Errorf("findings: %w", err)
	}
	var found []Finding
	var r workflowRow
	_, err = pgx.ForEachRow(rows, []any{&r}, func() error {
		f := finding(r)
		f.Subject, f.Tenant = "workflow/"+r.Workflow, r.Tenant
		f.Details["nodeId"] = r.Node
		found = append(found, f.complete())
		r = workflowRow{}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("findings: %w", err)
	}
	return found, nil
}
