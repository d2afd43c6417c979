package steps

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/workflow"
)

// left ends an order in the hands of a site's agent that is not heard of any more, where another agent of the site is: that one
// is asked, and what the first may still say of it is refused. It is so for readings alone. An agent that has lost its way to the
// gateway only goes on with what it has, and what it changes late would be done to a machine that is somewhere else by then.
func (c *Context) left(ctx context.Context, s agentcommand.State) error {
	if !c.mayBeLeft(s) {
		return nil
	}
	there, err := c.Ports.Agents.SiteAgents(ctx, c.Node.Site)
	if err != nil || len(there) == 0 || slices.Contains(there, s.Agent) {
		return err
	}
	return c.Ports.Lookout.End(ctx, s.AgentCommand, agentcommand.AgentLost)
}

// mayBeLeft leaves out what nobody has yet, what changes something, steps that have just begun, and those of which an attempt is
// one order.
func (c *Context) mayBeLeft(s agentcommand.State) bool {
	return s.Role == agentcommand.RoleSite && !id.IsZero(s.Agent) && c.Now.Sub(c.Step.StartedAt) >= quiet &&
		c.Step.RunsOn == workflow.ControlPlane && c.Ports.Agents != nil && c.Ports.Lookout != nil && reads(s)
}

func reads(s agentcommand.State) bool {
	var ask agentcommand.Invoke
	return s.Kind == agentcommand.DriverInvoke && json.Unmarshal(s.Payload, &ask) == nil &&
		agentcommand.Operation{Concern: ask.Concern, Name: ask.Operation}.Reads()
}

// lostAgent reports whether an order ended because of left: it is asked for again.
func lostAgent(s agentcommand.State) bool {
	return s.Status == agentcommand.Cancelled && s.Reason == agentcommand.AgentLost
}
