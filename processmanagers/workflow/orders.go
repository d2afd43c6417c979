package workflow

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/workflow"
)

// orders is what one attempt sends agent commands through. The log says that the attempt waits for one before it is asked for,
// so that a worker whose attempt is over sends nothing, and so that an abort finds what is out.
type orders struct {
	pass   *pass
	step   workflow.Step
	handed *handed
}

// Find implements steps.AgentCommands. An attempt that is not known to wait has sent nothing yet.
func (o *orders) Find(ctx context.Context, key string) (agentcommand.State, error) {
	now := o.pass.w.Find(o.step.ID)
	if now != nil && now.State == workflow.StepRunning && now.Attempt == o.step.Attempt && id.IsZero(now.AgentCommand) {
		return agentcommand.State{}, nil
	}
	return o.pass.command(ctx, agentcommand.IDOf(key))
}

// Request implements steps.AgentCommands.
func (o *orders) Request(ctx context.Context, r agentcommand.Requested) (agentcommand.State, error) {
	if !slices.Contains(o.pass.w.Kinds, string(r.Kind)) {
		return agentcommand.State{}, fault.New(fault.InvalidConfig,
			"the workflow was created without agent commands of kind %s, which step %s sends", r.Kind, o.step.ID).
			WithDetail("path", "sends").WithDetail("kind", string(r.Kind))
	}
	if o.handed.in(r.Payload) {
		return agentcommand.State{}, fault.New(fault.InvalidConfig,
			"step %s puts a secret into an agent command; only a reference may travel", o.step.ID).WithDetail("path", "payload")
	}
	before, err := o.before(ctx)
	if err != nil {
		return agentcommand.State{}, err
	}
	if err := o.pass.wait(ctx, o.step, agentcommand.IDOf(r.Key), before); err != nil {
		return agentcommand.State{}, err
	}
	asked, at, err := o.pass.request(ctx, r)
	if err != nil {
		return agentcommand.State{}, err
	}
	return asked, o.stillWanted(ctx, asked, at)
}

// Look implements steps.Lookout. It is not in the log as what the step waits for: who looks only may be left alone.
func (o *orders) Look(ctx context.Context, r agentcommand.Requested) (agentcommand.State, error) {
	asked, _, err := o.pass.request(ctx, r)
	return asked, err
}

// End implements steps.Lookout.
func (o *orders) End(ctx context.Context, c id.AgentCommand, reason string) error {
	return o.pass.cancel(ctx, c, reason)
}

// before is the boot that the machine must come back with another than.
func (o *orders) before(ctx context.Context) (*workflow.Boot, error) {
	definition, _ := o.pass.catalog.Step(o.step.Action)
	if !o.step.Rejoin && !definition.AwaitsBoot {
		return nil, nil
	}
	if now := o.pass.w.Find(o.step.ID); now != nil && now.Before != nil {
		return now.Before, nil
	}
	if o.pass.ports.Agents == nil {
		return nil, noAgents(o.step)
	}
	session, err := o.pass.ports.Agents.OfNode(ctx, o.pass.node.ID)
	if err != nil {
		return nil, err
	}
	return bootOf(session), nil
}

// stillWanted takes an agent command back that was asked for while its workflow was aborted: what of the workflow is in the log
// before the agent command is seen here, and whoever aborts it later finds the agent command.
func (o *orders) stillWanted(ctx context.Context, asked agentcommand.State, at event.Position) error {
	if err := o.pass.readWorkflow(commands.AsOf(ctx, at), o.pass.w.Workflow); err != nil {
		return err
	}
	now := o.pass.w.Find(o.step.ID)
	if now != nil && inFlight(*now) && now.Attempt == o.step.Attempt {
		return nil
	}
	if err := o.pass.cancel(ctx, asked.AgentCommand, "the step is over"); err != nil {
		return err
	}
	return fault.New(fault.Conflict, "step %s is over", o.step.ID)
}

// cancelCommand ends the agent command that a step waits for. What an agent step sends is known by its key, also where the
// log does not say yet that it was sent.
func (p *pass) cancelCommand(ctx context.Context, step workflow.Step, reason string) error {
	out := step.AgentCommand
	if id.IsZero(out) {
		if step.RunsOn == workflow.ControlPlane {
			return nil
		}
		out = agentcommand.IDOf(p.w.Key(step))
	}
	return p.cancel(ctx, out, reason)
}

// jsonOf is a result as it is stored.
func jsonOf(result any) (json.RawMessage, error) {
	if result == nil {
		return nil, nil
	}
	raw, err := json.Marshal(result)
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidConfig, "the step's result is not JSON").WithDetail("path", "result")
	}
	return raw, nil
}
