package workflow

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/google/uuid"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/workflow"
)

// open reads what the key stands for; found is false where there is no workflow.
func (p *pass) open(ctx context.Context, key string) (found bool, err error) {
	if !strings.HasPrefix(key, (id.Node{}).Prefix()+"_") {
		w, err := id.Parse[id.Workflow](key)
		if err != nil {
			return false, err
		}
		if err := p.readWorkflow(ctx, w); err != nil || !p.w.Exists() {
			return false, err
		}
		if id.IsZero(p.w.Node) {
			return true, nil
		}
		return true, p.readNode(ctx, p.w.Node)
	}
	n, err := id.Parse[id.Node](key)
	if err != nil {
		return false, err
	}
	if err := p.readNode(ctx, n); err != nil {
		if fault.CodeOf(err) == fault.NotFound {
			return false, nil
		}
		return false, err
	}
	w := p.node.LastWorkflow
	if p.node.Workflow != nil {
		w = p.node.Workflow.ID
	}
	if id.IsZero(w) {
		return false, nil
	}
	err = p.readWorkflow(ctx, w)
	return p.w.Exists(), err
}

// refresh reads again what another was first to change.
func (p *pass) refresh(ctx context.Context) error {
	ctx = commands.Fresh(ctx)
	if !id.IsZero(p.node.ID) {
		if err := p.readNode(ctx, p.node.ID); err != nil {
			return err
		}
	}
	return p.readWorkflow(ctx, p.w.Workflow)
}

// seeNode takes in what a step of this pass made of the node.
func (p *pass) seeNode(ctx context.Context) error {
	if !p.stale {
		return nil
	}
	state, err := p.service.NodeSeen(ctx, p.node.ID)
	if err == nil {
		p.node, p.stale = state, false
	}
	return err
}

func (p *pass) readNode(ctx context.Context, n id.Node) error {
	state, _, err := p.service.Node(ctx, n)
	if err == nil {
		p.node, p.stale = state, false
	}
	return err
}

func (p *pass) readWorkflow(ctx context.Context, w id.Workflow) error {
	state, _, err := p.service.Workflow(ctx, w)
	if fault.CodeOf(err) == fault.NotFound {
		return nil
	}
	if err == nil {
		p.w = state
	}
	return err
}

// command is an agent command; a zero one where nobody asked for it.
func (p *pass) command(ctx context.Context, c id.AgentCommand) (agentcommand.State, error) {
	state, _, err := p.service.AgentCommand(ctx, c)
	if fault.CodeOf(err) == fault.NotFound {
		return agentcommand.State{}, nil
	}
	return state, err
}

// call is the control plane asking on behalf of the workflow. Each has an id of its own: what may be repeated is decided by
// the streams themselves.
func (p *pass) call() commands.Call { return systemCall(p.w.Workflow.String()) }

func systemCall(correlation string) commands.Call {
	return commands.Call{
		Actor: commands.Actor{System: true}, Command: uuid.Must(uuid.NewV7()), CorrelationID: correlation,
	}
}

func (p *pass) advance(ctx context.Context) error {
	done, err := p.service.AdvanceWorkflow(ctx, p.call(), p.w.Workflow, p.tick())
	return p.took(done, err)
}

func (p *pass) wait(ctx context.Context, step workflow.Step, out id.AgentCommand, before *workflow.Boot) error {
	done, err := p.service.WaitWorkflow(ctx, p.call(), p.w.Workflow, workflow.Wait{
		Step: step.ID, Attempt: step.Attempt, AgentCommand: out, Before: before,
	})
	return p.took(done, err)
}

func (p *pass) settle(ctx context.Context, step workflow.Step, result json.RawMessage, failure *workflow.Failure) error {
	if err := p.seeNode(ctx); err != nil {
		return err
	}
	done, err := p.service.SettleWorkflow(ctx, p.call(), p.w.Workflow, workflow.Settle{
		Tick: p.tick(), Step: step.ID, Attempt: step.Attempt, Result: result, Error: failure,
	})
	return p.took(done, err)
}

func (p *pass) took(done commands.Outcome[workflow.State], err error) error {
	if err == nil {
		p.w = done.State
	}
	return err
}

// request asks for an agent command, and gives the position at which its stream stands.
func (p *pass) request(ctx context.Context, r agentcommand.Requested) (agentcommand.State, event.Position, error) {
	done, err := p.service.RequestAgentCommand(ctx, p.call(), r)
	return done.State, done.Position, err
}

// cancel ends an agent command; one that nobody asked for, or that is over, needs no ending.
func (p *pass) cancel(ctx context.Context, c id.AgentCommand, reason string) error {
	_, err := p.service.CancelAgentCommand(ctx, p.call(), c, reason)
	if fault.CodeOf(err) == fault.NotFound {
		return nil
	}
	return err
}

// Nodes stores what steps found out, through the verbs.
type Nodes struct{ Service *commands.Service }

// RecordHardware implements steps.Nodes.
func (s Nodes) RecordHardware(ctx context.Context, n id.Node, from node.Source, h node.Hardware) error {
	_, err := s.Service.RecordHardware(ctx, systemCall(""), n, from, h)
	return err
}

// AttestWipe implements steps.Nodes.
func (s Nodes) AttestWipe(ctx context.Context, n id.Node, w node.Wipe) error {
	_, err := s.Service.AttestWipe(ctx, systemCall(w.Workflow.String()), n, w)
	return err
}

// ObservePower implements steps.Nodes.
func (s Nodes) ObservePower(ctx context.Context, n id.Node, key string, power node.Power) error {
	_, err := s.Service.ObservePower(ctx, systemCall(""), n, key, power)
	return err
}

// LearnBMC implements steps.Nodes.
func (s Nodes) LearnBMC(ctx context.Context, n id.Node, fingerprint string, quirks json.RawMessage, system string) error {
	_, err := s.Service.LearnBMC(ctx, systemCall(""), n, node.BMCLearned{Fingerprint: fingerprint, Quirks: quirks, System: system})
	return err
}
