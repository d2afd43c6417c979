package metalview_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/better-compute/metal/adapters/eventstore/memory"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/metalview"
	"github.com/better-compute/metal/projections/projectiontest"
	"github.com/better-compute/metal/test/pgtest"
)

func TestMain(m *testing.M) { projectiontest.Main(m) }

var (
	tenants = []id.Tenant{id.Of[id.Tenant](projectiontest.ID(1)), id.Of[id.Tenant](projectiontest.ID(2))}
	site    = id.Of[id.Site](projectiontest.ID(1))
	pools   = []id.Pool{id.Of[id.Pool](projectiontest.ID(1)), id.Of[id.Pool](projectiontest.ID(2))}
)

func newStore(t testing.TB) *memory.Store {
	t.Helper()
	r, err := event.NewRegistry(node.Events)
	if err != nil {
		t.Fatal(err)
	}
	return memory.New(r)
}

// appended adds events to a stream at its end.
func appended(t testing.TB, store event.Store, a projectiontest.Append) event.Position {
	t.Helper()
	held, err := store.Read(t.Context(), a.Stream, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := store.Append(t.Context(), a.Stream, event.Version(len(held)), event.Meta{At: time.Unix(1, 0)}, a.Events...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func enrolled(t testing.TB, store event.Store, n int) id.Node {
	t.Helper()
	labels := map[string]string{"rack": fmt.Sprint(n % 3)}
	if n%2 == 0 {
		labels["gpu"] = "yes"
	}
	appended(t, store, projectiontest.Enroll(n, tenants[n%2], site, pools[n%2], labels))
	return id.Of[id.Node](projectiontest.ID(n))
}

// P5: at every prefix of a random history the row shows the fold of the stream, and live = rebuilt = applied twice.
func TestRowIsTheFoldAtEveryPrefix(t *testing.T) {
	pool, p := pgtest.New(t), metalview.New()
	rapid.Check(t, func(rt *rapid.T) {
		projectiontest.Reset(t, pool, p)
		store := newStore(t)
		runner, err := projections.NewRunner(pool, store, p)
		if err != nil {
			t.Fatal(err)
		}
		for i := range rapid.IntRange(1, 3).Draw(rt, "nodes") {
			enrolled(t, store, i)
		}
		for range rapid.IntRange(0, 12).Draw(rt, "events") {
			n := id.Of[id.Node](projectiontest.ID(rapid.IntRange(0, 2).Draw(rt, "node")))
			held, err := store.Read(t.Context(), node.StreamOf(n), 0)
			if err != nil {
				t.Fatal(err)
			}
			if len(held) == 0 {
				continue
			}
			appended(t, store, projectiontest.Append{
				Stream: node.StreamOf(n), Events: []event.Event{projectiontest.Event(rt, n)},
			})
			if err := runner.CatchUp(t.Context(), p.Name); err != nil {
				rt.Fatal(err)
			}
			shows(t, rt, pool, store, n)
		}
	})
}

// shows compares the view of a node with the fold of its stream.
func shows(t *testing.T, rt *rapid.T, db projections.DB, store event.Store, n id.Node) {
	held, err := store.Read(t.Context(), node.StreamOf(n), 0)
	if err != nil {
		rt.Fatal(err)
	}
	var s node.State
	for _, e := range held {
		s = node.Evolve(s, e.Event.(node.Event))
	}
	last := held[len(held)-1]
	got, err := metalview.Get(t.Context(), db, n)
	if err != nil {
		rt.Fatal(err)
	}
	want := metalview.Of(s, last.Version, last.Position, last.Meta.At)
	if diff := cmp.Diff(asJSON(rt, want), asJSON(rt, got)); diff != "" {
		rt.Fatalf("view (-fold +row):\n%s", diff)
	}
}

func asJSON(t interface{ Fatal(...any) }, v any) string {
	raw, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// However the log is cut and whoever folds it, the rows are the same (P11).
func TestRowsAreAFunctionOfTheLog(t *testing.T) {
	pool := pgtest.New(t)
	rapid.Check(t, func(rt *rapid.T) {
		p, store := metalview.New(), newStore(t)
		projectiontest.Reset(t, pool, p)
		for i := range 4 {
			n := enrolled(t, store, i)
			for range rapid.IntRange(0, 6).Draw(rt, "events") {
				appended(t, store, projectiontest.Append{
					Stream: node.StreamOf(n), Events: []event.Event{projectiontest.Event(rt, n)},
				})
			}
		}
		void := id.Of[id.Node](projectiontest.ID(99))
		appended(t, store, projectiontest.Append{
			Stream: node.StreamOf(void), Events: []event.Event{node.EnrollmentVoided{Node: void, Tenant: tenants[0]}},
		})
		projectiontest.Run(t, pool, store, p)
	})
}

func TestHalfAnEnrollmentAndAVoidedOneDoNotExist(t *testing.T) {
	pool, store, p := pgtest.New(t), newStore(t), metalview.New()
	half := projectiontest.Enroll(1, tenants[0], site, pools[0], nil)
	rest := half.Events[1:]
	half.Events = half.Events[:1]
	appended(t, store, half)
	n := id.Of[id.Node](projectiontest.ID(1))
	projectiontest.CatchUp(t, pool, store, p)
	if _, err := metalview.Get(t.Context(), pool, n); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("half an enrollment: %v, want NOT_FOUND", err)
	}
	appended(t, store, projectiontest.Append{Stream: half.Stream, Events: rest})
	projectiontest.CatchUp(t, pool, store, p)
	if v, err := metalview.Get(t.Context(), pool, n); err != nil || v.Name == "" || v.Provision != node.Enrolling {
		t.Errorf("the whole enrollment: %+v, %v", v, err)
	}
}

// P8 for this view: what refers to a credential is not in it.
func TestViewHoldsNoReferenceToACredential(t *testing.T) {
	pool, store, p := pgtest.New(t), newStore(t), metalview.New()
	n := enrolled(t, store, 1)
	projectiontest.CatchUp(t, pool, store, p)
	row, err := metalview.Find(t.Context(), pool, n)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(row.JSON), "planted") || !strings.Contains(string(row.JSON), `"credentialsSet":true`) {
		t.Errorf("view: %s", row.JSON)
	}
}

func TestNULDoesNotStopTheProjection(t *testing.T) {
	pool, store, p := pgtest.New(t), newStore(t), metalview.New()
	odd := projectiontest.Enroll(1, tenants[0], site, pools[0], map[string]string{"a\x00": "b\x00"})
	first := odd.Events[0].(node.Enrolled)
	first.Name = "na\x00me"
	odd.Events[0] = first
	appended(t, store, odd)
	projectiontest.CatchUp(t, pool, store, p)
	v, err := metalview.Get(t.Context(), pool, first.Node)
	if err != nil || v.Name != first.Name {
		t.Errorf("name %q, %v", v.Name, err)
	}
}

func listAll(t *testing.T, db projections.DB, f metalview.Filter, limit int) []string {
	t.Helper()
	var names []string
	page := projections.Page{Limit: limit}
	for {
		views, next, err := metalview.List(t.Context(), db, f, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range views {
			names = append(names, v.Name)
		}
		if next == "" {
			return names
		}
		page.Cursor = next
	}
}

func TestListFilters(t *testing.T) {
	pool, store, p := pgtest.New(t), newStore(t), metalview.New()
	for i := range 12 {
		n := enrolled(t, store, i)
		if i == 5 {
			appended(t, store, projectiontest.Append{Stream: node.StreamOf(n), Events: []event.Event{
				node.MaintenanceEntered{}, node.Cordoned{}, node.Moved{From: node.Enrolling, To: node.Ready},
			}})
		}
	}
	projectiontest.CatchUp(t, pool, store, p)
	yes, rack := true, "1"
	all := projections.Everything
	node3 := id.Of[id.Node](projectiontest.ID(3)).String()
	for name, c := range map[string]struct {
		filter metalview.Filter
		want   string
	}{
		"everything":  {metalview.Filter{Scope: all}, "11 10 9 8 7 6 5 4 3 2 1 0"},
		"no scope":    {metalview.Filter{}, ""},
		"tenant":      {metalview.Filter{Scope: all, Tenant: tenants[1]}, "11 9 7 5 3 1"},
		"scope":       {metalview.Filter{Scope: projections.Scope{Tenants: []string{tenants[0].String()}, Nodes: []string{node3}}}, "10 8 6 4 3 2 0"},
		"outside":     {metalview.Filter{Scope: projections.Scope{Pools: []string{pools[0].String()}}, Pool: pools[1]}, ""},
		"site":        {metalview.Filter{Scope: projections.Scope{Sites: []string{site.String()}}, Site: site, Pool: pools[0]}, "10 8 6 4 2 0"},
		"state":       {metalview.Filter{Scope: all, States: []node.ProvisionState{node.Ready, node.Failed}}, "5"},
		"maintenance": {metalview.Filter{Scope: all, Maintenance: &yes, Cordoned: &yes}, "5"},
		"label":       {metalview.Filter{Scope: all, Labels: []metalview.Label{{Key: "gpu"}, {Key: "rack", Value: &rack}}}, "10 4"},
		"name":        {metalview.Filter{Scope: all, NamePrefix: "rack0-1"}, "11 10 1"},
		"odd name":    {metalview.Filter{Scope: all, NamePrefix: "rack%'"}, ""},
	} {
		for _, limit := range []int{1, 5, 0} {
			names := listAll(t, pool, c.filter, limit)
			var want []string
			for n := range strings.FieldsSeq(c.want) {
				want = append(want, "rack0-"+n)
			}
			if !slices.Equal(names, want) {
				t.Errorf("%s, limit %d: %v, want %v", name, limit, names, want)
			}
		}
	}
}

func TestPagesStandStillWhileNodesAppear(t *testing.T) {
	pool, store, p := pgtest.New(t), newStore(t), metalview.New()
	for i := range 4 {
		enrolled(t, store, i)
	}
	projectiontest.CatchUp(t, pool, store, p)
	f := metalview.Filter{Scope: projections.Everything}
	first, next, err := metalview.List(t.Context(), pool, f, projections.Page{Limit: 2})
	if err != nil || len(first) != 2 || next == "" {
		t.Fatal(first, next, err)
	}
	enrolled(t, store, 7)
	projectiontest.CatchUp(t, pool, store, p)
	second, next, err := metalview.List(t.Context(), pool, f, projections.Page{Limit: 2, Cursor: next})
	if err != nil || next != "" || len(second) != 2 || second[0].Name != "rack0-1" || second[1].Name != "rack0-0" {
		t.Errorf("second page: %v, %q, %v", second, next, err)
	}
}

func TestListRefusesBadPages(t *testing.T) {
	pool := pgtest.New(t)
	for _, page := range []projections.Page{
		{Limit: -1}, {Limit: 101}, {Cursor: "!"}, {Cursor: "AAAA"}, {Cursor: projections.Cursor("nodes", "node_x' OR 1=1")},
		{Cursor: projections.Cursor("pools", id.Of[id.Node](projectiontest.ID(1)).String())},
	} {
		_, _, err := metalview.List(t.Context(), pool, metalview.Filter{Scope: projections.Everything}, page)
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != fault.InvalidInput || len(f.Issues) != 1 {
			t.Errorf("%+v: %v, want INVALID_INPUT with a path", page, err)
		}
	}
}

func TestParseLabel(t *testing.T) {
	l, err := metalview.ParseLabel("query.label", "a=b=c")
	if err != nil || l.Key != "a" || l.Value == nil || *l.Value != "b=c" {
		t.Errorf("%+v, %v", l, err)
	}
	if l, err = metalview.ParseLabel("query.label", "a"); err != nil || l.Value != nil {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err = metalview.ParseLabel("query.label", "=x"); fault.CodeOf(err) != fault.InvalidInput {
		t.Error(err)
	}
}
