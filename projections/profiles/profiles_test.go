package profiles_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/better-compute/metal/adapters/eventstore/memory"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/profiles"
	"github.com/better-compute/metal/projections/projectiontest"
	"github.com/better-compute/metal/test/pgtest"
)

func TestMain(m *testing.M) { projectiontest.Main(m) }

func tenantID(n int) id.Tenant { return id.Of[id.Tenant](projectiontest.ID(n)) }

func newLog(t testing.TB) event.Store {
	t.Helper()
	r, err := event.NewRegistry(profile.Events)
	if err != nil {
		t.Fatal(err)
	}
	return memory.New(r)
}

func document(name string, version int, public bool) profile.Document {
	return profile.Document{ID: name, Version: version, Target: profile.TargetMetal, Public: public, Description: "with \x00"}
}

// store keeps a version, and says in the public stream whose it is.
func store(t testing.TB, log event.Store, owner int, doc profile.Document, more ...event.Event) {
	t.Helper()
	made := profile.Created{Tenant: tenantID(owner), Document: doc, Digest: fmt.Sprint(doc.Version)}
	events := append([]event.Event{made}, more...)
	if _, err := log.Append(t.Context(), profile.StreamOf(tenantID(owner), doc.ID, doc.Version), 0, event.Meta{}, events...); err != nil {
		t.Fatal(err)
	}
}

// However the log is cut and whoever folds it, the rows are the same (P11).
func TestRowsAreAFunctionOfTheLog(t *testing.T) {
	db := pgtest.New(t)
	rapid.Check(t, func(rt *rapid.T) {
		projectiontest.Reset(t, db, profiles.New())
		log := newLog(t)
		for n := range rapid.IntRange(1, 4).Draw(rt, "profiles") {
			doc := document("web", n+1, rapid.Bool().Draw(rt, "public"))
			var more []event.Event
			for range rapid.IntRange(0, 2).Draw(rt, "replaced") {
				doc.Public = rapid.Bool().Draw(rt, "public")
				more = append(more, profile.Replaced{Tenant: tenantID(n), Document: doc, Digest: "d"})
			}
			if rapid.Bool().Draw(rt, "used") {
				more = append(more, profile.Used{Tenant: tenantID(n), Profile: doc.ID, Version: doc.Version})
			}
			store(t, log, n, doc, more...)
			taken := profile.Published{Tenant: tenantID(n), Profile: doc.ID, Version: doc.Version}
			if _, err := log.Append(t.Context(), profile.PublicStreamOf(doc.ID, doc.Version), 0, event.Meta{}, taken); err != nil {
				rt.Fatal(err)
			}
		}
		projectiontest.Run(t, db, log, profiles.New())
	})
}

func TestQueries(t *testing.T) {
	db, log := pgtest.New(t), newLog(t)
	store(t, log, 0, document("web", 1, false))
	store(t, log, 1, document("web", 2, true), profile.Used{Tenant: tenantID(1), Profile: "web", Version: 2})
	store(t, log, 0, document("web", 2, false))
	store(t, log, 1, document("web", 3, true), profile.Replaced{Tenant: tenantID(1), Document: document("web", 3, false), Digest: "d"})
	store(t, log, 1, document("db", 1, true))
	projectiontest.CatchUp(t, db, log, profiles.New())

	for _, c := range []struct {
		tenant  int
		name    string
		version int
		owner   int // below zero: nothing is found
		found   int
	}{
		{0, "web", 1, 0, 1}, {0, "web", 2, 0, 2}, {0, "web", profiles.Newest, 0, 2}, {0, "web", 3, -1, 0},
		{1, "web", profiles.Newest, 1, 3}, {1, "web", 2, 1, 2}, {1, "web", 1, -1, 0},
		{2, "web", profiles.Newest, 1, 2}, {2, "db", 1, 1, 1}, {2, "none", 1, -1, 0},
	} {
		got, err := profiles.Find(t.Context(), db, tenantID(c.tenant), c.name, c.version)
		if c.owner < 0 {
			if fault.CodeOf(err) != fault.NotFound {
				t.Errorf("%+v: %+v, %v", c, got, err)
			}
			continue
		}
		if err != nil || got.Tenant != tenantID(c.owner).String() || got.ProfileVersion != c.found {
			t.Errorf("%+v: %+v, %v", c, got, err)
		}
	}
	frozen, err := profiles.Find(t.Context(), db, tenantID(1), "web", 2)
	if err != nil || !frozen.Used || !frozen.Public() || frozen.Target != "metal" || frozen.Place().Tenant != tenantID(1).String() {
		t.Errorf("%+v, %v", frozen, err)
	}
	first := projections.Scope{Tenants: []string{tenantID(0).String()}}
	list(t, db, profiles.Filter{Scope: projections.Everything}, "db@1", "web@3", "web@2", "web@2", "web@1")
	list(t, db, profiles.Filter{Scope: projections.Everything, ID: "db"}, "db@1")
	list(t, db, profiles.Filter{Scope: projections.Everything, Tenant: tenantID(0)}, "web@2", "web@1")
	list(t, db, profiles.Filter{Scope: first}, "db@1", "web@2", "web@2", "web@1")
	list(t, db, profiles.Filter{Scope: first, Tenant: tenantID(1)}, "db@1", "web@2")
	list(t, db, profiles.Filter{})
	if len(first.Tenants) != 1 {
		t.Error("the caller's scope was changed")
	}
	for _, page := range []projections.Page{{Limit: -1}, {Cursor: "!"}} {
		if _, _, err := profiles.List(t.Context(), db, profiles.Filter{Scope: first}, page); fault.CodeOf(err) != fault.InvalidInput {
			t.Errorf("%+v: %v", page, err)
		}
	}
}

// list reads a list by pages of two.
func list(t *testing.T, db projections.DB, f profiles.Filter, want ...string) {
	t.Helper()
	var got []string
	for cursor, more := "", true; more; more = cursor != "" {
		page, next, err := profiles.List(t.Context(), db, f, projections.Page{Limit: 2, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range page {
			got = append(got, profile.Name(row.ID, row.ProfileVersion))
		}
		cursor = next
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v: got %v, want %v", f, got, want)
	}
}
