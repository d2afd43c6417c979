package provision

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/processmanagers/steps"
)

// powerStep carries a power action out, as it does in a workflow.
const powerStep = "power.setPower"

// power carries out the power action that was asked for: the step power.setPower without a workflow. Its agent command is
// named by the request, so that it is sent once; what was observed afterwards ends the request.
func (p *Provision) power(ctx context.Context, n node.State) (again time.Duration, more bool, err error) {
	left := n.PowerNotAfter.Sub(p.clock())
	if left <= 0 {
		return 0, true, p.powerOver(ctx, n, fault.New(fault.Timeout, "no answer within the time that a power action has"))
	}
	definition, known := p.catalog.Step(powerStep)
	if !known || definition.Run == nil {
		return 0, true, p.powerOver(ctx, n, fault.New(fault.InvalidConfig, "this program has no step %s", powerStep))
	}
	c, err := p.powerContext(n, definition)
	if err != nil {
		return 0, false, err
	}
	if err := p.cancelPower(ctx, n.PowerReplaced, "a newer power action was asked for"); err != nil {
		return 0, false, err
	}
	running, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	_, err = definition.Run(running, c)
	pause, waits := steps.IsNotReady(err)
	switch {
	case ctx.Err() != nil:
		return 0, false, ctx.Err()
	case waits:
		return max(min(max(pause, 10*time.Second), left), time.Millisecond), false, nil
	case fault.CodeOf(err) == fault.Unavailable:
		return 0, false, err
	case err != nil:
		return 0, true, p.powerOver(ctx, n, err)
	}
	now, _, err := p.service.Node(ctx, n.ID)
	if err == nil && now.PowerAction != "" && now.PowerKey == n.PowerKey {
		return 0, true, p.powerOver(ctx, n, fault.New(fault.DriverError, "the driver did not tell the machine's power"))
	}
	return 0, true, err
}

func (p *Provision) powerContext(n node.State, definition steps.Step) (*steps.Context, error) {
	with, err := json.Marshal(map[string]string{"action": string(n.PowerAction)})
	if err != nil {
		return nil, err
	}
	ports := p.ports
	ports.Commands = orders{p}
	return &steps.Context{
		Key: n.PowerKey, Deadline: n.PowerNotAfter, Now: p.clock(), Node: n, Ports: ports, Profile: profile.Document{},
		Step: workflow.Step{
			StepSpec: workflow.StepSpec{
				ID: powerStep, Action: powerStep, RunsOn: workflow.ControlPlane, Sends: definition.Sends, With: with,
			},
			State: workflow.StepRunning, Attempt: 1, Deadline: n.PowerNotAfter,
		},
	}, nil
}

// stopPower gives a power action up that was asked for before the machine was put to other work, or was given up itself.
func (p *Provision) stopPower(ctx context.Context, n node.State) error {
	why := "the machine was put to other work"
	if n.Provision == node.Retired {
		why = "the machine was given up"
	}
	if err := p.cancelPower(ctx, append(slices.Clip(n.PowerReplaced), n.PowerKey), why); err != nil {
		return err
	}
	return p.powerOver(ctx, n, fault.New(fault.Conflict, "%s before it was done", why))
}

// cancelPower takes back what was sent of power actions. Those that were never sent need nothing.
func (p *Provision) cancelPower(ctx context.Context, keys []string, why string) error {
	for _, key := range keys {
		_, err := p.service.CancelAgentCommand(ctx, newCall(id.Workflow{}), agentcommand.IDOf(key), why)
		if err != nil && fault.CodeOf(err) != fault.NotFound {
			return err
		}
	}
	return nil
}

// powerOver records why a power action came to nothing.
func (p *Provision) powerOver(ctx context.Context, n node.State, why error) error {
	message := why.Error()
	var known *fault.Error
	if errors.As(why, &known) {
		message = known.Advised(known.Message)
	}
	_, err := p.service.FailPower(ctx, newCall(id.Workflow{}), n.ID, n.PowerKey, fault.CodeOf(why), message)
	return err
}

// explained is a refusal with the reason that its details give.
func explained(err error) string {
	var known *fault.Error
	if !errors.As(err, &known) {
		return err.Error()
	}
	if reason, ok := known.Details["reason"].(string); ok {
		return known.Advised(known.Message + ": " + reason)
	}
	return known.Advised(known.Message)
}

// orders sends agent commands that belong to no workflow.
type orders struct{ *Provision }

// Find implements steps.AgentCommands.
func (o orders) Find(ctx context.Context, key string) (agentcommand.State, error) {
	state, _, err := o.service.AgentCommand(ctx, agentcommand.IDOf(key))
	if fault.CodeOf(err) == fault.NotFound {
		return agentcommand.State{}, nil
	}
	return state, err
}

// Request implements steps.AgentCommands.
func (o orders) Request(ctx context.Context, r agentcommand.Requested) (agentcommand.State, error) {
	done, err := o.service.RequestAgentCommand(ctx, newCall(id.Workflow{}), r)
	if err != nil {
		return done.State, err
	}
	return done.State, o.stillWanted(commands.AsOf(ctx, done.Position), r)
}

// stillWanted takes a power action back that was sent while something else was asked of the machine: what of the node is in the log
// before the agent command is seen here, and whoever asks later finds the agent command.
func (o orders) stillWanted(ctx context.Context, sent agentcommand.Requested) error {
	n, _, err := o.service.Node(ctx, sent.Node)
	if err != nil || n.PowerKey == sent.Key && n.PowerAction != "" && powerWanted(n) {
		return err
	}
	if err := o.cancelPower(ctx, []string{sent.Key}, "the power action is over"); err != nil {
		return err
	}
	return fault.New(fault.Conflict, "the power action is over")
}
