// Package workflowview is workflows as callers see them: one row per workflow, with its steps.
package workflowview

import (
	"context"
	"encoding/json"
	"fmt"
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
		Name: Name, Version: 1, Pace: 30 * time.Millisecond, Consumes: projections.Types(workflow.Events),
		Tables: []string{"workflowview_workflows"}, Apply: apply,
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
}

func apply(ctx context.Context, tx pgx.Tx, batch []event.Recorded) error {
	var touched []string
	for _, e := range batch {
		touched = append(touched, e.Stream.ID())
	}
	rows, err := workflows.Load(ctx, tx, touched)
	if err != nil {
		return err
	}
	folds := map[string]*workflow.State{}
	for _, e := range batch {
		key := e.Stream.ID()
		if rows[key] != nil && e.Version <= rows[key].Version {
			continue // the row holds it already
		}
		if folds[key] == nil {
			if folds[key], err = opened(rows[key]); err != nil {
				return fmt.Errorf("workflow %s: %w", key, err)
			}
		}
		rows[key] = rows[key].with(folds[key], e)
	}
	for key, state := range folds {
		if id.IsZero(state.Workflow) { // of a stream whose first event this program does not know
			delete(rows, key)
			continue
		}
		rows[key].close(*state)
	}
	return workflows.Save(ctx, tx, rows)
}

func opened(r *row) (*workflow.State, error) {
	state := &workflow.State{}
	if r == nil {
		return state, nil
	}
	return state, json.Unmarshal([]byte(r.State), state)
}

func (r *row) with(state *workflow.State, e event.Recorded) *row {
	if r == nil {
		r = &row{Workflow: e.Stream.ID(), Created: e.Position}
	}
	if known, ok := e.Event.(workflow.Event); ok {
		*state = workflow.Evolve(*state, known)
	}
	if created, ok := e.Event.(workflow.Created); ok {
		r.Document = projections.Text(string(created.Document))
	}
	r.Version, r.Position, r.UpdatedAt = e.Version, e.Position, e.Meta.At
	return r
}

// close brings the columns to the state. The profile and the resolved steps are stored once: the fold's steps hold all of
// what they say.
func (r *row) close(s workflow.State) {
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
	s.Document, s.StepSpecs = nil, nil
	r.State = projections.JSON(s)
}
