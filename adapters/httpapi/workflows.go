package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/agents"
	"github.com/better-compute/metal/projections/metalview"
	"github.com/better-compute/metal/projections/workflowview"
)

func (a *API) workflowOperations() {
	operate(a, document{
		id: "list-workflows", method: http.MethodGet, path: "/v1/workflows", tag: "workflows",
		summary: "List workflows, newest first", gives: pageOf[contract.Workflow](),
	}, a.listWorkflows)
	operate(a, document{
		id: "list-node-workflows", method: http.MethodGet, path: "/v1/nodes/{id}/workflows", tag: "workflows",
		summary: "List the workflows of a machine, newest first", gives: pageOf[contract.Workflow](),
	}, a.listNodeWorkflows)
	operate(a, document{
		id: "get-workflow", method: http.MethodGet, path: "/v1/workflows/{id}", tag: "workflows",
		summary: "Read a workflow with its steps", gives: oneOf[contract.Workflow](),
	}, a.getWorkflow)

	a.workflowVerbs()
}

type listWorkflows struct {
	Fresh
	Paging
	State   []string `query:"state,explode" doc:"any of these states; repeated, or separated by commas"`
	Tenant  string   `query:"tenant"`
	Node    string   `query:"node"`
	Profile string   `query:"profile" doc:"the profile's id"`
}

func (a *API) listWorkflows(ctx context.Context, in *listWorkflows) (*answer, error) {
	var wrong issues
	f := workflowview.Filter{
		Tenant: narrow[id.Tenant](&wrong, "tenant", in.Tenant), Node: narrow[id.Node](&wrong, "node", in.Node), Profile: in.Profile,
		Statuses: workflowStates(&wrong, in.State),
	}
	if err := wrong.err(); err != nil {
		return nil, err
	}
	return a.workflows(ctx, in.Fresh, in.Paging, f)
}

type listNodeWorkflows struct {
	ID string `path:"id"`
	Fresh
	Paging
	State []string `query:"state,explode" doc:"any of these states; repeated, or separated by commas"`
}

func (a *API) listNodeWorkflows(ctx context.Context, in *listNodeWorkflows) (*answer, error) {
	var wrong issues
	n, err := pathID[id.Node](in.ID)
	wrong.take(err)
	f := workflowview.Filter{Node: n, Statuses: workflowStates(&wrong, in.State)}
	if err := wrong.err(); err != nil {
		return nil, err
	}
	if err := a.await(ctx, metalview.Name, in.Fresh); err != nil {
		return nil, err
	}
	if _, err := a.nodeRow(ctx, n); err != nil {
		return nil, err
	}
	return a.workflows(ctx, in.Fresh, in.Paging, f)
}

func (a *API) workflows(ctx context.Context, fresh Fresh, paging Paging, f workflowview.Filter) (*answer, error) {
	return listIn(ctx, a, workflowview.Name, fresh, paging, func(who *Identity) ([]workflowview.Workflow, string, error) {
		return narrowed(ctx, a, who, around{tenant: f.Tenant}, principal.WorkflowsRead, paging.Cursor == "",
			func(s projections.Scope) ([]workflowview.Workflow, string, error) {
				f.Scope = s
				return workflowview.List(ctx, a.db, f, paging.page())
			})
	}, func(w workflowview.Workflow) contract.Workflow {
		out := workflowOf(w)
		out.Document = nil
		return out
	})
}

func (a *API) getWorkflow(ctx context.Context, in *one) (*answer, error) {
	w, err := pathID[id.Workflow](in.ID)
	if err != nil {
		return nil, err
	}
	return singleIn(ctx, a, workflowview.Name, in.Fresh, func(who *Identity) (workflowview.Workflow, error) {
		found, err := workflowview.Get(ctx, a.db, w)
		if err == nil && !who.Scope(principal.WorkflowsRead).Reaches(found.Place) {
			return found, noWorkflow(w)
		}
		return found, err
	}, func(w workflowview.Workflow) contract.Workflow {
		out := workflowOf(w)
		out.Progress = a.progress(ctx, w)
		return out
	}, func(w workflowview.Workflow) event.Version { return w.Version })
}

// progress is what the agent that carries out the step in flight told last. It is no part of the workflow: where it can't
// be read, the workflow is answered without.
func (a *API) progress(ctx context.Context, w workflowview.Workflow) *contract.Progress {
	step := w.InFlight()
	if step == nil || id.IsZero(step.AgentCommand) {
		return nil
	}
	told, err := agents.ProgressOf(ctx, a.db, step.AgentCommand)
	p, known := told[step.AgentCommand.String()]
	if err != nil || !known {
		return nil
	}
	return &contract.Progress{Percent: p.Percent, Message: p.Message, At: p.At.UTC()}
}

func workflowStates(wrong *issues, given []string) []workflow.Status {
	var states []workflow.Status
	for i, text := range given {
		for _, name := range strings.Split(text, ",") {
			if workflow.InfoOf(workflow.Status(name)).Status == "" {
				wrong.add(fmt.Sprintf("query.state[%d]", i), "one of "+workflowStatuses())
			}
			states = append(states, workflow.Status(name))
		}
	}
	return states
}

func workflowStatuses() string {
	names := make([]string, len(workflow.StatusTable))
	for i, row := range workflow.StatusTable {
		names[i] = string(row.Status)
	}
	return strings.Join(names, ", ")
}

func (a *API) workflowDone(ctx context.Context, done commands.Outcome[workflow.State]) (*answer, error) {
	return a.done(ctx, workflowview.Name, done.Version, done.Position, workflowOf(workflowview.Workflow{
		State: done.State, Version: done.Version, Position: done.Position, UpdatedAt: done.At,
	}))
}

func workflowOf(w workflowview.Workflow) contract.Workflow {
	out := contract.Workflow{
		ID: w.Workflow.String(), Tenant: w.Tenant.String(), Profile: w.Profile, ProfileVersion: w.State.Version,
		State: string(w.Status), Run: w.Run, Error: stepError(w.Error), Reason: w.Reason, Steps: []contract.WorkflowStep{},
		CreatedAt: w.At.UTC(), StartedAt: moment(w.StartedAt), EndedAt: moment(w.EndedAt), Document: w.Document,
		Version: uint64(w.Version), Position: uint64(w.Position), UpdatedAt: w.UpdatedAt.UTC(),
	}
	if !id.IsZero(w.Node) {
		out.Node = w.Node.String()
	}
	if step := w.InFlight(); step != nil {
		out.Step = step.ID
	}
	for _, s := range w.Steps {
		out.Steps = append(out.Steps, stepOf(s))
	}
	return out
}

func stepOf(s workflow.Step) contract.WorkflowStep {
	out := contract.WorkflowStep{
		ID: s.ID, Phase: string(s.Phase), Action: s.Action, RunsOn: string(s.RunsOn), State: string(s.State), Attempt: s.Attempt,
		StartedAt: moment(s.StartedAt), SettledAt: moment(s.SettledAt), Deadline: moment(s.Deadline), NotBefore: moment(s.NotBefore),
		Result: s.Result, Error: stepError(s.Error),
	}
	if !id.IsZero(s.AgentCommand) {
		out.AgentCommand = s.AgentCommand.String()
	}
	return out
}

func stepError(f *workflow.Failure) *contract.StepError {
	if f == nil {
		return nil
	}
	return &contract.StepError{Code: f.Code, Message: f.Message, Details: f.Details, Rescue: f.Rescue}
}

// moment is a time that may not have come.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func noWorkflow(w id.Workflow) error { return fault.New(fault.NotFound, "there is no workflow %s", w) }
