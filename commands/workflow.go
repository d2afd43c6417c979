package commands

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/workflow"
)

// WorkflowOutcome is what a verb did to a workflow.
type WorkflowOutcome = Outcome[workflow.State]

// Workflow is a workflow as its stream has it. Errors: NOT_FOUND.
func (s *Service) Workflow(ctx context.Context, w id.Workflow) (workflow.State, event.Version, error) {
	now, err := load(ctx, s, workflow.Decider, workflow.StreamOf(w))
	if err == nil && !now.state.Exists() {
		err = noWorkflow(w)
	}
	return now.state, now.version, err
}

func noWorkflow(w id.Workflow) error { return fault.New(fault.NotFound, "there is no workflow %s", w) }

// AbortWorkflow cancels what is pending and in flight; cleanup runs, then its owner hears of it. The node it belongs to fails
// when the workflow has ended. The reason holds at most 512 characters.
func (s *Service) AbortWorkflow(ctx context.Context, call Call, w id.Workflow, reason string) (WorkflowOutcome, error) {
	return s.onWorkflow(ctx, call, w, func(_ workflow.State, on loaded[node.State]) (workflow.Command, error) {
		return workflow.Abort{Tick: workflow.Tick{Now: s.clock(), Labels: on.state.StepLabels()}, Reason: reason}, nil
	})
}

// PauseWorkflow lets the step in flight finish and starts no other. Legal from running.
func (s *Service) PauseWorkflow(ctx context.Context, call Call, w id.Workflow) (WorkflowOutcome, error) {
	return s.onWorkflow(ctx, call, w, always(workflow.Pause{}))
}

// ResumeWorkflow starts steps again. Legal from paused.
func (s *Service) ResumeWorkflow(ctx context.Context, call Call, w id.Workflow) (WorkflowOutcome, error) {
	return s.onWorkflow(ctx, call, w, always(workflow.Resume{}))
}

// RetryWorkflow runs a failed workflow again from a main step, at the latest the one that failed; empty: the first that did not
// succeed. Where it failed a node, the node's stream decides first: the node is back where it failed from, with the run number
// raised, and whoever looks next finishes what a crash left.
func (s *Service) RetryWorkflow(ctx context.Context, call Call, w id.Workflow, fromStep string) (WorkflowOutcome, error) {
	return s.onWorkflow(ctx, call, w, func(state workflow.State, on loaded[node.State]) (workflow.Command, error) {
		retry := workflow.Retry{FromStep: fromStep}
		if on.applied(node.StreamOf(state.Node), call.Command) > 0 { // the process manager may have gone on from there already
			return decided(state, on.state), nil
		}
		if _, err := workflow.Decide(state, retry); err != nil || !on.state.Exists() {
			return retry, err
		}
		run, err := s.retryNode(ctx, call, state, on.state, fromStep)
		if err != nil {
			return nil, err
		}
		return workflow.Retry{FromStep: run.FromStep, Run: run.Run}, nil
	})
}

// decided is the retry that the node has decided on; one of the present run, which changes nothing, where it is past that.
func decided(w workflow.State, on node.State) workflow.Retry {
	if active := on.Workflow; active != nil && active.ID == w.Workflow {
		return workflow.Retry{FromStep: active.FromStep, Run: active.Run}
	}
	return workflow.Retry{Run: w.Run}
}

// retryNode has the node decide on another run, unless it has already.
func (s *Service) retryNode(ctx context.Context, call Call, w workflow.State, on node.State, fromStep string,
) (node.Workflow, error) {
	call.IfMatch = nil
	if active := on.Workflow; active != nil && active.ID == w.Workflow {
		if active.Run > w.Run {
			return *active, nil
		}
		failed := call // the workflow failed a moment ago, and nobody has told the node yet
		failed.Actor, failed.Command = Actor{System: true}, freshCommand()
		if _, err := s.Fail(ctx, failed, on.ID, w.Workflow, fault.Code(w.Error.Code), w.Error.Message); err != nil {
			return node.Workflow{}, err
		}
	} else if active != nil {
		return node.Workflow{}, fault.New(fault.Conflict, "workflow %s is active on the node", active.ID).
			WithDetail("workflowId", active.ID.String()).WithRemedy("wait for it to end, or abort it")
	}
	done, err := s.always(ctx, call, on.ID, principal.WorkflowsManage, node.Retry{Workflow: w.Workflow, FromStep: fromStep})
	switch active := done.State.Workflow; {
	case err != nil:
		return node.Workflow{}, err
	case active == nil || active.ID != w.Workflow:
		return node.Workflow{}, fault.New(fault.Conflict, "the node has moved on").WithRemedy("read its current state")
	default:
		return *active, nil
	}
}

func always(c workflow.Command) func(workflow.State, loaded[node.State]) (workflow.Command, error) {
	return func(workflow.State, loaded[node.State]) (workflow.Command, error) { return c, nil }
}

// onWorkflow applies an operator's verb, authorized on the workflow's node as it is now.
func (s *Service) onWorkflow(ctx context.Context, call Call, w id.Workflow,
	decide func(workflow.State, loaded[node.State]) (workflow.Command, error),
) (WorkflowOutcome, error) {
	var on loaded[node.State]
	return handle(ctx, s, call, request[workflow.State, workflow.Command, workflow.Event]{
		decider: workflow.Decider,
		stream:  workflow.StreamOf(w),
		authorize: func(state workflow.State) error {
			if !state.Exists() {
				return noWorkflow(w)
			}
			var err error
			if on, err = load(ctx, s, node.Decider, node.StreamOf(state.Node)); err != nil {
				return err
			}
			err = s.auth.Allow(call.Actor, principal.WorkflowsManage, workflowResource(state, on.state))
			if fault.CodeOf(err) == fault.NotFound {
				return noWorkflow(w)
			}
			return err
		},
		decide: func(state workflow.State, _ event.Version) (workflow.Command, error) { return decide(state, on) },
		meta:   workflowMeta,
	})
}

// workflowResource is the workflow's node, or its tenant where it has none.
func workflowResource(state workflow.State, on node.State) Resource {
	if on.Exists() {
		return ResourceOf(on)
	}
	return tenantResource(state.Tenant)
}

func workflowMeta(state workflow.State) event.Meta {
	return event.Meta{Tenant: state.Tenant.String(), Subject: "workflow/" + state.Workflow.String()}
}

// abortAfterNode stops the workflow that a node was aborted with. The node has failed already: where this does not succeed, the
// process manager finds a workflow that runs for nobody, and aborts it.
func (s *Service) abortAfterNode(ctx context.Context, call Call, n node.State, reason string) {
	if id.IsZero(n.FailedWorkflow) {
		return
	}
	call.Actor, call.IfMatch = Actor{System: true}, nil
	_, _ = s.AbortWorkflow(ctx, call, n.FailedWorkflow, reason)
}

// The verbs below are the process managers': no HTTP route leads to them. Each append has a fresh command: workflows say by
// themselves whether a repeat changes anything.

// CheckProfile refuses a profile that can't run on a node: NOT_FOUND, or INVALID_INPUT with every issue and its path.
func (s *Service) CheckProfile(ctx context.Context, n node.State, pin node.Profile) error {
	_, _, err := s.profileFor(ctx, n, pin)
	return err
}

// profileFor finds a profile, and its steps as they run on a node.
func (s *Service) profileFor(ctx context.Context, n node.State, pin node.Profile) (FoundProfile, []profile.Resolved, error) {
	found, err := s.Profile(ctx, n.Tenant, pin.ID, pin.Version)
	if err != nil {
		return FoundProfile{}, nil, err
	}
	steps, err := s.resolveFor(ctx, n, found.Document)
	return found, steps, err
}

// CreateWorkflow makes the workflow that a node has decided on, under the id and with the profile that the node names: the
// pinned version is resolved, marked used and kept in the workflow. One that was made before is given back. Errors: NOT_FOUND
// for the profile, INVALID_INPUT with every issue, CONFLICT where the node names none.
func (s *Service) CreateWorkflow(ctx context.Context, call Call, n node.State, owner string) (WorkflowOutcome, error) {
	if n.Workflow == nil {
		return WorkflowOutcome{}, fault.New(fault.Conflict, "no workflow is active on node %s", n.ID)
	}
	w, pin := n.Workflow.ID, n.Workflow.Profile
	now, err := load(ctx, s, workflow.Decider, workflow.StreamOf(w))
	if err != nil || now.state.Exists() {
		return now.outcome(), err
	}
	found, _, err := s.profileFor(ctx, n, pin)
	if err != nil { // what can't run does not count as used
		return WorkflowOutcome{}, err
	}
	if found, err = s.MarkProfileUsed(ctx, call, found, w); err != nil {
		return WorkflowOutcome{}, err
	}
	steps, err := s.resolveFor(ctx, n, found.Document)
	if err != nil {
		return WorkflowOutcome{}, err
	}
	document, err := json.Marshal(found.Document)
	if err != nil {
		return WorkflowOutcome{}, fault.Wrap(err, fault.InvalidConfig, "profile %s can't be written", pin.ID)
	}
	return s.advance(ctx, call, w, workflow.Create{Facts: workflow.Created{
		Ref:    workflow.Ref{Workflow: w, Node: n.ID, Profile: pin.ID, Version: pin.Version},
		Tenant: n.Tenant, Site: n.Site, Pool: n.Pool, Owner: owner, Document: document,
		StepSpecs: stepSpecs(steps), Kinds: kindsOf(steps), At: s.clock().UTC(),
	}})
}

// resolveFor gives the steps of a profile as they run on a node, by the node's hardware profile, else its pool's.
func (s *Service) resolveFor(ctx context.Context, n node.State, doc profile.Document) ([]profile.Resolved, error) {
	if doc.Target != profile.TargetMetal {
		return nil, fault.Invalid(fault.Issue{Path: "target", Message: "is " + string(doc.Target) + ", not metal"})
	}
	hardware, driver := n.HardwareProfile, node.Drivers[0]
	if hardware == "" {
		in, err := s.Pool(ctx, n.Pool)
		if err != nil {
			return nil, err
		}
		hardware = in.Policy.HardwareProfile
	}
	if n.BMC != nil {
		driver = n.BMC.Driver
	}
	bound, err := s.bindings(hardware, driver)
	if err != nil {
		return nil, fault.Invalid(fault.Issue{Path: "hardwareProfile", Message: err.Error()})
	}
	steps, wrong := s.resolve(doc, bound)
	if len(wrong) > 0 {
		e := fault.Invalid(wrong...).WithDetail("path", wrong[0].Path)
		e.Message = "the profile does not resolve"
		return nil, e
	}
	return steps, nil
}

func stepSpecs(steps []profile.Resolved) []workflow.StepSpec {
	specs := make([]workflow.StepSpec, len(steps))
	for i, r := range steps {
		specs[i] = workflow.StepSpec{
			ID: r.ID, Phase: workflow.Phase(r.Phase), Action: r.Action, RunsOn: workflow.Computer(r.RunsOn), Command: r.Command,
			Driver: r.Driver, Sends: r.Sends, With: r.With, When: r.When, Timeout: r.Timeout, Retries: r.Retries,
			RetryDelay: r.RetryDelay, OnFailure: string(r.Policy), OnFailureStep: r.OnFailureStep, ArmedBy: r.ArmedBy,
			Rejoin: r.Rejoin, Needs: r.Needs,
		}
	}
	return specs
}

// kindsOf lists the kinds of agent command that the steps can send.
func kindsOf(steps []profile.Resolved) []string {
	var kinds []string
	for _, r := range steps {
		if r.Command != "" {
			kinds = append(kinds, r.Command)
		}
		kinds = append(kinds, r.Sends...)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// AdvanceWorkflow makes every transition that is due.
func (s *Service) AdvanceWorkflow(ctx context.Context, call Call, w id.Workflow, t workflow.Tick) (WorkflowOutcome, error) {
	return s.advance(ctx, call, w, workflow.Advance{Tick: t})
}

// WaitWorkflow says that a step's agent command is out, or that the step asked for more time.
func (s *Service) WaitWorkflow(ctx context.Context, call Call, w id.Workflow, wait workflow.Wait) (WorkflowOutcome, error) {
	return s.advance(ctx, call, w, wait)
}

// SettleWorkflow ends an attempt of a step and makes what is due next. CONFLICT where the step has left that attempt.
func (s *Service) SettleWorkflow(ctx context.Context, call Call, w id.Workflow, c workflow.Settle) (WorkflowOutcome, error) {
	return s.advance(ctx, call, w, c)
}

// ContinueWorkflow begins the run that the workflow's node has decided on, from the step that the node names.
func (s *Service) ContinueWorkflow(ctx context.Context, call Call, w id.Workflow, run int) (WorkflowOutcome, error) {
	now, _, err := s.Workflow(ctx, w)
	if err != nil {
		return WorkflowOutcome{}, err
	}
	on, err := load(ctx, s, node.Decider, node.StreamOf(now.Node))
	if err != nil {
		return WorkflowOutcome{}, err
	}
	retry := workflow.Retry{Run: run}
	if active := on.state.Workflow; active != nil && active.ID == w {
		retry.FromStep = active.FromStep
	}
	return s.advance(ctx, call, w, retry)
}

// advance applies a process manager's command to a workflow.
func (s *Service) advance(ctx context.Context, call Call, w id.Workflow, c workflow.Command) (WorkflowOutcome, error) {
	call.IfMatch, call.Command = nil, freshCommand()
	return handle(ctx, s, call, request[workflow.State, workflow.Command, workflow.Event]{
		decider: workflow.Decider,
		stream:  workflow.StreamOf(w),
		authorize: func(workflow.State) error {
			if !call.Actor.System {
				return fault.New(fault.Forbidden, "only the control plane runs workflows")
			}
			return nil
		},
		decide: func(workflow.State, event.Version) (workflow.Command, error) { return c, nil },
		meta:   workflowMeta,
	})
}
