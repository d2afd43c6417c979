// Package workflow is the engine: it moves the active workflow of a node on, one transition per append, and carries its steps
// out. domain/workflow says what is due; this package does it.
//
// A step that is in flight is carried out again whenever its key is looked at, until it settles: what it did before is found
// by the keys of its agent commands. Nothing is remembered between two looks, so a worker may die anywhere.
package workflow

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/processmanagers"
	"github.com/better-compute/metal/processmanagers/steps"
)

// Name is the process manager's.
const Name = "workflow"

const (
	// agentPause is when an agent's answer is looked for without being told of one.
	agentPause = 10 * time.Second
	// awayPause is when a step is tried again that found a store or an agent away.
	awayPause = 5 * time.Second
	// unboundPause is when a workflow is looked at again that its node was taken from and nobody has aborted yet.
	unboundPause = 30 * time.Second
	// maxTransitions bounds one pass.
	maxTransitions = 64
)

// Engine carries workflows out. It is safe for concurrent use.
type Engine struct {
	service *commands.Service
	catalog *steps.Catalog
	ports   steps.Ports
	clock   commands.Clock
	logger  *slog.Logger
	memory  *memory
}

// New makes an engine. The clock is that of the log's store, where it has one. The engine sends agent commands itself: the
// port is its own. Nodes are the service's where the program brings none.
func New(service *commands.Service, catalog *steps.Catalog, ports steps.Ports, clock commands.Clock, logger *slog.Logger) *Engine {
	if ports.Nodes == nil {
		ports.Nodes = Nodes{Service: service}
	}
	if logger == nil {
		logger = slog.Default()
	}
	return &Engine{
		service: service, catalog: catalog, ports: ports, clock: clock, logger: logger,
		memory: &memory{values: map[id.Workflow][]string{}},
	}
}

// Manager is the engine as a process manager. Its key is a node's id, or the workflow's where it is about no node.
func (e *Engine) Manager() processmanagers.Manager {
	return processmanagers.Manager{Name: Name, Wakes: Wakes, Rests: Rests, Reconcile: e.Reconcile}
}

// Wakes tells which events need a look: what the engine did itself is none of them.
func Wakes(r event.Recorded) (key string, ok bool) {
	switch ev := r.Event.(type) {
	case workflow.Created, workflow.ResumedRun, workflow.RetriedRun, workflow.AbortAsked:
		return keyOf(r.Event)
	case agentcommand.Settled:
		return either(ev.Node, ev.Workflow), !id.IsZero(ev.Workflow)
	case agent.SessionOpened:
		return ev.Node.String(), !id.IsZero(ev.Node)
	}
	return "", false
}

// Rests tells that a workflow has nothing left to do. After an abort an agent command may still have to be taken back.
func Rests(r event.Recorded) (key string, ok bool) {
	if e, ended := r.Event.(workflow.Ended); ended && e.Status != workflow.Cancelled {
		return keyOf(r.Event)
	}
	return "", false
}

func keyOf(e event.Event) (string, bool) {
	of, ok := e.(workflow.Event)
	if !ok {
		return "", false
	}
	ref := workflow.About(of)
	return either(ref.Node, ref.Workflow), true
}

func either(n id.Node, w id.Workflow) string {
	if id.IsZero(n) {
		return w.String()
	}
	return n.String()
}

// Reconcile moves the key's workflow on as far as it goes now.
func (e *Engine) Reconcile(ctx context.Context, key string) (again time.Duration, err error) {
	p := &pass{Engine: e}
	found, err := p.open(ctx, key)
	if err != nil || !found {
		return 0, err
	}
	if err := p.cancelLeftovers(ctx); err != nil {
		return 0, err
	}
	for range maxTransitions {
		var more bool
		again, more, err = p.turn(ctx)
		switch {
		case fault.CodeOf(err) == fault.Conflict: // another worker or an operator was first
			if err := p.refresh(ctx); err != nil {
				return 0, err
			}
		case err != nil, !more:
			return again, err
		}
	}
	return time.Millisecond, err
}

// pass is one look at one key.
type pass struct {
	*Engine
	node  node.State // without an id for a workflow that is about no node
	stale bool       // the node: a step ran since it was read
	w     workflow.State

	profile *profile.Document // of the workflow; nil: not read yet
}

// turn makes the one transition that is due. more says that there may be another.
func (p *pass) turn(ctx context.Context) (again time.Duration, more bool, err error) {
	if err := ctx.Err(); err != nil {
		return 0, false, err
	}
	if err := p.seeNode(ctx); err != nil {
		return 0, false, err
	}
	if !p.bound() {
		return unboundPause, false, nil
	}
	now := p.clock()
	due := workflow.Next(p.w, now)
	switch due.Action {
	case workflow.Sleep:
		return atLeast(due.At.Sub(now)), false, nil
	case workflow.Proceed:
		return 0, true, p.proceed(ctx, due.Step)
	case workflow.Run, workflow.Send, workflow.Look:
		return p.attempt(ctx, *due.Step)
	case workflow.Rest:
		p.memory.forget(p.w)
	}
	return 0, false, nil
}

// bound refuses to go on with a workflow that its node was taken from: it is about to be aborted. Cleanup goes on.
func (p *pass) bound() bool {
	switch {
	case id.IsZero(p.node.ID), p.w.Status == workflow.Failing, p.w.Status == workflow.Cancelling:
		return true
	}
	return !p.w.Status.Active() || p.node.Workflow != nil && p.node.Workflow.ID == p.w.Workflow
}

// proceed makes what is due and needs nobody's answer. A step in flight that it ends leaves no agent command behind.
func (p *pass) proceed(ctx context.Context, step *workflow.Step) error {
	if step != nil && inFlight(*step) {
		if err := p.cancelCommand(ctx, *step, "the step is over"); err != nil {
			return err
		}
	}
	return p.advance(ctx)
}

func inFlight(s workflow.Step) bool {
	return s.State == workflow.StepRunning || s.State == workflow.StepWaiting
}

// cancelLeftovers ends what steps that an abort settled have sent.
func (p *pass) cancelLeftovers(ctx context.Context) error {
	if p.w.Status != workflow.Cancelling && p.w.Status != workflow.Cancelled {
		return nil
	}
	for _, step := range p.w.Steps {
		if step.State == workflow.StepCancelled && step.Started {
			if err := p.cancelCommand(ctx, step, "the workflow was aborted"); err != nil {
				return err
			}
		}
	}
	return nil
}

// attempt carries a step out, or looks what became of it, and settles it if that is decided.
func (p *pass) attempt(ctx context.Context, step workflow.Step) (again time.Duration, more bool, err error) {
	left := step.Deadline.Sub(p.clock())
	running, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	handed := p.memory.recall(p.w.Workflow)
	defer func() { p.memory.keep(p.w.Workflow, handed) }()
	p.stale = !id.IsZero(p.node.ID)
	result, err := p.carryOut(running, step, handed)
	pause, waits := steps.IsNotReady(err)
	switch {
	case ctx.Err() != nil: // it may no longer work on this: whoever looks next settles it
		return 0, false, ctx.Err()
	case waits:
		return p.notReady(ctx, step, pause)
	case fault.CodeOf(err) == fault.Unavailable:
		p.logger.Warn("a step found something away", "component", "workflow", "workflow", p.w.Workflow, "step", step.ID,
			"error", handed.scrub(err.Error()))
		return p.notReady(ctx, step, awayPause)
	case fault.CodeOf(err) == fault.Conflict:
		if err := p.refresh(ctx); err != nil {
			return 0, false, err
		}
		if now := p.w.Find(step.ID); now == nil || !inFlight(*now) || now.Attempt != step.Attempt {
			return 0, true, nil // the attempt was over before it could do that
		}
	case err != nil && errors.Is(err, context.DeadlineExceeded) && running.Err() != nil:
		return p.untilDeadline(step, agentPause), false, nil
	}
	stored, err := handed.result(result, err)
	var failure *workflow.Failure
	if err != nil {
		stored, failure = nil, handed.failure(err)
	}
	if err := p.settle(ctx, step, stored, failure); err != nil {
		return 0, false, err
	}
	if now := p.w.Find(step.ID); now != nil && inFlight(*now) && now.Attempt == step.Attempt {
		return p.untilDeadline(step, agentPause), false, nil // only the machine's return counts
	}
	return 0, true, nil
}

// notReady says once that the attempt waits, and when to look again.
func (p *pass) notReady(ctx context.Context, step workflow.Step, pause time.Duration) (again time.Duration, more bool, err error) {
	if now := p.w.Find(step.ID); now != nil && now.State == workflow.StepRunning {
		if err := p.wait(ctx, step, id.AgentCommand{}, nil); err != nil {
			return 0, false, err
		}
	}
	if step.RunsOn != workflow.ControlPlane {
		pause = agentPause
	}
	return p.untilDeadline(step, pause), false, nil
}

// untilDeadline is the pause, never beyond the step's deadline.
func (p *pass) untilDeadline(step workflow.Step, pause time.Duration) time.Duration {
	return atLeast(min(pause, step.Deadline.Sub(p.clock())))
}

func atLeast(d time.Duration) time.Duration { return max(d, time.Millisecond) }

// tick is what transitions need to know of the world.
func (p *pass) tick() workflow.Tick {
	return workflow.Tick{
		Now: p.clock(), Labels: p.node.StepLabels(), Jitter: rand.Float64(), //nolint:gosec // jitter needs no secrecy
	}
}
