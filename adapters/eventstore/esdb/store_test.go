package esdb_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/better-compute/metal/adapters/eventstore/esdb"
	"github.com/better-compute/metal/adapters/eventstore/esdb/esdbtest"
	"github.com/better-compute/metal/adapters/eventstore/storetest"
	"github.com/better-compute/metal/domain/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Opener {
		server := esdbtest.Start(t)
		return func(t *testing.T, r *event.Registry) event.Store {
			return open(t, server.URL(), r, esdb.Options{})
		}
	})
}

// open gives a store that ends with the test.
func open(t *testing.T, url string, r *event.Registry, o esdb.Options) *esdb.Store {
	t.Helper()
	s, err := esdb.New(t.Context(), url, r, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}
