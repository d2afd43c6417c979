package steps

import (
	"context"
	"slices"
	"time"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

// quiet is how long the agent of a machine that has an order may say nothing before its BMC is asked: longer than signs of life
// are apart that are written down.
const quiet = 45 * time.Second

// lookWithin bounds one look at the power: a BMC that does not answer by then tells nothing.
const lookWithin = time.Minute

// reasonOff is why an order ended whose machine lost its power.
const reasonOff = "machine-off"

// gone ends an order whose machine has no power any more: the boot of the agent that has it is over, and no other boot is given
// it. A machine that is on may have lost its network only, and its agent work on: it is waited for. Nil: wait.
func (c *Context) gone(ctx context.Context, s agentcommand.State) error {
	if !c.mayBeGone(s) {
		return nil
	}
	session, err := c.session(ctx)
	if err != nil {
		return err
	}
	if session.Silent < quiet || s.BootID != "" && s.BootID != session.BootID {
		return nil
	}
	power, err := c.lookAtPower(ctx)
	if err != nil || power != node.PowerOff {
		return err
	}
	if err := c.observe(ctx, power); err != nil {
		return err
	}
	const why = "the machine has lost its power: the boot of its agent is over"
	if err := c.Ports.Lookout.End(ctx, s.AgentCommand, why); err != nil {
		return err
	}
	return fault.New(fault.DriverError, "%s was not finished: %s", s.Kind, why).
		WithDetail("agentCommandId", s.AgentCommand.String()).WithDetail("reason", reasonOff).
		WithRemedy("find out who switched it off; then recover the machine, or retry the workflow")
}

// mayBeGone leaves out what no BMC can tell about, steps that take the machine down themselves, and those that have just begun.
func (c *Context) mayBeGone(s agentcommand.State) bool {
	return s.Role != agentcommand.RoleSite && !c.Step.Rejoin && c.Now.Sub(c.Step.StartedAt) >= quiet &&
		c.Node.BMC != nil && c.Ports.Agents != nil && c.Ports.Lookout != nil &&
		slices.Contains(c.Workflow.Kinds, string(agentcommand.DriverInvoke))
}

// lookAtPower asks the BMC, once in each of the growing pauses. Unknown: it has not answered, or can't tell.
func (c *Context) lookAtPower(ctx context.Context) (node.Power, error) {
	name, _ := c.look()
	key := c.CommandKey("power-" + name)
	s, err := c.Ports.Commands.Find(ctx, key)
	if err == nil && !s.Exists() {
		s, err = c.askPower(ctx, key)
	}
	if err != nil || s.Status != agentcommand.Succeeded {
		return "", err
	}
	told, _ := decodeResult[agentcommand.Invoked](string(s.Kind), s.Result) // what can't be read tells nothing
	found, _ := decodeResult[observed]("power.get", told.Result)
	return found.Power, nil
}

func (c *Context) askPower(ctx context.Context, key string) (agentcommand.State, error) {
	there, err := c.Ports.Agents.SiteAgents(ctx, c.Node.Site)
	if err != nil || len(there) == 0 {
		return agentcommand.State{}, err
	}
	r, err := c.requested(key, Order{
		Kind: agentcommand.DriverInvoke, Role: agentcommand.RoleSite, Timeout: lookWithin,
		Make: func() (any, error) { return c.invocation(operation{concern: "power", verb: "get"}) },
	})
	if err != nil {
		return agentcommand.State{}, err
	}
	return c.Ports.Lookout.Look(ctx, r)
}
