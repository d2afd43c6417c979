package plane

import (
	"context"
	"time"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/projections/workflowview"
)

// sites tells the process manager of boot leases what goes on at a site.
type sites struct{ plane *plane }

// WorkflowsAt implements bootlease.Sites.
func (s sites) WorkflowsAt(ctx context.Context, at id.Site, since time.Time) ([]id.Workflow, error) {
	head, err := s.plane.stores.Log.Head(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.plane.runner.Wait(ctx, workflowview.Name, head); err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "the read model of workflows is behind the log")
	}
	found, err := workflowview.ActiveAt(ctx, s.plane.stores.Pool, at, since)
	return found, postgres.Fault(err)
}

// TokenSpent implements bootlease.Sites.
func (s sites) TokenSpent(ctx context.Context, key string) (bool, error) {
	token, err := s.plane.service.JoinToken(ctx, id.Of[id.JoinToken](keyed("join-token", key)))
	return !token.Live(s.plane.clock.Now()), err
}
