package projections_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/better-compute/metal/adapters/eventstore/postgres"
	pg "github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/domain/claim"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/site"
	"github.com/better-compute/metal/domain/tenant"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/authz"
	"github.com/better-compute/metal/projections/doctor"
	"github.com/better-compute/metal/projections/history"
	"github.com/better-compute/metal/projections/metalview"
	"github.com/better-compute/metal/projections/projectiontest"
	"github.com/better-compute/metal/test/pgtest"
)

// The fleet of the benchmarks: lives interleaved, as they are in a real log.
const (
	benchNodes  = 2000
	benchRounds = 6
)

// life is one round of a machine's life: deployed, released and ready again, with a new inventory.
func life(round int) []event.Event {
	workflow := id.Of[id.Workflow](projectiontest.ID(round))
	var disks []node.Disk
	var wiped []node.WipedDisk
	for i := range 8 {
		d := node.Disk{Path: fmt.Sprintf("/dev/nvme%dn1", i), WWN: fmt.Sprintf("0x5000c500%08x", i), Model: "MZ-QL21T9", Bytes: 1 << 40}
		disks, wiped = append(disks, d), append(wiped, node.WipedDisk{Disk: d, Method: node.WipeQuick, ReadBack: true})
	}
	profile := node.Profile{ID: "ubuntu", Version: 3}
	return []event.Event{
		node.Moved{From: node.Ready, To: node.Deploying, Verb: node.VerbDeploy, Profile: &profile},
		node.WorkflowStarted{Workflow: workflow, Profile: profile, Run: 1},
		node.PowerObserved{Power: node.PowerOn},
		node.Moved{From: node.Deploying, To: node.Deployed, Verb: node.VerbComplete, Workflow: workflow, Role: node.RoleHost},
		node.Cordoned{Reason: "drain"}, node.Uncordoned{},
		node.Moved{From: node.Deployed, To: node.Releasing, Verb: node.VerbUndeploy, Wipe: node.WipeQuick},
		node.WorkflowStarted{Workflow: workflow, Profile: node.Profile{ID: "metal-release", Version: 1}, Run: 1},
		node.HardwareRecorded{Source: node.InBand, Hardware: node.Hardware{Manufacturer: "ACME", Cores: 64, MemoryBytes: 1 << 39, Disks: disks}},
		node.WipeAttested{Wipe: node.Wipe{Workflow: workflow, Signed: true, Method: node.WipeQuick, Disks: wiped}},
		node.PowerObserved{Power: node.PowerOff},
		node.Moved{From: node.Releasing, To: node.Ready, Verb: node.VerbComplete, Workflow: workflow},
	}
}

func benchStore(b *testing.B) (*pgxpool.Pool, event.Store, int) {
	b.Helper()
	db, err := pg.Open(b.Context(), pgtest.DSN(b), pg.Options{MaxConns: 24})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(db.Close)
	registry, err := event.NewRegistry(node.Events, claim.Events, pool.Events, site.Events, tenant.Events, principal.Events)
	if err != nil {
		b.Fatal(err)
	}
	store, err := postgres.New(b.Context(), db, registry, postgres.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(store.Close)
	events := 0
	for round := range benchRounds + 1 {
		var wg sync.WaitGroup
		for worker := range 32 {
			wg.Go(func() {
				for n := worker; n < benchNodes; n += 32 {
					a := projectiontest.Enroll(n, id.Of[id.Tenant](projectiontest.ID(n%5)), id.Of[id.Site](projectiontest.ID(1)),
						id.Of[id.Pool](projectiontest.ID(n%20)), map[string]string{"rack": fmt.Sprint(n / 40)})
					expect := event.Version(0)
					if round > 0 {
						expect, a.Events = event.Version(2+(round-1)*len(life(0))), life(round)
					}
					if _, err := store.Append(b.Context(), a.Stream, expect, event.Meta{At: time.Now(), Principal: "prn_x"}, a.Events...); err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
		events += benchNodes * max(2, min(round, 1)*len(life(0)))
	}
	return db, store, events
}

// BenchmarkRebuild folds the whole log into new tables and swaps them: at least 30,000 events/s of one projection.
func BenchmarkRebuild(b *testing.B) {
	db, store, events := benchStore(b)
	list := []projections.Projection{metalview.New(), history.New(), doctor.New(), authz.New()}
	r, err := projections.NewRunner(db, store, list...)
	if err != nil {
		b.Fatal(err)
	}
	for _, p := range list {
		b.Run(p.Name, func(b *testing.B) {
			for b.Loop() {
				if err := r.Rebuild(b.Context(), p.Name, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(events*b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkCatchUp applies the whole log live, in batches of 1,000.
func BenchmarkCatchUp(b *testing.B) {
	db, store, events := benchStore(b)
	for _, p := range []projections.Projection{metalview.New(), history.New(), doctor.New(), authz.New()} {
		b.Run(p.Name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				projectiontest.Reset(b, db, p)
				r, err := projections.NewRunner(db, store, p)
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if err := r.CatchUp(b.Context(), p.Name); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(events*b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkRead reads with 16 callers: at least 8,000 nodes/s, 1,000 lists of 100 a second.
func BenchmarkRead(b *testing.B) {
	db, store, _ := benchStore(b)
	r, err := projections.NewRunner(db, store, metalview.New())
	if err != nil {
		b.Fatal(err)
	}
	if err := r.CatchUp(b.Context(), metalview.Name); err != nil {
		b.Fatal(err)
	}
	one := projections.Scope{Tenants: []string{id.Of[id.Tenant](projectiontest.ID(1)).String()}}
	for name, read := range map[string]func(context.Context, int64) error{
		"get": func(ctx context.Context, i int64) error {
			_, err := metalview.Find(ctx, db, id.Of[id.Node](projectiontest.ID(int(i%benchNodes))))
			return err
		},
		"list of 100": func(ctx context.Context, _ int64) error {
			_, err := metalview.ListJSON(ctx, db, metalview.Filter{Scope: projections.Everything}, projections.Page{})
			return err
		},
		"list of 100 of a tenant": func(ctx context.Context, _ int64) error {
			_, err := metalview.ListJSON(ctx, db, metalview.Filter{Scope: one}, projections.Page{})
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			var turn atomic.Int64
			b.SetParallelism(8)
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					if err := read(b.Context(), turn.Add(1)); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reads/s")
		})
	}
}
