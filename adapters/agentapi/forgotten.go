package agentapi

import (
	"context"
	"slices"
	"time"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/id"
)

// lostFor is how long an order is known to be in an agent's journal before a poll that does not name it tells that it is not: one
// that was sent before may arrive late.
const lostFor = 10 * time.Second

// inJournal notes since when the order is known to be in the agent's journal.
func (o *order) inJournal(now time.Time) *order {
	if o.acked.IsZero() && (o.row.Status == agentcommand.Acked || o.row.Status == agentcommand.Running) {
		o.acked = now
	}
	return o
}

// forgotten lists what this boot of an agent once had in its journal, and does not name in a poll of a time: its process was started
// anew within the boot, or it could not tell what came of it.
func (q *queue) forgotten(agent, bootID string, doing []string, asked time.Time) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var lost []string
	for command, o := range q.held[agent] {
		known := !o.acked.IsZero() && asked.Sub(o.acked) >= lostFor
		if known && o.row.BootID == bootID && !slices.Contains(doing, command) {
			lost = append(lost, command)
		}
	}
	return lost
}

// giveUp ends orders that their agent does not know of any more: nobody will finish them. They are not given to it again, as it may
// have begun them.
func (g *Gateway) giveUp(ctx context.Context, ids []string) {
	for _, text := range ids {
		c, err := id.Parse[id.AgentCommand](text)
		if err != nil {
			continue
		}
		done, err := g.Service.CancelAgentCommand(ctx, g.call(id.Agent{}), c, "its agent does not know of it any more: was it started again?")
		if err != nil {
			g.Logger.Warn("an agent command can't be given up", "agentCommandId", text, "error", err) // the next poll tries again
			continue
		}
		g.queue.handed(done.State, done.Position, g.Clock())
	}
}
