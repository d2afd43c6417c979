// Package doctor finds what needs a person: machines and workflows that failed or stand still, process managers that fail,
// read models that stopped or lag, claims that nobody will ever release.
package doctor

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/claim"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/projections"
)

// Name is the projection's name, to wait for it.
const Name = "doctor"

// New is the projection.
func New() projections.Projection {
	return projections.Projection{
		Name: Name, Version: 2, Pace: time.Second,
		Consumes: projections.Types(node.Events, claim.Events, workflow.Events),
		Tables:   []string{"doctor_nodes", "doctor_claims", "doctor_workflows"}, Apply: apply,
	}
}

var (
	nodes  = projections.NewTable[nodeRow]("doctor_nodes", "node_id")
	claims = projections.NewTable[claimRow]("doctor_claims", "stream")
)

type nodeRow struct {
	Node         string         `json:"node_id"`
	Tenant       string         `json:"tenant_id"`
	Site         string         `json:"site_id"`
	Pool         string         `json:"pool_id"`
	Name         string         `json:"name"`
	Provision    string         `json:"provision_state"`
	EnteredAt    time.Time      `json:"entered_at"`
	FailedFrom   string         `json:"failed_from"`
	FailedBy     string         `json:"failed_by"`
	ErrorCode    string         `json:"error_code"`
	ErrorMessage string         `json:"error_message"`
	Settled      bool           `json:"settled"`
	Voided       bool           `json:"voided"`
	LastAt       time.Time      `json:"last_at"`
	LastPosition event.Position `json:"last_position"`
}

type claimRow struct {
	Stream   string         `json:"stream"`
	Kind     claim.Kind     `json:"kind"`
	Scope    string         `json:"scope"`
	Value    string         `json:"value"`
	Node     string         `json:"node_id"`
	Position event.Position `json:"position"`
	At       time.Time      `json:"at"`
}

func apply(ctx context.Context, tx pgx.Tx, batch []event.Recorded) error {
	var touched, run []string
	for _, e := range batch {
		if e.Stream.Category() == node.Category {
			touched = append(touched, e.Stream.ID())
		}
		if known, ok := e.Event.(workflow.Event); ok {
			touched, run = append(touched, workflow.About(known).Node.String()), append(run, e.Stream.ID())
		}
	}
	machines, err := nodes.Load(ctx, tx, touched)
	if err != nil {
		return err
	}
	active, err := workflows.Load(ctx, tx, run)
	if err != nil {
		return err
	}
	held := projections.Rows[claimRow]{}
	for _, e := range batch {
		switch known := e.Event.(type) {
		case claim.Claimed:
			held[string(e.Stream)] = &claimRow{
				Stream: string(e.Stream), Kind: known.Key.Kind, Scope: projections.Text(known.Key.Scope),
				Value: projections.Text(known.Key.Value), Node: known.Holder.String(), Position: e.Position, At: e.At,
			}
		case claim.Released:
			held[string(e.Stream)] = nil
		case node.Event:
			machines[e.Stream.ID()] = machines[e.Stream.ID()].with(e, known)
		case workflow.Event:
			active[e.Stream.ID()] = active[e.Stream.ID()].with(e, known)
			machines[workflow.About(known).Node.String()].moves(e)
		}
	}
	if err := workflows.Save(ctx, tx, active); err != nil {
		return err
	}
	if err := nodes.Save(ctx, tx, machines); err != nil {
		return err
	}
	return claims.Save(ctx, tx, held)
}

// moves notes that the machine's workflow does something.
func (r *nodeRow) moves(e event.Recorded) {
	if r != nil && e.Position > r.LastPosition {
		r.LastAt, r.LastPosition = e.At, e.Position
	}
}

// with is the row after an event; r is nil before the first. An event that the row holds already changes nothing.
func (r *nodeRow) with(e event.Recorded, known node.Event) *nodeRow {
	if r != nil && e.Position <= r.LastPosition {
		return r
	}
	row := nodeRow{Node: e.Stream.ID(), EnteredAt: e.At}
	if r != nil {
		row = *r
	}
	row.LastAt, row.LastPosition = e.At, e.Position
	switch known := known.(type) {
	case node.Enrolled:
		row.Tenant, row.Site, row.Pool = known.Tenant.String(), known.Site.String(), known.Pool.String()
		row.Name = projections.Text(known.Name)
	case node.AgentJoined:
		row.Tenant, row.Site, row.Pool = known.Tenant.String(), known.Site.String(), known.Pool.String()
		row.Name = projections.Text(known.Name)
	case node.EnrollmentVoided:
		row.Tenant, row.Voided = known.Tenant.String(), true
	case node.Moved:
		row.move(known, e.At)
	case node.UnrescueAsked:
		row.Settled = false
	}
	return &row
}

func (r *nodeRow) move(e node.Moved, at time.Time) {
	if r.Provision != string(e.To) {
		r.EnteredAt = at
	}
	r.Provision = string(e.To)
	r.Settled = e.To == node.Rescue && e.Verb == node.VerbComplete
	r.FailedFrom, r.FailedBy, r.ErrorCode, r.ErrorMessage = "", "", "", ""
	if e.To != node.Failed {
		return
	}
	r.FailedFrom, r.FailedBy = string(e.From), string(e.Verb)
	if e.Error != nil {
		r.ErrorCode, r.ErrorMessage = projections.Text(e.Error.Code), projections.Text(e.Error.Message)
	}
}
