package workflowview

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/projections"
)

// stepsOf needs the table of workflows under the alias w.
const stepsOf = `ARRAY(SELECT s.spec FROM workflowview_steps s WHERE s.workflow_id = w.workflow_id ORDER BY s.n),
	ARRAY(SELECT s.state FROM workflowview_steps s WHERE s.workflow_id = w.workflow_id ORDER BY s.n)`

// assembled is the fold that rows of the two tables make.
func assembled(state string, specs, states []string) (s workflow.State, err error) {
	if err := json.Unmarshal([]byte(state), &s); err != nil {
		return s, fmt.Errorf("state of workflow: %w", err)
	}
	s.Steps = make([]workflow.Step, len(specs))
	for i := range specs {
		if err := json.Unmarshal([]byte(states[i]), &s.Steps[i]); err != nil {
			return s, fmt.Errorf("state of step %d of workflow %s: %w", i, s.Workflow, err)
		}
		s.Steps[i].StepSpec = workflow.StepSpec{}
		if err := json.Unmarshal([]byte(specs[i]), &s.Steps[i].StepSpec); err != nil {
			return s, fmt.Errorf("step %d of workflow %s: %w", i, s.Workflow, err)
		}
	}
	return s, nil
}

// open folds the rows that were read from the table; of those that are remembered the fold is.
func open(ctx context.Context, tx pgx.Tx, rows projections.Rows[row]) error {
	var asked []string
	for key, r := range rows {
		if r != nil && r.fold.Status == "" {
			asked = append(asked, key)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	const sql = `SELECT w.workflow_id, w.state, ` + stepsOf + ` FROM workflowview_workflows w WHERE w.workflow_id = ANY($1)`
	found, err := tx.Query(ctx, sql, asked)
	if err != nil {
		return fmt.Errorf("read workflows: %w", err)
	}
	var key, state string
	var specs, states []string
	_, err = pgx.ForEachRow(found, []any{&key, &state, &specs, &states}, func() (err error) {
		r := rows[key]
		r.fold, err = assembled(state, specs, states)
		r.kept = r.fold.Steps
		return err
	})
	if err != nil {
		return fmt.Errorf("read workflows: %w", err)
	}
	return nil
}

// stepColumns is the steps that a batch has made and those that it has changed, as unnest takes them.
type stepColumns struct{ made, changed stepRows }

type stepRows struct {
	workflow    []string
	n           []int32
	spec, state []string
}

func (c *stepColumns) add(r *row) {
	for i, step := range r.fold.Steps {
		made := i >= len(r.kept)
		if !made && reflect.DeepEqual(step, r.kept[i]) {
			continue
		}
		spec := step.StepSpec
		step.StepSpec = workflow.StepSpec{}
		state := projections.JSON(step)
		if made {
			c.made.add(r.Workflow, i, projections.JSON(spec), state)
		} else {
			c.changed.add(r.Workflow, i, "", state)
		}
	}
	r.kept = slices.Clone(r.fold.Steps)
}

func (r *stepRows) add(workflow string, n int, spec, state string) {
	r.workflow, r.n = append(r.workflow, workflow), append(r.n, int32(n))
	r.spec, r.state = append(r.spec, spec), append(r.state, state)
}

func (c *stepColumns) write(ctx context.Context, tx pgx.Tx) error {
	if m := c.made; len(m.n) > 0 {
		const sql = `INSERT INTO workflowview_steps (workflow_id, n, spec, state)
			SELECT * FROM unnest($1::text[], $2::int4[], $3::text[], $4::text[])`
		if _, err := tx.Exec(ctx, sql, m.workflow, m.n, m.spec, m.state); err != nil {
			return fmt.Errorf("write steps: %w", err)
		}
	}
	if m := c.changed; len(m.n) > 0 {
		const sql = `UPDATE workflowview_steps s SET state = u.state
			FROM unnest($1::text[], $2::int4[], $3::text[]) AS u (workflow_id, n, state)
			WHERE s.workflow_id = u.workflow_id AND s.n = u.n`
		if _, err := tx.Exec(ctx, sql, m.workflow, m.n, m.state); err != nil {
			return fmt.Errorf("write steps: %w", err)
		}
	}
	return nil
}
