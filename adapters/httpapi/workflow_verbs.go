package httpapi

import (
	"context"
	"net/http"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/workflow"
)

// workflowVerb is one verb against a workflow with a body of type B.
type workflowVerb[B any] func(context.Context, commands.Call, id.Workflow, B) (commands.Outcome[workflow.State], error)

func (a *API) workflowVerbs() {
	s := a.service
	onWorkflow(a, "abort", "Cancel what is pending and in flight, then clean up",
		func(ctx context.Context, c commands.Call, w id.Workflow, b contract.Reason) (commands.Outcome[workflow.State], error) {
			return s.AbortWorkflow(ctx, c, w, b.Reason)
		})
	onWorkflow(a, "retry", "Run a failed workflow again from the step that failed",
		func(ctx context.Context, c commands.Call, w id.Workflow, b contract.Retry) (commands.Outcome[workflow.State], error) {
			return s.RetryWorkflow(ctx, c, w, b.FromStep)
		})
	onWorkflow(a, "pause", "Let the step in flight finish, and start no other", plainWorkflowVerb(s.PauseWorkflow))
	onWorkflow(a, "resume", "Start steps again", plainWorkflowVerb(s.ResumeWorkflow))
}

func plainWorkflowVerb(
	apply func(context.Context, commands.Call, id.Workflow) (commands.Outcome[workflow.State], error),
) workflowVerb[contract.Empty] {
	return func(ctx context.Context, c commands.Call, w id.Workflow, _ contract.Empty) (commands.Outcome[workflow.State], error) {
		return apply(ctx, c, w)
	}
}

func onWorkflow[B any](a *API, name, summary string, apply workflowVerb[B]) {
	operate(a, document{
		id: name + "-workflow", method: http.MethodPost, path: "/v1/workflows/{id}/" + name, tag: "workflows", summary: summary,
		gives: oneOf[contract.Workflow](), late: true,
	}, func(ctx context.Context, in *takes[B]) (*answer, error) {
		w, call, err := target[id.Workflow](ctx, in.ID, in.Matching)
		if err != nil {
			return nil, err
		}
		var body B
		if in.Body != nil {
			body = *in.Body
		}
		done, err := apply(ctx, call, w, body)
		if err != nil {
			return nil, err
		}
		return a.workflowDone(ctx, done)
	})
}
