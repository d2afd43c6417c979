package commands

import (
	"context"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/workflow"
)

// What process managers decide on is folded from the log just now; a read model may be behind it.

// Node is a node as its stream has it. Errors: NOT_FOUND.
func (s *Service) Node(ctx context.Context, n id.Node) (node.State, event.Version, error) {
	now, err := load(ctx, s, node.Decider, node.StreamOf(n))
	if err == nil && !now.state.Exists() {
		err = noNode(n)
	}
	return now.state, now.version, err
}

// NodeSeen is a node as this process knows it, which it reads from the log only where it knows nothing. Whoever appends on it
// is told where it was not the newest.
func (s *Service) NodeSeen(ctx context.Context, n id.Node) (node.State, error) {
	if now, known := cached[node.State](s.cache, node.StreamOf(n)); known && now.state.Exists() {
		return now.state, nil
	}
	state, _, err := s.Node(ctx, n)
	return state, err
}

// WorkflowSeen is a workflow as this process knows it, as NodeSeen.
func (s *Service) WorkflowSeen(ctx context.Context, w id.Workflow) (workflow.State, error) {
	if now, known := cached[workflow.State](s.cache, workflow.StreamOf(w)); known && now.state.Exists() {
		return now.state, nil
	}
	state, _, err := s.Workflow(ctx, w)
	return state, err
}

// Pool is a pool as its stream has it. Errors: NOT_FOUND.
func (s *Service) Pool(ctx context.Context, p id.Pool) (pool.State, error) {
	now, err := load(ctx, s, pool.Decider, pool.StreamOf(p))
	if err == nil && !now.state.Exists() {
		err = fault.New(fault.NotFound, "there is no pool %s", p)
	}
	return now.state, err
}

func noNode(n id.Node) error { return fault.New(fault.NotFound, "there is no node %s", n) }
