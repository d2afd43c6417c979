package profiles

import (
	"context"

	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/projections"
)

// Newest is the version that Find takes for the one with the highest number.
const Newest = 0

// Find reads what a version of a profile means for a tenant: its own, else the public one. Errors: NOT_FOUND, which says
// nothing about shipped profiles.
func Find(ctx context.Context, db projections.DB, t id.Tenant, profileID string, version int) (Profile, error) {
	w := &projections.Where{}
	w.Within(projections.Scope{Tenants: []string{t.String(), projections.Public}}, projections.Place{Tenant: "audience"})
	w.Add("profile_id = {}", profileID)
	if version != Newest {
		w.Add("profile_version = {}", version)
	}
	sql := `SELECT to_json(p) FROM profiles p` + w.SQL() +
		` ORDER BY profile_version DESC, (tenant_id = ` + w.Arg(t.String()) + `) DESC LIMIT 1`
	return projections.One[Profile](ctx, db, "such profile", sql, w.Args()...)
}

// Filter bounds a list. Every field that is set must match.
type Filter struct {
	Scope  projections.Scope // what the caller may see, besides public profiles; an empty one sees nothing
	Tenant id.Tenant         // whose
	ID     string            // every version of this one
}

var list = projections.List[Profile]{
	Name: Name, From: `SELECT to_json(p) FROM profiles p`, Key: "created_position", Valid: projections.ValidPosition,
	Scan: projections.ScanJSON[Profile], KeyOf: func(p Profile) string { return p.Created.String() },
}

// List reads one page, newest first, and the cursor of the next, empty after the last. Errors: INVALID_INPUT for a bad limit
// or cursor.
func List(ctx context.Context, db projections.DB, f Filter, p projections.Page) ([]Profile, string, error) {
	w := &projections.Where{}
	w.Within(f.Scope.OrPublic(), projections.Place{Tenant: "audience"})
	if !id.IsZero(f.Tenant) {
		w.Add("tenant_id = {}", f.Tenant.String())
	}
	if f.ID != "" {
		w.Add("profile_id = {}", f.ID)
	}
	return list.Page(ctx, db, w, p)
}
