package plane

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/better-compute/metal/adapters/eventstore/esdb"
	eventlog "github.com/better-compute/metal/adapters/eventstore/postgres"
	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/agentqueue"
	"github.com/better-compute/metal/projections/agents"
	authzview "github.com/better-compute/metal/projections/authz"
	"github.com/better-compute/metal/projections/doctor"
	"github.com/better-compute/metal/projections/history"
	"github.com/better-compute/metal/projections/images"
	"github.com/better-compute/metal/projections/jointokens"
	"github.com/better-compute/metal/projections/metalview"
	"github.com/better-compute/metal/projections/profiles"
	"github.com/better-compute/metal/projections/workflowview"
)

// ReadModels is the one list of projections.
func ReadModels() []projections.Projection {
	return []projections.Projection{
		metalview.New(), authzview.New(), agentqueue.New(), workflowview.New(), agents.New(), jointokens.New(), images.New(),
		profiles.New(), history.New(), doctor.New(),
	}
}

// Stores is what everything that touches data opens.
type Stores struct {
	Pool *pgxpool.Pool
	Log  event.Store
	stop []func() // what closes them, in the order opened
}

// Close closes them, the last opened first.
func (s *Stores) Close() {
	for i := len(s.stop) - 1; i >= 0; i-- {
		s.stop[i]()
	}
}

// OpenStores connects to the database, which must have this program's schema, and opens the event log: for what looks at the data
// beside the replicas that run. Errors: INVALID_CONFIG, UNAVAILABLE.
func OpenStores(ctx context.Context, dsn, cluster string, logger *slog.Logger) (*Stores, error) {
	return openStores(ctx, dsn, cluster, logger, postgres.Migrated)
}

// openStores does so once the database was prepared.
func openStores(ctx context.Context, dsn, cluster string, logger *slog.Logger,
	prepare func(context.Context, *pgxpool.Pool) error,
) (_ *Stores, err error) {
	s := &Stores{}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.Pool, err = postgres.Open(ctx, dsn, postgres.Options{Name: "metald"}); err != nil {
		return nil, err
	}
	s.stop = append(s.stop, s.Pool.Close)
	if err := prepare(ctx, s.Pool); err != nil {
		return nil, err
	}
	registry, err := commands.Registry()
	if err != nil {
		return nil, fmt.Errorf("event tables: %w", err)
	}
	if cluster != "" {
		log, err := openEventStore(ctx, cluster, registry, logger)
		if err != nil {
			return nil, err
		}
		s.Log, s.stop = log, append(s.stop, log.Close)
		return s, nil
	}
	log, err := eventlog.New(ctx, s.Pool, registry, eventlog.Options{})
	if err != nil {
		return nil, err
	}
	s.Log, s.stop = log, append(s.stop, log.Close)
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
