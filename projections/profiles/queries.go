package profiles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/projections"
)

// Newest is the version that Find takes for the one with the highest number.
const Newest = 0

// Find reads what a version of a profile means for a tenant: its own, else the public one. Errors: NOT_FOUND, which says
// nothing about shipped profiles.
func Find(ctx context.Context, db projections.DB, t id.Tenant, profileID string, version int) (Profile, error) {
	w := &projections.Where{}
	w.Within(projections.Scope{Tenants: []string{t.String(), Public}}, projections.Place{Tenant: "audience"})
	w.Add("profile_id = {}", profileID)
	if version != Newest {
		w.Add("profile_version = {}", version)
	}
	var raw []byte
	sql := `SELECT to_json(p) FROM profiles p` + w.SQL() +
		` ORDER BY profile_version DESC, (tenant_id = ` + w.Arg(t.String()) + `) DESC LIMIT 1`
	err := db.QueryRow(ctx, sql, w.Args()...).Scan(&raw)
	if errors.Is(err, pgx.ErrNoRows) {
		return Profile{}, fault.New(fault.NotFound, "there is no such profile")
	}
	if err != nil {
		return Profile{}, fmt.Errorf("find a profile: %w", err)
	}
	var row Profile
	return row, json.Unmarshal(raw, &row)
}

// Filter bounds a list. Every field that is set must match.
type Filter struct {
	Scope  projections.Scope // what the caller may see, besides public profiles; an empty one sees nothing
	Tenant id.Tenant         // whose
	ID     string            // every version of this one
}

// List reads one page, newest first, and the cursor of the next, empty after the last. Errors: INVALID_INPUT for a bad limit
// or cursor.
func List(ctx context.Context, db projections.DB, f Filter, p projections.Page) ([]Profile, string, error) {
	size, err := p.Size()
	if err != nil {
		return nil, "", err
	}
	after, err := p.After(Name, func(key string) bool {
		_, err := strconv.ParseInt(key, 10, 64)
		return err == nil
	})
	if err != nil || f.Scope.Empty() {
		return nil, "", err
	}
	w := f.where()
	if after != "" {
		w.Add("created_position < {}::bigint", after)
	}
	rows, err := db.Query(ctx, `SELECT to_json(p) FROM profiles p`+w.SQL()+` ORDER BY created_position DESC LIMIT `+w.Arg(size+1),
		w.Args()...)
	if err != nil {
		return nil, "", fmt.Errorf("list profiles: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (p Profile, err error) { return p, r.Scan(&p) })
	if err != nil {
		return nil, "", fmt.Errorf("list profiles: %w", err)
	}
	if len(list) <= size {
		return list, "", nil
	}
	return list[:size], projections.Cursor(Name, strconv.FormatUint(uint64(list[size-1].Created), 10)), nil
}

func (f Filter) where() *projections.Where {
	w, scope := &projections.Where{}, f.Scope
	scope.Tenants = append(slices.Clip(scope.Tenants), Public)
	w.Within(scope, projections.Place{Tenant: "audience"})
	if !id.IsZero(f.Tenant) {
		w.Add("tenant_id = {}", f.Tenant.String())
	}
	if f.ID != "" {
		w.Add("profile_id = {}", f.ID)
	}
	return w
}
