package commands

import (
	"context"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/pool"
)

// What process managers decide on is folded from the log just now; a read model may be behind it.

// Node is a node as its stream has it. Errors: NOT_FOUND.
func (s *Service) Node(ctx context.Context, n id.Node) (node.State, event.Version, error) {
	now, err := load(ctx, s, node.Decider, node.StreamOf(n))
	if err == nil && !now.state.Exists() {
		err = fault.New(fault.NotFound, "there is no node %s", n)
	}
	return now.state, now.version, err
}

// Pool is a pool as its stream has it. Errors: NOT_FOUND.
func (s *Service) Pool(ctx context.Context, p id.Pool) (pool.State, error) {
	now, err := load(ctx, s, pool.Decider, pool.StreamOf(p))
	if err == nil && !now.state.Exists() {
		err = fault.New(fault.NotFound, "there is no pool %s", p)
	}
	return now.state, err
}
