package workflow

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/processmanagers/steps"
)

// carryOut does what an attempt needs now: it runs a control-plane step, sends an agent step's command or looks what became
// of it. A panic of a step is its failure.
func (p *pass) carryOut(ctx context.Context, step workflow.Step, handed *handed) (result any, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			p.logger.Error("a step panicked", "component", "workflow", "workflow", p.w.Workflow, "step", step.ID,
				"panic", handed.scrub(fmt.Sprint(panicked)), "stack", string(debug.Stack()))
			result, err = nil, fault.New(fault.Internal, "the step panicked")
		}
	}()
	c, err := p.context(step, handed)
	if err != nil {
		return nil, err
	}
	definition, known := p.catalog.Step(step.Action)
	switch {
	case step.Rejoin:
		return p.rejoin(ctx, c, definition)
	case step.RunsOn == workflow.ControlPlane && known && definition.Run != nil:
		return definition.Run(ctx, c)
	case step.RunsOn == workflow.ControlPlane || !known && step.Command != string(agentcommand.DriverInvoke):
		return nil, unknownStep(step)
	case !known:
		return invoke(ctx, c)
	}
	return p.ask(ctx, c, definition)
}

// unknownStep is what a program says of a workflow that another version has made: that version may carry the step out.
func unknownStep(step workflow.Step) error {
	return fault.New(fault.Unavailable, "this version has no step %s", step.Action).
		WithRemedy("run the version that has it, or abort the workflow")
}

// context is what the step's code sees of the world. What it may send is what the workflow was created with.
func (p *pass) context(step workflow.Step, handed *handed) (*steps.Context, error) {
	c := &steps.Context{
		Workflow: p.w, Step: step, Key: p.w.Key(step), Deadline: step.Deadline, Now: p.clock(), Node: p.node, Ports: p.ports,
	}
	var err error
	if c.Profile, err = p.document(); err != nil {
		return nil, err
	}
	if step.RunsOn != workflow.ControlPlane {
		c.Step.Sends = []string{step.Command}
	}
	out := &orders{pass: p, step: step, handed: handed}
	c.Ports.Commands, c.Ports.Lookout = out, out
	if p.ports.Secrets != nil {
		c.Ports.Secrets = secrets{p.ports.Secrets, handed}
	}
	if p.ports.Tokens != nil {
		c.Ports.Tokens = tokens{p.ports.Tokens, handed}
	}
	return c, nil
}

// document is the workflow's profile, read once in a pass.
func (p *pass) document() (profile.Document, error) {
	if p.profile == nil {
		p.profile = &profile.Document{}
		if len(p.w.Document) == 0 {
			return *p.profile, nil
		}
		if err := json.Unmarshal(p.w.Document, p.profile); err != nil {
			return *p.profile, fault.Wrap(err, fault.InvalidConfig, "the workflow's profile can't be read")
		}
	}
	return *p.profile, nil
}

// invoke carries out a driver operation that no step was registered for.
func invoke(ctx context.Context, c *steps.Context) (any, error) {
	if steps.RefersToSecret(c.Step.With) { // no definition has looked at it
		return nil, fault.New(fault.InvalidConfig, "step %s holds a reference to a secret, which no profile may hand out",
			c.Step.ID).WithDetail("path", "with")
	}
	concern, operation, _ := strings.Cut(c.Step.Action, ".")
	if c.Step.Driver != "" {
		c.Profile.Drivers = map[string]string{concern: c.Step.Driver}
	}
	result, err := c.Invoke(ctx, concern, operation, c.Step.With, "")
	if err != nil {
		return nil, err
	}
	return result, nil
}

// ask sends an agent step's command, and has the step's definition look at its result.
func (p *pass) ask(ctx context.Context, c *steps.Context, definition steps.Step) (any, error) {
	done, err := c.AwaitCommand(ctx, orderOf(ctx, c, definition))
	switch {
	case err != nil:
		return nil, err
	case definition.Settled != nil:
		return definition.Settled(ctx, c, done)
	case len(done.Result) == 0:
		return nil, nil
	}
	return done.Result, nil
}

func orderOf(ctx context.Context, c *steps.Context, definition steps.Step) steps.Order {
	return steps.Order{
		Kind: agentcommand.KindName(c.Step.Command), Role: agentcommand.Role(c.Step.RunsOn),
		Make: func() (any, error) {
			switch {
			case definition.Payload != nil:
				return definition.Payload(ctx, c)
			case len(c.Step.With) == 0:
				return struct{}{}, nil
			}
			return c.Step.With, nil
		},
	}
}

// rejoined is the result of a step that awaits a rejoin.
type rejoined struct {
	BootID string `json:"bootId"`
	Role   string `json:"role"`
}

// rejoin does what the step does, and succeeds when the machine's agent is connected again with another boot or role,
// whatever was reported. The boot that it must differ from is in the log before anything is sent.
func (p *pass) rejoin(ctx context.Context, c *steps.Context, definition steps.Step) (any, error) {
	if p.ports.Agents == nil {
		return nil, noAgents(c.Step)
	}
	session, err := p.ports.Agents.OfNode(ctx, p.node.ID)
	if err != nil {
		return nil, err
	}
	before := c.Step.Before
	if before != nil && session.Connected && (session.BootID != before.BootID || string(session.Role) != before.Role) {
		// What was never begun must not be begun by the boot that came of it.
		return rejoined{session.BootID, string(session.Role)}, p.cancelCommand(ctx, c.Step, "the machine has rejoined")
	}
	if before == nil && c.Step.RunsOn == workflow.ControlPlane {
		if err := p.wait(ctx, c.Step, c.Step.AgentCommand, bootOf(session)); err != nil {
			return nil, err
		}
	}
	if c.Step.RunsOn != workflow.ControlPlane {
		_, err = p.ask(ctx, c, definition)
	} else if definition.Run == nil {
		return nil, unknownStep(c.Step)
	} else {
		_, err = definition.Run(ctx, c)
	}
	if pause, waits := steps.IsNotReady(err); waits {
		return nil, steps.NotReady(pause)
	}
	now := p.w.Find(c.Step.ID)
	if err != nil && (fault.CodeOf(err) == fault.Conflict || now != nil && now.State == workflow.StepRunning) {
		return nil, err // nothing was sent
	}
	return nil, steps.NotReady(agentPause)
}

func noAgents(step workflow.Step) error {
	return fault.New(fault.InvalidConfig, "step %s awaits a rejoin, and this program knows no agents", step.ID).
		WithDetail("path", "ports.agents")
}

func bootOf(s steps.Session) *workflow.Boot {
	return &workflow.Boot{BootID: s.BootID, Role: string(s.Role)}
}
