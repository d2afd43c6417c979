package doctor_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/doctor"
	"github.com/better-compute/metal/projections/projectiontest"
	"github.com/better-compute/metal/test/pgtest"
)

// serve has an agent of the site serve network boot until a time.
func serve(t testing.TB, db *pgxpool.Pool, until time.Time) {
	t.Helper()
	_, err := db.Exec(t.Context(), `INSERT INTO boot_leases (site_id, agent_id, boot_id, term, until, revision)
		VALUES ($1, $2, 'b1', 1, $3, 1) ON CONFLICT (site_id) DO UPDATE SET until = excluded.until`,
		site.String(), id.Of[id.Agent](projectiontest.ID(1)).String(), until)
	if err != nil {
		t.Fatal(err)
	}
}

func TestASiteWithoutNetworkBoot(t *testing.T) {
	db, l := pgtest.New(t), newLog(t)
	l.enroll(t, 1)
	l.enroll(t, 2, node.Moved{From: node.Enrolling, To: node.Ready, Verb: node.VerbComplete}) // needs none
	ref := l.run(t, 1)
	projectiontest.CatchUp(t, db, l, doctor.New())
	one := "boot-unserved site/" + site.String()
	in := doctor.Input{Scope: projections.Everything, Now: start.Add(doctor.UnservedAfter - time.Second)}
	expect(t, "nobody ever did, early", subjects(t, db, in))
	in.Now = start.Add(doctor.UnservedAfter)
	expect(t, "nobody ever did", subjects(t, db, in), one)
	in.Scope = projections.Scope{Nodes: []string{nodeID(2).String()}}
	expect(t, "the scope of another machine", subjects(t, db, in))
	in.Scope = projections.Scope{Tenants: []string{tenant.String()}}
	expect(t, "the scope of its tenant", subjects(t, db, in), one)

	in.Scope = projections.Everything
	serve(t, db, in.Now.Add(time.Second))
	expect(t, "somebody does", subjects(t, db, in))
	in.Now = in.Now.Add(doctor.UnservedAfter)
	expect(t, "somebody did a moment ago", subjects(t, db, in))
	in.Now = in.Now.Add(time.Second)
	expect(t, "somebody did", subjects(t, db, in), one)

	l.append(t, workflow.StreamOf(ref.Workflow), workflow.Ended{Status: workflow.Succeeded, At: start})
	projectiontest.CatchUp(t, db, l, doctor.New())
	expect(t, "nothing to boot any more", subjects(t, db, in))
}
