package doctor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/better-compute/metal/adapters/eventstore/memory"
	"github.com/better-compute/metal/domain/claim"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/doctor"
	"github.com/better-compute/metal/projections/projectiontest"
	"github.com/better-compute/metal/test/pgtest"
)

func TestMain(m *testing.M) { projectiontest.Main(m) }

var (
	tenant = id.Of[id.Tenant](projectiontest.ID(1))
	site   = id.Of[id.Site](projectiontest.ID(1))
	pool   = id.Of[id.Pool](projectiontest.ID(1))
	start  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// log is a log whose clock the test sets.
type log struct {
	*memory.Store
	now time.Time
}

func newLog(t testing.TB) *log {
	t.Helper()
	r, err := event.NewRegistry(node.Events, claim.Events, workflow.Events)
	if err != nil {
		t.Fatal(err)
	}
	l := &log{now: start}
	l.Store = memory.NewLog(func() time.Time { return l.now }).Open(r)
	return l
}

func (l *log) append(t testing.TB, s event.Stream, events ...event.Event) {
	t.Helper()
	held, err := l.Read(t.Context(), s, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(t.Context(), s, event.Version(len(held)), event.Meta{}, events...); err != nil {
		t.Fatal(err)
	}
}

func nodeID(n int) id.Node { return id.Of[id.Node](projectiontest.ID(n)) }

func (l *log) enroll(t testing.TB, n int, more ...event.Event) {
	t.Helper()
	a := projectiontest.Enroll(n, tenant, site, pool, nil)
	l.append(t, a.Stream, append(a.Events, more...)...)
}

// claims claims the address of the n-th node.
func (l *log) claim(t testing.TB, n int) claim.Key {
	t.Helper()
	k := claim.Key{Kind: claim.BMCAddress, Scope: site.String(), Value: fmt.Sprintf("10.0.0.%d", n)}
	l.append(t, k.Stream(), claim.Claimed{Key: k, Holder: nodeID(n)})
	return k
}

func subjects(t testing.TB, db projections.DB, in doctor.Input) string {
	t.Helper()
	found, err := doctor.Findings(t.Context(), db, in)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range found {
		if f.Message == "" || f.Remedy == "" || f.Severity == "" || f.Since.IsZero() {
			t.Errorf("incomplete: %+v", f)
		}
		lines = append(lines, string(f.Code)+" "+f.Subject)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func expect(t testing.TB, what, got string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got != strings.Join(want, "\n") {
		t.Errorf("%s: findings\n%s\nwant\n%s", what, got, strings.Join(want, "\n"))
	}
}

func TestMachines(t *testing.T) {
	db, l := pgtest.New(t), newLog(t)
	l.enroll(t, 1)
	l.enroll(t, 2, node.Moved{
		From: node.Enrolling, To: node.Failed, Verb: node.VerbFail, Error: &node.Failure{Code: "DRIVER_ERROR", Message: "no route"},
	})
	l.enroll(t, 3, node.Moved{From: node.Enrolling, To: node.Ready, Verb: node.VerbComplete})
	l.enroll(t, 4, node.Moved{From: node.Deployed, To: node.Rescue, Verb: node.VerbRescue},
		node.Moved{From: node.Rescue, To: node.Rescue, Verb: node.VerbComplete})
	projectiontest.CatchUp(t, db, l, doctor.New())
	in := doctor.Input{Scope: projections.Everything, Now: start.Add(doctor.StalledAfter - time.Second)}
	failed, one := "metal-failed node/"+nodeID(2).String(), "metal-stalled node/"+nodeID(1).String()
	expect(t, "early", subjects(t, db, in), failed)
	in.Now = start.Add(doctor.StalledAfter)
	expect(t, "late", subjects(t, db, in), failed, one)
	in.Stalled = time.Hour
	expect(t, "a longer threshold", subjects(t, db, in), failed)

	l.now = start.Add(10 * time.Minute)
	l.append(t, node.StreamOf(nodeID(1)), node.PowerObserved{Power: node.PowerOn})
	l.append(t, node.StreamOf(nodeID(4)), node.UnrescueAsked{})
	l.append(t, node.StreamOf(nodeID(2)), node.Moved{From: node.Failed, To: node.Enrolling, Verb: node.VerbRecover})
	projectiontest.CatchUp(t, db, l, doctor.New())
	in = doctor.Input{Scope: projections.Everything, Now: start.Add(20 * time.Minute)}
	expect(t, "events since", subjects(t, db, in))
	in.Now = start.Add(25 * time.Minute)
	expect(t, "standing still again", subjects(t, db, in),
		one, "metal-stalled node/"+nodeID(2).String(), "metal-stalled node/"+nodeID(4).String())
	in.Scope = projections.Scope{Nodes: []string{nodeID(4).String()}}
	expect(t, "one node's scope", subjects(t, db, in), "metal-stalled node/"+nodeID(4).String())
	in.Scope = projections.Scope{}
	expect(t, "no scope", subjects(t, db, in))
}

func TestReadModels(t *testing.T) {
	db := pgtest.New(t)
	since, failedAt := start.Add(-time.Minute), start.Add(-time.Second)
	in := doctor.Input{Now: start, Scope: projections.Everything, Statuses: []projections.Status{
		{Projection: "level"}, {Projection: "behind", Behind: 3, Since: &since},
		{Projection: "broken", Error: "no such column", ErrorPosition: 7, FailedAt: &failedAt, Behind: 3, Since: &since},
		{Projection: "just", Behind: 1, Since: &failedAt},
	}}
	expect(t, "all", subjects(t, db, in), "projection-lagging projection/behind", "projection-stopped projection/broken")
	in.Scope = projections.Scope{Tenants: []string{tenant.String()}}
	expect(t, "a tenant", subjects(t, db, in))
}

func TestClaims(t *testing.T) {
	db, l := pgtest.New(t), newLog(t)
	l.enroll(t, 1)
	l.enroll(t, 2, node.Moved{To: node.Retired, Verb: node.VerbAbandon})
	l.append(t, node.StreamOf(nodeID(3)), node.EnrollmentVoided{Node: nodeID(3), Tenant: tenant})
	var keys []claim.Key
	for n := range 6 {
		keys = append(keys, l.claim(t, n)) // 0, 4 and 5 never appear
	}
	l.append(t, keys[5].Stream(), claim.Released{Key: keys[5], Holder: nodeID(5), Reason: "swept"})
	projectiontest.CatchUp(t, db, l, doctor.New())

	early, err := doctor.OrphanedClaims(t.Context(), db, start.Add(-time.Second))
	if err != nil || len(early) != 0 {
		t.Errorf("before the grace: %v, %v", early, err)
	}
	orphans, err := doctor.OrphanedClaims(t.Context(), db, start)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range orphans {
		if o.At != start || o.Position == 0 {
			t.Errorf("%+v", o)
		}
		got = append(got, o.Key.Value+" "+o.Holder.String()+" "+o.Reason)
	}
	slices.Sort(got)
	want := []string{
		"10.0.0.0 " + nodeID(0).String() + " never appeared", "10.0.0.2 " + nodeID(2).String() + " is retired",
		"10.0.0.3 " + nodeID(3).String() + " was never enrolled", "10.0.0.4 " + nodeID(4).String() + " never appeared",
	}
	if !slices.Equal(got, want) {
		t.Errorf("orphans %q, want %q", got, want)
	}
	in := doctor.Input{Now: start.Add(doctor.ClaimGrace), Scope: projections.Scope{Tenants: []string{tenant.String()}}}
	expect(t, "a tenant", subjects(t, db, in),
		"orphaned-claims claim/"+keys[2].String(), "orphaned-claims claim/"+keys[3].String())
	in.Scope = projections.Scope{Sites: []string{site.String()}}
	if n := strings.Count(subjects(t, db, in), "orphaned-claims"); n != 4 {
		t.Errorf("%d orphans of the site, want 4", n)
	}
}

// However the log is cut and whoever folds it, the rows are the same (P11).
func TestRowsAreAFunctionOfTheLog(t *testing.T) {
	db := pgtest.New(t)
	rapid.Check(t, func(rt *rapid.T) {
		projectiontest.Reset(t, db, doctor.New())
		l := newLog(t)
		for n := range 3 {
			k := l.claim(t, n)
			l.now = l.now.Add(time.Second)
			l.enroll(t, n)
			for range rapid.IntRange(0, 6).Draw(rt, "events") {
				l.now = l.now.Add(time.Second)
				l.append(t, node.StreamOf(nodeID(n)), projectiontest.Event(rt, nodeID(n)))
			}
			if rapid.Bool().Draw(rt, "released") {
				l.append(t, k.Stream(), claim.Released{Key: k, Holder: nodeID(n), Reason: "retired"})
			}
		}
		projectiontest.Run(t, db, l, doctor.New())
	})
}
