package plane

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/authz"
	"github.com/better-compute/metal/adapters/bus"
	"github.com/better-compute/metal/adapters/httpapi"
	"github.com/better-compute/metal/adapters/metrics"
	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/projections"
)

// plane is a control plane, wired.
type plane struct {
	stores   *Stores
	service  *commands.Service
	runner   *projections.Runner
	outcomes *postgres.Outcomes
	secrets  *postgres.Secrets
	bus      *bus.Bus
	api      *httpapi.API
	logger   *slog.Logger
}

// wire joins everything.
func wire(c Config, s *Stores, secrets *postgres.Secrets) (*plane, error) {
	policies, err := ownPolicies(c.Policies)
	if err != nil {
		return nil, err
	}
	authorizer, err := authz.New(policies...)
	if err != nil {
		return nil, err
	}
	meters := metrics.New()
	log := meters.Store(s.Log)
	p := &plane{stores: s, logger: c.Logger, secrets: secrets, outcomes: postgres.NewOutcomes(s.Pool, secrets)}
	p.service = commands.New(log, authorizer, secrets, time.Now)
	if p.runner, err = projections.NewRunner(s.Pool, log, ReadModels()...); err != nil {
		return nil, err
	}
	followers := make([]bus.Follower, 0, len(p.runner.Names()))
	positions := map[string]func() event.Position{}
	for _, name := range p.runner.Names() {
		positions[name] = func() event.Position { return p.runner.Position(name) }
		followers = append(followers, bus.Follower{
			Name: name, Position: positions[name],
			CatchUp: func(ctx context.Context) error { return p.runner.CatchUp(ctx, name) },
		})
	}
	if p.bus, err = bus.New(log, followers, bus.Options{Logger: c.Logger, Observe: meters.CaughtUp}); err != nil {
		return nil, err
	}
	seen := &observer{meters: meters}
	p.api, err = httpapi.New(httpapi.Config{
		Service: p.service, Authorizer: authorizer, Log: log, DB: s.Pool, Waiter: p.runner, Projections: p.runner.Names(),
		Outcomes: outcomes{p.outcomes}, Signer: secrets, SecretsReady: secrets.Check, Clock: time.Now, Logger: c.Logger, Version: c.Version,
		Metrics: meters.Handler(), Observer: seen, RequestKey: secrets.RequestKey(),
	})
	meters.Watch(metrics.Sources{Head: log.Head, Projections: positions, Subscribers: seen.following, Findings: p.findings})
	return p, err
}

func ownPolicies(dir string) ([]authz.File, error) {
	if dir == "" {
		return nil, nil
	}
	return authz.ReadDir(dir)
}

// outcomes gives the store of outcomes the form that the API asks for.
type outcomes struct{ kept *postgres.Outcomes }

// Begin is httpapi.Outcomes's.
func (o outcomes) Begin(ctx context.Context, principal, key string, hash []byte, fresh uuid.UUID) (httpapi.Outcome, error) {
	found, err := o.kept.Begin(ctx, principal, key, hash, fresh)
	return httpapi.Outcome(found), err
}

// Finish is httpapi.Outcomes's.
func (o outcomes) Finish(ctx context.Context, principal, key string, status int, header http.Header, body []byte) error {
	return o.kept.Finish(ctx, principal, key, status, header, body)
}
