package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/better-compute/metal/adapters/authz"
	"github.com/better-compute/metal/adapters/bus"
	"github.com/better-compute/metal/adapters/eventstore/esdb"
	eventlog "github.com/better-compute/metal/adapters/eventstore/postgres"
	"github.com/better-compute/metal/adapters/httpapi"
	"github.com/better-compute/metal/adapters/metrics"
	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/projections"
	authzview "github.com/better-compute/metal/projections/authz"
	"github.com/better-compute/metal/projections/doctor"
	"github.com/better-compute/metal/projections/history"
	"github.com/better-compute/metal/projections/metalview"
)

// readModels is the one list of projections.
func readModels() []projections.Projection {
	return []projections.Projection{metalview.New(), authzview.New(), history.New(), doctor.New()}
}

// stores is what every command of metald that touches data opens.
type stores struct {
	pool *pgxpool.Pool
	log  event.Store
	stop []func() // what closes them, in the order opened
}

func (s *stores) close() {
	for i := len(s.stop) - 1; i >= 0; i-- {
		s.stop[i]()
	}
}

// openStores connects to the database, brings it to this program's schema, and opens the event log.
func openStores(ctx context.Context, c config, logger *slog.Logger) (_ *stores, err error) {
	s := &stores{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.pool, err = postgres.Open(ctx, c.postgres, postgres.Options{Name: "metald"}); err != nil {
		return nil, err
	}
	s.stop = append(s.stop, s.pool.Close)
	if err := postgres.Migrate(ctx, s.pool); err != nil {
		return nil, err
	}
	registry, err := commands.Registry()
	if err != nil {
		return nil, fmt.Errorf("event tables: %w", err)
	}
	if c.eventstore != "" {
		log, err := openEventStore(ctx, c.eventstore, registry, logger)
		if err != nil {
			return nil, err
		}
		s.log, s.stop = log, append(s.stop, log.Close)
		return s, nil
	}
	log, err := eventlog.New(ctx, s.pool, registry, eventlog.Options{})
	if err != nil {
		return nil, err
	}
	s.log, s.stop = log, append(s.stop, log.Close)
	return s, nil
}

// How long a start looks for the event store, and after which time it says that it is waiting.
const (
	eventStorePatience = 15 * time.Second
	eventStoreSilence  = 2 * time.Second
)

// openEventStore connects to the cluster, telling whoever watches the log why nothing else happens meanwhile.
func openEventStore(ctx context.Context, connection string, registry *event.Registry, logger *slog.Logger) (*esdb.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, eventStorePatience)
	defer cancel()
	waiting := time.AfterFunc(eventStoreSilence, func() {
		logger.Warn("waiting for the event store of --eventstore to answer", "atMost", eventStorePatience)
	})
	defer waiting.Stop()
	return esdb.New(ctx, connection, registry, esdb.Options{Logger: logger})
}

// plane is a control plane, wired.
type plane struct {
	stores   *stores
	service  *commands.Service
	runner   *projections.Runner
	outcomes *postgres.Outcomes
	secrets  *postgres.Secrets
	bus      *bus.Bus
	api      *httpapi.API
	logger   *slog.Logger
}

func wire(c config, s *stores, secrets *postgres.Secrets, logger *slog.Logger) (*plane, error) {
	policies, err := ownPolicies(c.policies)
	if err != nil {
		return nil, err
	}
	authorizer, err := authz.New(policies...)
	if err != nil {
		return nil, err
	}
	meters := metrics.New()
	log := meters.Store(s.log)
	p := &plane{stores: s, logger: logger, secrets: secrets, outcomes: postgres.NewOutcomes(s.pool, secrets)}
	p.service = commands.New(log, authorizer, secrets, time.Now)
	if p.runner, err = projections.NewRunner(s.pool, log, readModels()...); err != nil {
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
	if p.bus, err = bus.New(log, followers, bus.Options{Logger: logger, Observe: meters.CaughtUp}); err != nil {
		return nil, err
	}
	seen := &observer{meters: meters}
	p.api, err = httpapi.New(httpapi.Config{
		Service: p.service, Authorizer: authorizer, Log: log, DB: s.pool, Waiter: p.runner, Projections: p.runner.Names(),
		Outcomes: outcomes{p.outcomes}, Signer: secrets, SecretsReady: secrets.Check, Clock: time.Now, Logger: logger, Version: version(),
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
