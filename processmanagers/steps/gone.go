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

// Why an order ended whose machine's boot is over.
const (
	reasonOff       = "machine-off"
	reasonRestarted = "machine-restarted"
)

// gone ends an order whose machine has no power any more, or was started again: the boot of the agent that has it is over, and no
// other boot is given it. A machine that is on may have lost its network only, and its agent work on: it is waited for. Nil: wait.
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
	found, asked, err := c.lookAtPower(ctx)
	switch {
	case err != nil:
		return err
	case found.Power == node.PowerOff:
		return c.over(ctx, s, found.Power, reasonOff, "the machine has lost its power",
			"find out who switched it off; then recover the machine, or retry the workflow")
	case found.startedAfter(session, asked, c.Now):
		return c.over(ctx, s, found.Power, reasonRestarted, "the machine has restarted",
			"its console, or its BMC's log of events, may tell why; then recover the machine, or retry the workflow")
	}
	return nil
}

// over ends an order with the boot of the agent that has it.
func (c *Context) over(ctx context.Context, s agentcommand.State, power node.Power, reason, what, remedy string) error {
	if err := c.observe(ctx, power); err != nil {
		return err
	}
	why := what + ": the boot of its agent is over"
	if err := c.Ports.Lookout.End(ctx, s.AgentCommand, why); err != nil {
		return err
	}
	return fault.New(fault.DriverError, "%s was not finished: %s", s.Kind, why).
		WithDetail("agentCommandId", s.AgentCommand.String()).WithDetail("reason", reason).WithRemedy(remedy)
}

// powerReading is what a BMC tells of the power.
type powerReading struct {
	observed
	StartedAgo float64 `json:"startedAgoSeconds,omitempty"` // since when the machine runs, by the BMC's clock; zero: not told
}

// By how much what two clocks tell may be apart: controllers date to the second, and signs of life are written down now and then.
const (
	rounding = 2 * time.Second
	unheard  = time.Minute
)

// startedAfter tells whether a machine was started after its agent's session had begun, and about when the agent fell silent. Both have
// to fit: a controller that is hours out with one of its two times must not end what is well. What was asked was answered later, so
// that the start is never taken for later than it was.
func (r powerReading) startedAfter(of Session, asked, now time.Time) bool {
	ago := time.Duration(r.StartedAgo * float64(time.Second))
	if r.Power != node.PowerOn || ago <= 0 {
		return false
	}
	started, heard := asked.Add(-ago), now.Add(-of.Silent)
	return started.After(of.OpenedAt.Add(rounding)) && started.After(heard.Add(-unheard))
}

// mayBeGone leaves out what no BMC can tell about, steps that take the machine down themselves, and those that have just begun.
func (c *Context) mayBeGone(s agentcommand.State) bool {
	return s.Role != agentcommand.RoleSite && !c.Step.Rejoin && c.Now.Sub(c.Step.StartedAt) >= quiet &&
		c.Node.BMC != nil && c.Ports.Agents != nil && c.Ports.Lookout != nil &&
		slices.Contains(c.Workflow.Kinds, string(agentcommand.DriverInvoke))
}

// lookAtPower asks the BMC, once in each of the growing pauses, and tells when it was asked. Unknown: it has not answered, or can't tell.
func (c *Context) lookAtPower(ctx context.Context) (found powerReading, asked time.Time, err error) {
	name, _ := c.look()
	key := c.CommandKey("power-" + name)
	s, err := c.Ports.Commands.Find(ctx, key)
	if err == nil && !s.Exists() {
		s, err = c.askPower(ctx, key)
	}
	if err != nil || s.Status != agentcommand.Succeeded {
		return powerReading{}, time.Time{}, err
	}
	told, _ := decodeResult[agentcommand.Invoked](string(s.Kind), s.Result) // what can't be read tells nothing
	found, _ = decodeResult[powerReading]("power.get", told.Result)
	return found, s.NotAfter.Add(-lookWithin), nil // the step's deadline may have made that earlier
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
