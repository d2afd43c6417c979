package projections_test

import (
	"sync"
	"testing"

	"github.com/better-compute/metal/adapters/eventstore/postgres"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/history"
	"github.com/better-compute/metal/projections/projectiontest"
	"github.com/better-compute/metal/test/pgtest"
)

// On the real log, with eight writers and two replicas, no event is missed and none counted twice (P11).
func TestTwoReplicasFollowTheRealLog(t *testing.T) {
	db := pgtest.New(t)
	registry, err := event.NewRegistry(node.Events)
	if err != nil {
		t.Fatal(err)
	}
	store, err := postgres.New(t.Context(), db, registry, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	const writers, each = 8, 15
	var writing, following sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				n := w*each + i
				a := projectiontest.Enroll(n, id.Tenant{}, id.Site{}, id.Pool{}, nil)
				if _, err := store.Append(t.Context(), a.Stream, 0, event.Meta{}, a.Events...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	written := make(chan struct{})
	for range 2 {
		r, err := projections.NewRunner(db, store, history.New())
		if err != nil {
			t.Fatal(err)
		}
		following.Go(func() {
			for last := false; !last; {
				select {
				case <-written:
					last = true
				default:
				}
				if err := r.CatchUp(t.Context(), history.Name); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writing.Wait()
	close(written)
	following.Wait()
	var rows, nodes int
	const sql = `SELECT count(*), count(DISTINCT node_id) FROM history_events`
	if err := db.QueryRow(t.Context(), sql).Scan(&rows, &nodes); err != nil {
		t.Fatal(err)
	}
	if rows != 2*writers*each || nodes != writers*each {
		t.Errorf("%d events of %d nodes, want %d of %d", rows, nodes, 2*writers*each, writers*each)
	}
	projectiontest.Run(t, db, store, history.New())
}
