package plane

import (
	"context"
	"errors"
	"time"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/projections/doctor"
)

// housekeepingEvery is how often orphaned claims are freed, and what is kept for a time is forgotten: a few small statements.
const housekeepingEvery = time.Minute

// presenceKept is how long the progress of agent commands that are over is kept.
const presenceKept = time.Hour

// housekeeping does, until ctx ends, what nobody asks for. Each part is safe in several replicas at once, and a failure
// waits for the next turn.
func (p *plane) housekeeping(ctx context.Context) error {
	turn := time.NewTicker(housekeepingEvery)
	defer turn.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-turn.C:
		}
		p.sweepClaims(ctx)
		p.checkSecrets(ctx)
		p.forget(ctx)
	}
}

// forget deletes what is kept for a time only.
func (p *plane) forget(ctx context.Context) {
	if err := p.presence.Sweep(ctx, presenceKept); err != nil && ctx.Err() == nil {
		p.logger.Warn("old signs of life were not forgotten", "error", err)
	}
	if _, err := p.outcomes.Expire(ctx, time.Now().Add(-postgres.OutcomesKept)); err != nil && ctx.Err() == nil {
		p.logger.Warn("old outcomes were not forgotten", "error", err)
	}
	if _, err := p.secrets.Expire(ctx); err != nil && ctx.Err() == nil {
		p.logger.Warn("secrets whose time is over were not forgotten", "error", err)
	}
}

// checkSecrets tells the operator, before a caller finds out, that this replica needs another master key.
func (p *plane) checkSecrets(ctx context.Context) {
	if err := p.secrets.Check(ctx); err != nil && ctx.Err() == nil {
		p.logger.Error("the secret store can't be opened", "error", err, "cause", errors.Unwrap(err))
	}
}

// sweepClaims frees what enrollments and retirements that a crash cut short left behind.
func (p *plane) sweepClaims(ctx context.Context) {
	orphans, err := doctor.OrphanedClaims(ctx, p.stores.Pool, time.Now().Add(-commands.ClaimGrace))
	if err != nil {
		if ctx.Err() == nil {
			p.logger.Warn("orphaned claims were not looked for", "error", err)
		}
		return
	}
	for _, o := range orphans {
		freed, err := p.service.SweepClaim(ctx, o.Key)
		switch {
		case err != nil && ctx.Err() == nil:
			p.logger.Warn("an orphaned claim was not freed", "claim", o.Key.String(), "error", err)
		case freed:
			p.logger.Info("freed an orphaned claim", "claim", o.Key.String(), "node", o.Holder)
		}
	}
}
