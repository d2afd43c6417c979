package workflowview_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/better-compute/metal/adapters/eventstore/memory"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/projectiontest"
	"github.com/better-compute/metal/projections/workflowview"
	"github.com/better-compute/metal/test/pgtest"
)

func TestMain(m *testing.M) { projectiontest.Main(m) }

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newLog(t testing.TB) event.Store {
	t.Helper()
	r, err := event.NewRegistry(workflow.Events)
	if err != nil {
		t.Fatal(err)
	}
	return memory.NewLog(func() time.Time { return start }).Open(r)
}

func workflowID(n int) id.Workflow { return id.Of[id.Workflow](projectiontest.ID(n)) }
func nodeID(n int) id.Node         { return id.Of[id.Node](projectiontest.ID(n)) }
func tenantID(n int) id.Tenant     { return id.Of[id.Tenant](projectiontest.ID(n)) }

// created makes the n-th workflow, of the n%2-nd tenant and node.
func created(n int) workflow.Created {
	steps := make([]workflow.StepSpec, 3)
	for i := range steps {
		steps[i] = workflow.StepSpec{
			ID: fmt.Sprintf("s%d", i), Phase: workflow.Main, Action: "power.setPower", RunsOn: workflow.ControlPlane, Timeout: time.Minute,
		}
	}
	steps[2].Phase = workflow.Cleanup
	return workflow.Created{
		Ref:    workflow.Ref{Workflow: workflowID(n), Node: nodeID(n % 2), Profile: "metal-inspect", Version: 1},
		Tenant: tenantID(n % 2), Site: id.Of[id.Site](projectiontest.ID(1)), Pool: id.Of[id.Pool](projectiontest.ID(1)),
		Document: json.RawMessage(`{"id":"metal-inspect","note":"\u0000"}`), StepSpecs: steps, At: start,
	}
}

// history applies commands drawn at random, those that are refused left out.
func history(t *rapid.T, n int) []event.Event {
	facts := created(n)
	state, all := workflow.State{}, []event.Event{}
	now := start
	for _, c := range append([]workflow.Command{workflow.Create{Facts: facts}},
		rapid.SliceOfN(rapid.Custom(func(t *rapid.T) workflow.Command { return command(t) }), 0, 12).Draw(t, "commands")...) {
		now = now.Add(time.Second)
		events, err := workflow.Decide(state, timed(c, state, now))
		if err != nil {
			continue
		}
		for _, e := range events {
			state, all = workflow.Evolve(state, e), append(all, e)
		}
	}
	return all
}

func command(t *rapid.T) workflow.Command {
	return rapid.SampledFrom([]workflow.Command{
		workflow.Advance{}, workflow.Advance{}, workflow.Settle{Result: json.RawMessage(`{"power":"on"}`)},
		workflow.Settle{Error: &workflow.Failure{Code: string(fault.DriverError), Message: "no \u0000 answer"}},
		workflow.Abort{Reason: "wrong rack"}, workflow.Pause{}, workflow.Resume{}, workflow.Retry{Run: 2}, workflow.Wait{},
	}).Draw(t, "command")
}

// timed aims a command at the step in flight.
func timed(c workflow.Command, s workflow.State, now time.Time) workflow.Command {
	tick := workflow.Tick{Now: now}
	step := workflow.Step{}
	if in := s.InFlight(); in != nil {
		step = *in
	}
	switch c := c.(type) {
	case workflow.Advance:
		return workflow.Advance{Tick: tick}
	case workflow.Settle:
		return workflow.Settle{Tick: tick, Step: step.ID, Attempt: step.Attempt, Result: c.Result, Error: c.Error}
	case workflow.Wait:
		return workflow.Wait{Step: step.ID, Attempt: step.Attempt}
	case workflow.Abort:
		return workflow.Abort{Tick: tick, Reason: c.Reason}
	default:
		return c
	}
}

// However the log is cut and whoever folds it, the rows are the same, and they are the fold (P5, P11).
func TestRowsAreTheFold(t *testing.T) {
	db := pgtest.New(t)
	rapid.Check(t, func(rt *rapid.T) {
		projectiontest.Reset(t, db, workflowview.New())
		log := newLog(t)
		for n := range 3 {
			for version, e := range history(rt, n) {
				if _, err := log.Append(t.Context(), workflow.StreamOf(workflowID(n)), event.Version(version), event.Meta{}, e); err != nil {
					rt.Fatal(err)
				}
			}
		}
		projectiontest.Run(t, db, log, workflowview.New())
		for n := range 3 {
			same(t, db, log, n)
		}
	})
}

func same(t *testing.T, db projections.DB, log event.Store, n int) {
	t.Helper()
	recorded, err := log.Read(t.Context(), workflow.StreamOf(workflowID(n)), 0)
	if err != nil {
		t.Fatal(err)
	}
	var want workflow.State
	for _, r := range recorded {
		want = workflow.Evolve(want, r.Event.(workflow.Event))
	}
	got, err := workflowview.Get(t.Context(), db, workflowID(n))
	if err != nil {
		t.Fatal(err)
	}
	if want.Document = nil; string(got.Document) == "" {
		t.Error("the profile is gone")
	}
	got.Document, want.StepSpecs = nil, nil
	if diff := cmp.Diff(asJSON(t, want), asJSON(t, got.State)); diff != "" {
		t.Errorf("workflow %d (-fold +row):\n%s", n, diff)
	}
}

// A stream whose first event only a newer program knows makes no row that belongs to nobody.
func TestAStreamWithoutABeginningIsNotShown(t *testing.T) {
	db, log := pgtest.New(t), newLog(t)
	began := workflow.Began{Ref: created(1).Ref, At: start}
	if _, err := log.Append(t.Context(), workflow.StreamOf(workflowID(1)), 0, event.Meta{}, began, began); err != nil {
		t.Fatal(err)
	}
	projectiontest.CatchUp(t, db, log, workflowview.New())
	expect(t, db, workflowview.Filter{Scope: projections.Everything})
	if _, err := workflowview.Get(t.Context(), db, workflowID(1)); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("got %v, want NOT_FOUND", err)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLists(t *testing.T) {
	db, log := pgtest.New(t), newLog(t)
	const all = 5
	for n := range all {
		if _, err := log.Append(t.Context(), workflow.StreamOf(workflowID(all-n)), 0, event.Meta{}, created(all-n)); err != nil {
			t.Fatal(err)
		}
	}
	projectiontest.CatchUp(t, db, log, workflowview.New())
	everything := workflowview.Filter{Scope: projections.Everything}
	// The newest is the one that was made last, whatever its id.
	expect(t, db, everything, 1, 2, 3, 4, 5)
	expect(t, db, workflowview.Filter{Scope: projections.Everything, Node: nodeID(1)}, 1, 3, 5)
	expect(t, db, workflowview.Filter{Scope: projections.Scope{Tenants: []string{tenantID(0).String()}}}, 2, 4)
	expect(t, db, workflowview.Filter{Scope: projections.Scope{Nodes: []string{nodeID(0).String()}}}, 2, 4)
	expect(t, db, workflowview.Filter{})
	expect(t, db, workflowview.Filter{Scope: projections.Everything, Statuses: []workflow.Status{workflow.Failed}})
	expect(t, db, workflowview.Filter{Scope: projections.Everything, Profile: "other"})

	if _, err := workflowview.Get(t.Context(), db, workflowID(9)); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("got %v, want NOT_FOUND", err)
	}
	for _, p := range []projections.Page{{Limit: 101}, {Cursor: "x"}, {Cursor: projections.Cursor("nodes", "1")}} {
		if _, _, err := workflowview.List(t.Context(), db, everything, p); fault.CodeOf(err) != fault.InvalidInput {
			t.Errorf("%+v: got %v, want INVALID_INPUT", p, err)
		}
	}
}

// What goes on at a site is what is not over, and what has ended since: workflow n ends n seconds after the start, but for the first.
func TestActiveAtASite(t *testing.T) {
	db, log := pgtest.New(t), newLog(t)
	at := created(1).Site
	for n := range 4 {
		facts := created(n)
		events := []event.Event{facts}
		if n > 0 {
			events = append(events, workflow.Ended{Ref: facts.Ref, Status: workflow.Succeeded, At: start.Add(time.Duration(n) * time.Second)})
		}
		if _, err := log.Append(t.Context(), workflow.StreamOf(workflowID(n)), 0, event.Meta{}, events...); err != nil {
			t.Fatal(err)
		}
	}
	projectiontest.CatchUp(t, db, log, workflowview.New())
	for after, want := range map[time.Duration][]id.Workflow{
		0:                                {workflowID(0), workflowID(1), workflowID(2), workflowID(3)},
		2 * time.Second:                  {workflowID(0), workflowID(2), workflowID(3)},
		3*time.Second + time.Millisecond: {workflowID(0)},
	} {
		got, err := workflowview.ActiveAt(t.Context(), db, at, start.Add(after))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("since %s: %v, %v", after, got, err)
		}
	}
	if got, err := workflowview.ActiveAt(t.Context(), db, id.Of[id.Site](projectiontest.ID(2)), start); err != nil || len(got) > 0 {
		t.Errorf("at another site: %v, %v", got, err)
	}
}

// expect reads a list by pages of two.
func expect(t *testing.T, db projections.DB, f workflowview.Filter, want ...int) {
	t.Helper()
	var got, wanted []string
	for _, n := range want {
		wanted = append(wanted, workflowID(n).String())
	}
	for cursor, more := "", true; more; more = cursor != "" {
		page, next, err := workflowview.List(t.Context(), db, f, projections.Page{Limit: 2, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range page {
			got = append(got, w.Workflow.String())
		}
		cursor = next
	}
	if !slices.Equal(got, wanted) {
		t.Errorf("%+v: got %v, want %v", f, got, wanted)
	}
}
