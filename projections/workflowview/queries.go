package workflowview

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/projections"
)

// Workflow is one workflow as stored.
type Workflow struct {
	workflow.State
	Place     projections.Place
	Version   event.Version
	Position  event.Position
	UpdatedAt time.Time
	created   event.Position
}

const columns = `workflow_id, tenant_id, site_id, pool_id, node_id, created_position, version, position, updated_at,
	state, document, ` + stepsOf

func scan(rows pgx.Row) (w Workflow, err error) {
	var key, state, document string
	var specs, states []string
	var created, version, position int64
	p := &w.Place
	err = rows.Scan(&key, &p.Tenant, &p.Site, &p.Pool, &p.Node, &created, &version, &position, &w.UpdatedAt, &state, &document,
		&specs, &states)
	if err != nil {
		return w, err
	}
	if w.State, err = assembled(state, specs, states); err != nil {
		return w, err
	}
	w.Document = json.RawMessage(document)
	w.created = event.Position(created)
	w.Version, w.Position = event.Version(version), event.Position(position)
	return w, nil
}

// Get reads one workflow. Errors: NOT_FOUND.
func Get(ctx context.Context, db projections.DB, w id.Workflow) (Workflow, error) {
	found, err := scan(db.QueryRow(ctx, `SELECT `+columns+` FROM workflowview_workflows w WHERE workflow_id = $1`, w.String()))
	if errors.Is(err, pgx.ErrNoRows) {
		return Workflow{}, fault.New(fault.NotFound, "there is no workflow %s", w)
	}
	if err != nil {
		return Workflow{}, fmt.Errorf("read workflow %s: %w", w, err)
	}
	return found, nil
}

// Filter bounds a list. Every field that is set must match.
type Filter struct {
	Scope    projections.Scope
	Tenant   id.Tenant
	Node     id.Node
	Statuses []workflow.Status
	Profile  string
}

var list = projections.List[Workflow]{
	Name: "workflows", From: `SELECT ` + columns + ` FROM workflowview_workflows w`, Key: "created_position",
	Valid: projections.ValidPosition, KeyOf: func(w Workflow) string { return w.created.String() },
	Scan: func(r pgx.CollectableRow) (Workflow, error) { return scan(r) },
}

// List reads one page, newest first, and the cursor of the next, empty after the last. Errors: INVALID_INPUT for a bad limit
// or cursor.
func List(ctx context.Context, db projections.DB, f Filter, p projections.Page) ([]Workflow, string, error) {
	return list.Page(ctx, db, f.where(), p)
}

func (f Filter) where() *projections.Where {
	w := &projections.Where{}
	w.Within(f.Scope, projections.Place{Tenant: "tenant_id", Site: "site_id", Pool: "pool_id", Node: "node_id"})
	if !id.IsZero(f.Tenant) {
		w.Add("tenant_id = {}", f.Tenant.String())
	}
	if !id.IsZero(f.Node) {
		w.Add("node_id = {}", f.Node.String())
	}
	if len(f.Statuses) > 0 {
		w.Add("status = ANY({})", f.Statuses)
	}
	if f.Profile != "" {
		w.Add("profile_id = {}", f.Profile)
	}
	return w
}
