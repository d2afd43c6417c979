package client

import (
	"context"
	"iter"
	"net/url"
	"strconv"

	"github.com/better-compute/metal/adapters/httpapi/contract"
)

var (
	opListWorkflows  = get("/v1/workflows", "tenant", "node", "state", "profile", "limit", "cursor")
	opNodeWorkflows  = get("/v1/nodes/{id}/workflows", "state", "limit", "cursor")
	opGetWorkflow    = get("/v1/workflows/{id}")
	opAbortWorkflow  = post("/v1/workflows/{id}/abort")
	opRetryWorkflow  = post("/v1/workflows/{id}/retry")
	opPauseWorkflow  = post("/v1/workflows/{id}/pause")
	opResumeWorkflow = post("/v1/workflows/{id}/resume")
)

// WorkflowFilter bounds a list of workflows; every field that is set must match.
type WorkflowFilter struct {
	Tenant, Node, Profile string
	States                []string // any of them
	PageSize              int      // zero: the server's most
}

func (f WorkflowFilter) query() url.Values {
	q := url.Values{}
	set(q, "tenant", f.Tenant)
	set(q, "node", f.Node)
	set(q, "profile", f.Profile)
	for _, s := range f.States {
		q.Add("state", s)
	}
	if f.PageSize > 0 {
		q.Set("limit", strconv.Itoa(f.PageSize))
	}
	return q
}

// Workflows goes through all workflows that match, newest first, page by page. It ends after the first error.
func (c *Client) Workflows(ctx context.Context, f WorkflowFilter, o ...Option) iter.Seq2[contract.Workflow, error] {
	return pages[contract.Workflow](ctx, c, opListWorkflows, nil, f.query(), o)
}

// NodeWorkflows goes through the workflows of one machine, newest first; in any of the states, or in all where none is given.
func (c *Client) NodeWorkflows(ctx context.Context, node string, states []string, o ...Option) iter.Seq2[contract.Workflow, error] {
	return pages[contract.Workflow](ctx, c, opNodeWorkflows, []string{node}, WorkflowFilter{States: states}.query(), o)
}

// GetWorkflow reads one workflow with its steps.
func (c *Client) GetWorkflow(ctx context.Context, workflow string, o ...Option) (contract.Workflow, error) {
	return call[contract.Workflow](ctx, c, opGetWorkflow, []string{workflow}, nil, nil, o)
}

// AbortWorkflow cancels what is pending and in flight; cleanup runs. Errors: INVALID_STATE for one that succeeded.
func (c *Client) AbortWorkflow(ctx context.Context, workflow string, in contract.Reason, o ...Option) (contract.Workflow, error) {
	return call[contract.Workflow](ctx, c, opAbortWorkflow, []string{workflow}, nil, in, o)
}

// RetryWorkflow runs a failed workflow again. Errors: INVALID_STATE, CONFLICT where another workflow is active.
func (c *Client) RetryWorkflow(ctx context.Context, workflow string, in contract.Retry, o ...Option) (contract.Workflow, error) {
	return call[contract.Workflow](ctx, c, opRetryWorkflow, []string{workflow}, nil, in, o)
}

// PauseWorkflow lets the step in flight finish and starts no other. Errors: INVALID_STATE but from running.
func (c *Client) PauseWorkflow(ctx context.Context, workflow string, o ...Option) (contract.Workflow, error) {
	return call[contract.Workflow](ctx, c, opPauseWorkflow, []string{workflow}, nil, contract.Empty{}, o)
}

// ResumeWorkflow starts steps again. Errors: INVALID_STATE but from paused.
func (c *Client) ResumeWorkflow(ctx context.Context, workflow string, o ...Option) (contract.Workflow, error) {
	return call[contract.Workflow](ctx, c, opResumeWorkflow, []string{workflow}, nil, contract.Empty{}, o)
}
