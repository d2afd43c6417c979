package jointokens_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/better-compute/metal/adapters/eventstore/memory"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/jointoken"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/jointokens"
	"github.com/better-compute/metal/projections/projectiontest"
	"github.com/better-compute/metal/test/pgtest"
)

func TestMain(m *testing.M) { projectiontest.Main(m) }

func tokenID(n int) id.JoinToken { return id.Of[id.JoinToken](projectiontest.ID(n)) }
func siteID(n int) id.Site       { return id.Of[id.Site](projectiontest.ID(n)) }

func newLog(t testing.TB) event.Store {
	t.Helper()
	r, err := event.NewRegistry(jointoken.Events)
	if err != nil {
		t.Fatal(err)
	}
	return memory.New(r)
}

func mint(n int) jointoken.Minted {
	return jointoken.Minted{
		Token: tokenID(n), Hash: "a hash that no row holds", Role: jointoken.RoleSite, Tenant: id.Of[id.Tenant](projectiontest.ID(1)),
		Site: siteID(n % 2), MaxUses: 3, ExpiresAt: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC),
		Expect: jointoken.Expect{MACs: []string{"02:00:00:00:00:01"}},
	}
}

// However the log is cut and whoever folds it, the rows are the same (P11).
func TestRowsAreAFunctionOfTheLog(t *testing.T) {
	db := pgtest.New(t)
	rapid.Check(t, func(rt *rapid.T) {
		projectiontest.Reset(t, db, jointokens.New())
		log := newLog(t)
		for n := range 3 {
			events := []event.Event{mint(n)}
			for range rapid.IntRange(0, 4).Draw(rt, "more") {
				events = append(events, rapid.SampledFrom([]event.Event{jointoken.Used{}, jointoken.Revoked{}}).Draw(rt, "event"))
			}
			if _, err := log.Append(t.Context(), jointoken.StreamOf(tokenID(n)), 0, event.Meta{}, events...); err != nil {
				rt.Fatal(err)
			}
		}
		projectiontest.Run(t, db, log, jointokens.New())
	})
}

func TestQueries(t *testing.T) {
	db, log := pgtest.New(t), newLog(t)
	for n := range 5 {
		events := []event.Event{mint(n), jointoken.Used{}, jointoken.Used{}}
		if n == 4 {
			events = append(events, jointoken.Revoked{})
		}
		if _, err := log.Append(t.Context(), jointoken.StreamOf(tokenID(n)), 0, event.Meta{}, events...); err != nil {
			t.Fatal(err)
		}
	}
	projectiontest.CatchUp(t, db, log, jointokens.New())
	got, err := jointokens.Get(t.Context(), db, tokenID(4))
	if err != nil || got.Uses != 2 || !got.Revoked || got.MaxUses != 3 || got.Site != siteID(0).String() {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := jointokens.Get(t.Context(), db, tokenID(9)); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("got %v, want NOT_FOUND", err)
	}
	list(t, db, jointokens.Filter{Scope: projections.Everything}, 4, 3, 2, 1, 0)
	list(t, db, jointokens.Filter{Scope: projections.Everything, Site: siteID(1)}, 3, 1)
	list(t, db, jointokens.Filter{Scope: projections.Scope{Sites: []string{siteID(0).String()}}}, 4, 2, 0)
	list(t, db, jointokens.Filter{})
}

// list reads a list by pages of two.
func list(t *testing.T, db projections.DB, f jointokens.Filter, want ...int) {
	t.Helper()
	var got, wanted []string
	for _, n := range want {
		wanted = append(wanted, tokenID(n).String())
	}
	for cursor, more := "", true; more; more = cursor != "" {
		page, next, err := jointokens.List(t.Context(), db, f, projections.Page{Limit: 2, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range page {
			got = append(got, row.ID)
		}
		cursor = next
	}
	if !slices.Equal(got, wanted) {
		t.Errorf("%+v: got %v, want %v", f, got, wanted)
	}
}
