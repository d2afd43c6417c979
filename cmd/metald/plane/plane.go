package plane

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/authz"
	"github.com/better-compute/metal/adapters/bus"
	"github.com/better-compute/metal/adapters/httpapi"
	"github.com/better-compute/metal/adapters/metrics"
	"github.com/better-compute/metal/adapters/pki"
	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/processmanagers"
	"github.com/better-compute/metal/processmanagers/steps"
	"github.com/better-compute/metal/projections"
)

// plane is a control plane, wired.
type plane struct {
	stores   *Stores
	service  *commands.Service
	runner   *projections.Runner
	outcomes *postgres.Outcomes
	secrets  *postgres.Secrets
	presence *postgres.Presence
	clock    *postgres.Clock
	ca       *pki.CA
	gateway  *gateway
	wakeups  *postgres.Wakeups
	workers  *processmanagers.Workers
	bus      *bus.Bus
	api      *httpapi.API
	logger   *slog.Logger
}

// wire joins everything.
func wire(ctx context.Context, c Config, s *Stores, secrets *postgres.Secrets) (*plane, error) {
	policies, err := ownPolicies(c.Policies)
	if err != nil {
		return nil, err
	}
	authorizer, err := authz.New(policies...)
	if err != nil {
		return nil, err
	}
	kinds, err := c.Extensions.kinds()
	if err != nil {
		return nil, err
	}
	meters := metrics.New()
	s.Log = meters.Store(s.Log)
	p := &plane{
		stores: s, logger: c.Logger, secrets: secrets, outcomes: postgres.NewOutcomes(s.Pool, secrets), presence: postgres.NewPresence(s.Pool),
	}
	if p.clock, err = postgres.NewClock(ctx, s.Pool); err != nil {
		return nil, err
	}
	p.service = commands.New(s.Log, authorizer, secrets, p.clock.Now, kinds...)
	catalog, err := p.learn(c, kinds)
	if err != nil {
		return nil, err
	}
	if p.ca, err = pki.Open(ctx, secrets, p.clock.Now); err != nil {
		return nil, err
	}
	if p.runner, err = projections.NewRunner(s.Pool, s.Log, ReadModels()...); err != nil {
		return nil, err
	}
	if p.gateway, err = p.openGateway(ctx, c, meters.Agents()); err != nil {
		return nil, err
	}
	if err = p.manage(c, catalog, p.gateway.url, meters.Pass); err == nil {
		err = p.watch(c, authorizer, catalog, meters)
	}
	if err != nil {
		p.gateway.abandon(ctx)
		return nil, err
	}
	return p, nil
}

// watch makes what follows the log and what answers from it.
func (p *plane) watch(c Config, authorizer commands.Authorizer, catalog *steps.Catalog, meters *metrics.Metrics) (err error) {
	followers, positions := p.followers()
	if p.bus, err = bus.New(p.stores.Log, followers, bus.Options{Logger: p.logger, Observe: meters.CaughtUp}); err != nil {
		return err
	}
	seen := &observer{meters: meters}
	p.api, err = httpapi.New(httpapi.Config{
		Service: p.service, Authorizer: authorizer, Log: p.stores.Log, DB: p.stores.Pool, Waiter: p.runner, Projections: p.runner.Names(),
		Outcomes: outcomes{p.outcomes}, Signer: p.secrets, SecretsReady: p.secrets.Check, Clock: p.clock.Now, Logger: p.logger,
		Version: c.Version, Metrics: meters.Handler(), Observer: seen, RequestKey: p.secrets.RequestKey(),
		Steps: catalog.Specs(), Gateway: httpapi.Gateway{URL: p.gateway.url, CASHA256: p.ca.Fingerprint()},
	})
	meters.Watch(metrics.Sources{
		Head: p.stores.Log.Head, Projections: positions, Subscribers: seen.following, Findings: p.findings,
		Wakeups: p.wakeups.Depth, Boots: p.gateway.agents.Boots,
	})
	return err
}

// followers are the read models and the wake-ups, each with a checkpoint of its own, and the write side's memory.
func (p *plane) followers() ([]bus.Follower, map[string]func() event.Position) {
	all := []bus.Follower{
		{Name: commands.FollowerName, Position: p.service.FollowedTo, CatchUp: p.service.Follow},
		{Name: p.wakeups.Name(), Position: p.wakeups.Position, CatchUp: p.wakeups.CatchUp},
	}
	positions := map[string]func() event.Position{}
	for _, name := range p.runner.Names() {
		positions[name] = func() event.Position { return p.runner.Position(name) }
		all = append(all, bus.Follower{
			Name: name, Position: positions[name],
			CatchUp: func(ctx context.Context) error { return p.runner.CatchUp(ctx, name) },
		})
	}
	return all, positions
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
