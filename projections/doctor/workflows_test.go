package doctor_test

import (
	"testing"
	"time"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/doctor"
	"github.com/better-compute/metal/projections/projectiontest"
	"github.com/better-compute/metal/test/pgtest"
)

// run appends a workflow of the n-th node with what happened in it.
func (l *log) run(t testing.TB, n int, more ...event.Event) workflow.Ref {
	t.Helper()
	ref := workflow.Ref{Workflow: id.Of[id.Workflow](projectiontest.ID(n)), Node: nodeID(n), Profile: "metal-inspect", Version: 1}
	created := workflow.Created{Ref: ref, Tenant: tenant, Site: site, Pool: pool, At: l.now}
	l.append(t, workflow.StreamOf(ref.Workflow), append([]event.Event{created}, more...)...)
	return ref
}

func TestWorkflows(t *testing.T) {
	db, l := pgtest.New(t), newLog(t)
	deadline := start.Add(time.Minute)
	began := workflow.StepStarted{Step: "inspect.hardware", Attempt: 1, At: start, Deadline: deadline}
	l.run(t, 1, began)
	l.run(t, 2, began, workflow.StepDone{Step: "inspect.hardware", Attempt: 1, At: start})
	failure := workflow.Failure{Code: "DRIVER_ERROR", Message: "no \u0000 answer"}
	ref := l.run(t, 3, began, workflow.StepFaulted{Step: "inspect.hardware", Error: failure, At: start},
		workflow.Ended{Status: workflow.Failed, Error: &failure, At: start})
	l.run(t, 4, began, workflow.Ended{Status: workflow.Succeeded, At: start})
	projectiontest.CatchUp(t, db, l, doctor.New())

	failed, one := "workflows-failed workflow/"+ref.Workflow.String(), "workflows-stuck workflow/"+id.Of[id.Workflow](projectiontest.ID(1)).String()
	in := doctor.Input{Scope: projections.Everything, Now: deadline.Add(doctor.StuckAfter - time.Second)}
	expect(t, "early", subjects(t, db, in), failed)
	in.Now = deadline.Add(doctor.StuckAfter)
	expect(t, "late", subjects(t, db, in), failed, one)
	in.Now = start.Add(24 * time.Hour)
	expect(t, "a day later", subjects(t, db, in), one)
	in.Scope = projections.Scope{Nodes: []string{nodeID(3).String()}}
	expect(t, "another node's scope", subjects(t, db, in))

	l.append(t, workflow.StreamOf(ref.Workflow), workflow.RetriedRun{FromStep: "inspect.hardware", Run: 2})
	projectiontest.CatchUp(t, db, l, doctor.New())
	in = doctor.Input{Scope: projections.Everything, Now: start}
	expect(t, "retried", subjects(t, db, in))
}

// A machine whose workflow does something does not stand still.
func TestAMachineMovesWithItsWorkflow(t *testing.T) {
	db, l := pgtest.New(t), newLog(t)
	serve(t, db, start.Add(24*time.Hour))
	l.enroll(t, 1)
	l.now = start.Add(10 * time.Minute)
	l.run(t, 1)
	projectiontest.CatchUp(t, db, l, doctor.New())
	in := doctor.Input{Scope: projections.Everything, Now: start.Add(doctor.StalledAfter)}
	expect(t, "moving", subjects(t, db, in))
	in.Now = l.now.Add(doctor.StalledAfter)
	expect(t, "stalled", subjects(t, db, in), "metal-stalled node/"+nodeID(1).String())
}
