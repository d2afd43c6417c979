// Package agentqueue is what each agent may claim next, and what it has: agent commands that are not over, in the order in
// which they were asked for.
package agentqueue

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/projections"
)

// Name is the projection's name, to wait for it.
const Name = "agentqueue"

// Consumes lists the events that change the queue.
var Consumes = func() []string {
	var names []string
	for _, name := range projections.Types(agentcommand.Events) {
		if name != (agentcommand.SecretFetched{}).EventType() {
			names = append(names, name)
		}
	}
	return names
}()

// New is the projection. Gateways start from it and follow the log themselves, so that nothing waits for it.
func New() projections.Projection {
	return projections.Projection{
		Name: Name, Version: 1, Pace: 500 * time.Millisecond, Consumes: Consumes,
		Tables: []string{"agentqueue_commands"}, Apply: apply,
	}
}

var commands = projections.NewTable[Row]("agentqueue_commands", "command_id")

// Row is one agent command that is not over.
type Row struct {
	Command  string              `json:"command_id"`
	Role     agentcommand.Role   `json:"role"`
	Node     string              `json:"node_id"`
	Site     string              `json:"site_id"`
	Kind     string              `json:"kind"`
	Status   agentcommand.Status `json:"status"`
	Agent    string              `json:"agent_id"` // empty: nobody has it
	BootID   string              `json:"boot_id"`
	NotAfter time.Time           `json:"not_after"`
	Position event.Position      `json:"position"` // of the request
}

// With is the row after an event; nil before the first, and once the agent command is over.
func (r *Row) With(e event.Recorded) *Row {
	known, ok := e.Event.(agentcommand.Event)
	if !ok {
		return r
	}
	if asked, ok := known.(agentcommand.Requested); ok {
		return &Row{
			Command: e.Stream.ID(), Role: asked.Role, Node: text(asked.Node), Site: text(asked.Site), Kind: string(asked.Kind),
			Status: agentcommand.Pending, NotAfter: asked.NotAfter, Position: e.Position,
		}
	}
	if r == nil {
		return nil
	}
	row := *r
	switch known := known.(type) {
	case agentcommand.HandedOut:
		row.Status, row.Agent, row.BootID = agentcommand.Dispatched, known.Agent.String(), projections.Text(known.BootID)
	case agentcommand.Progressed:
		row.Status = known.Status
	case agentcommand.Settled:
		return nil
	}
	return &row
}

// text is an id; empty where there is none.
func text[T interface {
	id.Kind
	String() string
}](v T) string {
	if id.IsZero(v) {
		return ""
	}
	return v.String()
}

func apply(ctx context.Context, tx pgx.Tx, batch []event.Recorded) error {
	return commands.Fold(ctx, tx, batch, (*Row).With)
}
