// Package workflowview is workflows as callers see them: one row per workflow, and one for each of its steps, so that an event
// writes little.
package workflowview

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/projections"
)

// Name is the projection's name, to wait for it.
const Name = "workflowview"

// New is the projection.
func New() projections.Projection {
	return projections.Projection{
		Name: Name, Version: 2, Pace: 200 * time.Millisecond, Consumes: projections.Types(workflow.Events),
		Tables: []string{"workflowview_workflows", "workflowview_steps"}, Apply: apply,
	}
}

var workflows = projections.NewTable[row]("workflowview_workflows", "workflow_id")

type row struct {
	Workflow  string         `json:"workflow_id"`
	Tenant    string         `json:"tenant_id"`
	Site      string         `json:"site_id"`
	Pool      string         `json:"pool_id"`
	Node      string         `json:"node_id"`
	Profile   string         `json:"profile_id"`
	Of        int            `json:"profile_version"`
	Status    string         `json:"status"`
	Active    bool           `json:"active"`
	Deadline  *time.Time     `json:"deadline"`
	EndedAt   *time.Time     `json:"ended_at"`
	Created   event.Position `json:"created_position"`
	Version   event.Version  `json:"version"`
	Position  event.Position `json:"position"`
	UpdatedAt time.Time      `json:"updated_at"`
	State     string         `json:"state"`
	Document  string         `json:"document" once:"true"` // of the event that made the workflow

	fold workflow.State
	kept []workflow.Step // as they are in the table
}

func apply(ctx context.Context, tx pgx.Tx, batch []event.Recorded) error {
	rows, err := workflows.Load(ctx, tx, projections.Streams(batch))
	if err != nil {
		return err
	}
	if err := open(ctx, tx, rows); err != nil {
		return err
	}
	changed := projections.Rows[row]{}
	for _, e := range batch {
		key := e.Stream.ID()
		if rows[key] != nil && e.Version <= rows[key].Version {
			continue // the row holds it already
		}
		rows[key] = rows[key].with(e)
		changed[key] = rows[key]
	}
	var written stepColumns
	for key, r := range changed {
		if id.IsZero(r.fold.Workflow) { // of a stream whose first event this program does not know
			delete(changed, key)
			continue
		}
		r.close()
		written.add(r)
	}
	if err := written.write(ctx, tx); err != nil {
		return err
	}
	return workflows.Save(ctx, tx, changed)
}

func (r *row) with(e event.Recorded) *row {
	if r == nil {
		r = &row{Workflow: e.Stream.ID(), Created: e.Position}
	}
	if known, ok := e.Event.(workflow.Event); ok {
		r.fold = workflow.Evolve(r.fold, known)
	}
	if created, ok := e.Event.(workflow.Created); ok {
		r.Document = projections.Text(string(created.Document))
		r.fold.Document, r.fold.StepSpecs = nil, nil // stored once: the fold's steps hold all of what they say
	}
	r.Version, r.Position, r.UpdatedAt = e.Version, e.Position, e.Meta.At
	return r
}

// close brings the columns to the fold.
func (r *row) close() {
	s := r.fold
	r.Tenant, r.Site, r.Pool, r.Node = s.Tenant.String(), s.Site.String(), s.Pool.String(), s.Node.String()
	r.Profile, r.Of = projections.Text(s.Profile), s.Version
	r.Status, r.Active = string(s.Status), s.Status.Active()
	r.Deadline, r.EndedAt = nil, nil
	if step := s.InFlight(); step != nil && !step.Deadline.IsZero() {
		deadline := step.Deadline
		r.Deadline = &deadline
	}
	if !s.EndedAt.IsZero() {
		ended := s.EndedAt
		r.EndedAt = &ended
	}
	s.Steps = nil
	r.State = projections.JSON(s)
}
