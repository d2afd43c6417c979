package metalview

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/projections"
)

// Row is one machine as stored: where it is, so that a caller's scope can be checked, and its view as JSON.
type Row struct {
	Place   projections.Place
	Version event.Version
	JSON    json.RawMessage // a View
}

// Find reads one machine, in one round trip and without decoding it. Errors: NOT_FOUND.
func Find(ctx context.Context, db projections.DB, n id.Node) (Row, error) {
	const sql = `SELECT tenant_id, site_id, pool_id, version, view FROM metalview_nodes
		WHERE node_id = $1 AND provision_state <> ''`
	row := Row{Place: projections.Place{Node: n.String()}}
	var version int64
	p := &row.Place
	err := db.QueryRow(ctx, sql, p.Node).Scan(&p.Tenant, &p.Site, &p.Pool, &version, &row.JSON)
	if errors.Is(err, pgx.ErrNoRows) {
		return Row{}, fault.New(fault.NotFound, "there is no node %s", n)
	}
	if err != nil {
		return Row{}, fmt.Errorf("read node %s: %w", n, err)
	}
	row.Version = event.Version(version)
	return row, nil
}

// Get reads one machine, in one round trip. Errors: NOT_FOUND.
func Get(ctx context.Context, db projections.DB, n id.Node) (View, error) {
	row, err := Find(ctx, db, n)
	if err != nil {
		return View{}, err
	}
	var v View
	if err := json.Unmarshal(row.JSON, &v); err != nil {
		return View{}, fmt.Errorf("view of node %s: %w", n, err)
	}
	return v, nil
}

// Filter bounds a list. Every field that is set must match; States and Labels: any of the states, all of the labels.
type Filter struct {
	Scope       projections.Scope // what the caller may see
	Tenant      id.Tenant
	Site        id.Site
	Pool        id.Pool
	States      []node.ProvisionState
	Labels      []Label
	NamePrefix  string
	Maintenance *bool
	Cordoned    *bool
}

// Listed is one page: views as JSON, newest first, and the cursor of the next page, empty after the last.
type Listed struct {
	Items []json.RawMessage
	Next  string
}

// item is a view that is not decoded.
type item struct {
	node string
	view json.RawMessage
}

var list = projections.List[item]{
	Name: "nodes", From: `SELECT node_id, view FROM metalview_nodes`, Key: "node_id", Valid: projections.ValidID[id.Node],
	Scan:  func(r pgx.CollectableRow) (i item, err error) { return i, r.Scan(&i.node, &i.view) },
	KeyOf: func(i item) string { return i.node },
}

// ListJSON reads one page without decoding the views. Errors: INVALID_INPUT for a bad limit, cursor or label.
func ListJSON(ctx context.Context, db projections.DB, f Filter, p projections.Page) (Listed, error) {
	items, next, err := list.Page(ctx, db, f.where(), p)
	if err != nil {
		return Listed{}, err
	}
	views := make([]json.RawMessage, len(items))
	for i, it := range items {
		views[i] = it.view
	}
	return Listed{Items: views, Next: next}, nil
}

// List reads one page, newest first, and the cursor of the next, empty after the last. Errors: as ListJSON.
func List(ctx context.Context, db projections.DB, f Filter, p projections.Page) ([]View, string, error) {
	list, err := ListJSON(ctx, db, f, p)
	if err != nil {
		return nil, "", err
	}
	views := make([]View, len(list.Items))
	for i, item := range list.Items {
		if err := json.Unmarshal(item, &views[i]); err != nil {
			return nil, "", fmt.Errorf("list nodes: %w", err)
		}
	}
	return views, list.Next, nil
}

func (f Filter) where() *projections.Where {
	w := &projections.Where{}
	w.Add("provision_state <> {}", string(node.None)) // the first half of an enrollment
	w.Within(f.Scope, projections.Place{Tenant: "tenant_id", Site: "site_id", Pool: "pool_id", Node: "node_id"})
	if !id.IsZero(f.Tenant) {
		w.Add("tenant_id = {}", f.Tenant.String())
	}
	if !id.IsZero(f.Site) {
		w.Add("site_id = {}", f.Site.String())
	}
	if !id.IsZero(f.Pool) {
		w.Add("pool_id = {}", f.Pool.String())
	}
	if len(f.States) > 0 {
		w.Add("provision_state = ANY({})", f.States)
	}
	if f.NamePrefix != "" {
		w.Add("name ^@ {}", f.NamePrefix)
	}
	if f.Maintenance != nil {
		w.Add("maintenance = {}", *f.Maintenance)
	}
	if f.Cordoned != nil {
		w.Add("cordoned = {}", *f.Cordoned)
	}
	for _, l := range f.Labels {
		l.where(w)
	}
	return w
}
