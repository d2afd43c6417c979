package postgres_test

import (
	"testing"

	"github.com/better-compute/metal/adapters/eventstore/postgres"
	"github.com/better-compute/metal/adapters/eventstore/storetest"
	pg "github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/test/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// open is another process on the database: a pool and a store of its own.
func open(t *testing.T, dsn string, r *event.Registry) *postgres.Store {
	t.Helper()
	return openWith(t, dsn, r, postgres.Options{})
}

func openWith(t *testing.T, dsn string, r *event.Registry, o postgres.Options) *postgres.Store {
	t.Helper()
	pool, err := pg.Open(t.Context(), dsn, pg.Options{MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store, err := postgres.New(t.Context(), pool, r, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Opener {
		dsn := pgtest.DSN(t)
		return func(t *testing.T, r *event.Registry) event.Store { return open(t, dsn, r) }
	})
}
