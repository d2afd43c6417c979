package images_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/better-compute/metal/adapters/eventstore/memory"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/image"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/images"
	"github.com/better-compute/metal/projections/projectiontest"
	"github.com/better-compute/metal/test/pgtest"
)

func TestMain(m *testing.M) { projectiontest.Main(m) }

func imageID(n int) id.Image   { return id.Of[id.Image](projectiontest.ID(n)) }
func tenantID(n int) id.Tenant { return id.Of[id.Tenant](projectiontest.ID(n)) }

func newLog(t testing.TB) event.Store {
	t.Helper()
	r, err := event.NewRegistry(image.Events)
	if err != nil {
		t.Fatal(err)
	}
	return memory.New(r)
}

func registered(n int) image.Registered {
	return image.Registered{Facts: image.Facts{
		Image: imageID(n), Tenant: tenantID(n % 2), Name: []string{"ubuntu", "talos"}[n%2], Version: "1", Digest: "sha256:00", Bytes: 7,
		Format: "raw", URL: "https://images/\x00", Signature: []byte{1}, Signer: "build", SignerKey: "PEM", Public: n == 3,
	}}
}

// However the log is cut and whoever folds it, the rows are the same (P11).
func TestRowsAreAFunctionOfTheLog(t *testing.T) {
	db := pgtest.New(t)
	rapid.Check(t, func(rt *rapid.T) {
		projectiontest.Reset(t, db, images.New())
		log := newLog(t)
		for n := range rapid.IntRange(1, 5).Draw(rt, "images") {
			events := []event.Event{registered(n)}
			if rapid.Bool().Draw(rt, "withdrawn") {
				events = append(events, image.Withdrawn{Reason: rapid.StringN(0, 8, 20).Draw(rt, "reason")})
			}
			if _, err := log.Append(t.Context(), image.StreamOf(imageID(n)), 0, event.Meta{}, events...); err != nil {
				rt.Fatal(err)
			}
		}
		projectiontest.Run(t, db, log, images.New())
	})
}

func TestQueries(t *testing.T) {
	db, log := pgtest.New(t), newLog(t)
	for n := range 6 {
		events := []event.Event{registered(n)}
		if n == 4 {
			events = append(events, image.Withdrawn{Reason: "a hole"})
		}
		if _, err := log.Append(t.Context(), image.StreamOf(imageID(n)), 0, event.Meta{}, events...); err != nil {
			t.Fatal(err)
		}
	}
	projectiontest.CatchUp(t, db, log, images.New())
	got, err := images.Get(t.Context(), db, imageID(4))
	if err != nil || !got.Withdrawn || got.Reason != "a hole" || got.Name != "ubuntu" || got.Tenant != tenantID(0).String() || got.Public() {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := images.Get(t.Context(), db, imageID(3)); err != nil || !got.Public() {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := images.Get(t.Context(), db, imageID(9)); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("got %v, want NOT_FOUND", err)
	}
	first := projections.Scope{Tenants: []string{tenantID(0).String()}}
	list(t, db, images.Filter{Scope: projections.Everything}, 5, 3, 2, 1, 0)
	list(t, db, images.Filter{Scope: projections.Everything, Withdrawn: true}, 5, 4, 3, 2, 1, 0)
	list(t, db, images.Filter{Scope: projections.Everything, Tenant: tenantID(1)}, 5, 3, 1)
	list(t, db, images.Filter{Scope: projections.Everything, Name: "ubuntu"}, 2, 0)
	list(t, db, images.Filter{Scope: first}, 3, 2, 0) // and the public one
	list(t, db, images.Filter{Scope: first, Tenant: tenantID(1)}, 3)
	list(t, db, images.Filter{})
	if len(first.Tenants) != 1 {
		t.Error("the caller's scope was changed")
	}
	for _, page := range []projections.Page{{Limit: -1}, {Cursor: "!"}} {
		if _, _, err := images.List(t.Context(), db, images.Filter{Scope: first}, page); fault.CodeOf(err) != fault.InvalidInput {
			t.Errorf("%+v: %v", page, err)
		}
	}
}

// list reads a list by pages of two.
func list(t *testing.T, db projections.DB, f images.Filter, want ...int) {
	t.Helper()
	var got, wanted []string
	for _, n := range want {
		wanted = append(wanted, imageID(n).String())
	}
	for cursor, more := "", true; more; more = cursor != "" {
		page, next, err := images.List(t.Context(), db, f, projections.Page{Limit: 2, Cursor: cursor})
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
