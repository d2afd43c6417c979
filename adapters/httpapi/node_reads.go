package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/authz"
	"github.com/better-compute/metal/projections/metalview"
)

func (a *API) nodeReads() {
	a.nodeFields = fieldsOf(reflect.TypeFor[contract.Node]())
	operate(a, document{
		id: "list-nodes", method: http.MethodGet, path: "/v1/nodes", tag: "nodes",
		summary: "List machines, newest first", gives: pageOf[contract.Node](),
	}, a.listNodes)
	operate(a, document{
		id: "get-node", method: http.MethodGet, path: "/v1/nodes/{id}", tag: "nodes",
		summary: "Read a machine, now or as it was", gives: oneOf[contract.Node](),
	}, a.getNode)
	operate(a, document{
		id: "list-node-history", method: http.MethodGet, path: "/v1/nodes/{id}/history", tag: "nodes",
		summary: "List the events of a machine, its workflows and agent commands", gives: pageOf[contract.Event](),
	}, a.listHistory)
	operate(a, document{
		id: "get-node-attestation", method: http.MethodGet, path: "/v1/nodes/{id}/attestation", tag: "nodes",
		summary: "Read the newest attested wipe of a machine's disks, checked again now", gives: oneOf[contract.Attestation](),
	}, a.getAttestation)
	operate(a, document{
		id: "replay-node", method: http.MethodGet, path: "/v1/nodes/{id}/replay", tag: "nodes",
		summary: "Read a machine's state after each of its events", gives: oneOf[contract.Replay](),
		more: "Needs compute:audit:read on the machine's tenant.",
	}, a.replayNode)
}

type getNode struct {
	ID string `path:"id"`
	Fresh
	At string `query:"at" doc:"a time (RFC 3339) or a log position: the machine as it was then"`
}

func (a *API) getNode(ctx context.Context, in *getNode) (*answer, error) {
	n, err := pathID[id.Node](in.ID)
	if err != nil {
		return nil, err
	}
	if err := a.await(ctx, metalview.Name, in.Fresh); err != nil {
		return nil, err
	}
	if in.At != "" {
		return a.nodeAt(ctx, n, in.At)
	}
	reached := a.waiter.Position(metalview.Name)
	row, err := a.nodeRow(ctx, n)
	if err != nil {
		return nil, err
	}
	views := []json.RawMessage{row.JSON}
	err = a.withPresence(ctx, views)
	return &answer{ETag: etag(row.Version), Position: reached.String(), Body: views[0]}, err
}

// nodeRow reads a machine that the caller may see. Errors: NOT_FOUND, in the same words whether it is not there or not for
// this caller.
func (a *API) nodeRow(ctx context.Context, n id.Node) (metalview.Row, error) {
	row, err := metalview.Find(ctx, a.db, n)
	if err != nil {
		return row, readFault(err)
	}
	on, err := resourceAt(row.Place)
	if err != nil {
		return row, err
	}
	return row, a.authorizer.Allow(requestOf(ctx).who.Actor, principal.NodesRead, on)
}

// resourceAt is a node's place as authorization takes it.
func resourceAt(p projections.Place) (commands.Resource, error) {
	on := commands.Resource{Kind: commands.OnNode}
	var wrong [4]error
	on.Tenant, wrong[0] = id.Parse[id.Tenant](p.Tenant)
	on.Site, wrong[1] = id.Parse[id.Site](p.Site)
	on.Pool, wrong[2] = id.Parse[id.Pool](p.Pool)
	on.Node, wrong[3] = id.Parse[id.Node](p.Node)
	for _, err := range wrong {
		if err != nil {
			return on, fmt.Errorf("the place of node %s: %w", p.Node, err)
		}
	}
	return on, nil
}

type listNodes struct {
	Fresh
	Paging
	State       []string `query:"state,explode" doc:"any of these provision states; repeated, or separated by commas"`
	Tenant      string   `query:"tenant"`
	Site        string   `query:"site"`
	Pool        string   `query:"pool"`
	Label       []string `query:"label,explode" doc:"key or key=value; repeated: all of them"`
	Name        string   `query:"name" doc:"the beginning of the name"`
	Maintenance string   `query:"maintenance" enum:"true,false"`
	Cordoned    string   `query:"cordoned" enum:"true,false"`
}

func (a *API) listNodes(ctx context.Context, in *listNodes) (*answer, error) {
	filter, err := in.filter()
	if err != nil {
		return nil, err
	}
	if err := a.await(ctx, metalview.Name, in.Fresh); err != nil {
		return nil, err
	}
	who, reached := requestOf(ctx).who, a.waiter.Position(metalview.Name)
	filter.Scope = who.Scope(principal.NodesRead)
	list, err := metalview.ListJSON(ctx, a.db, filter, in.page())
	if err != nil {
		return nil, readFault(err)
	}
	if len(list.Items) == 0 && in.Cursor == "" {
		if err := a.visible(ctx, who, around{filter.Tenant, filter.Site, filter.Pool}, principal.NodesRead); err != nil {
			return nil, readFault(err)
		}
	}
	if presenceAsked(in.Fields) {
		if err := a.withPresence(ctx, list.Items); err != nil {
			return nil, err
		}
	}
	return a.page(reached, list.Items, list.Next, in.Fields, a.nodeFields)
}

// filter reads the query, and lists everything that is wrong with it.
func (in *listNodes) filter() (metalview.Filter, error) {
	var f metalview.Filter
	var wrong issues
	f.Tenant = narrow[id.Tenant](&wrong, "tenant", in.Tenant)
	f.Site = narrow[id.Site](&wrong, "site", in.Site)
	f.Pool = narrow[id.Pool](&wrong, "pool", in.Pool)
	for i, text := range in.State {
		for _, state := range strings.Split(text, ",") {
			if node.InfoOf(node.ProvisionState(state)).State == "" {
				wrong.add(fmt.Sprintf("query.state[%d]", i), "one of "+states())
			}
			f.States = append(f.States, node.ProvisionState(state))
		}
	}
	for i, text := range in.Label {
		l, err := metalview.ParseLabel(fmt.Sprintf("query.label[%d]", i), text)
		wrong.take(err)
		f.Labels = append(f.Labels, l)
	}
	f.NamePrefix, f.Maintenance, f.Cordoned = in.Name, yesNo(in.Maintenance), yesNo(in.Cordoned)
	return f, wrong.err()
}

func yesNo(text string) *bool {
	if text == "" {
		return nil
	}
	yes := text == "true"
	return &yes
}

func states() string {
	names := make([]string, len(node.States))
	for i, row := range node.States {
		names[i] = string(row.State)
	}
	return strings.Join(names, ", ")
}

// around is what a list is narrowed to; zero ids don't narrow it.
type around struct {
	tenant id.Tenant
	site   id.Site
	pool   id.Pool
}

// visible refuses a filter by something that does not exist for the caller. It is asked only where a list came out empty:
// an item of the list would have shown the same.
func (a *API) visible(ctx context.Context, who *Identity, in around, action principal.Action) error {
	sees := func(p projections.Place, err error, read principal.Action, of fmt.Stringer) error {
		if err != nil || who.Scope(action).Reaches(p) || who.Scope(read).Reaches(p) {
			return err
		}
		return fault.New(fault.NotFound, "there is no %s", of)
	}
	if !id.IsZero(in.tenant) {
		_, err := authz.GetTenant(ctx, a.db, projections.Everything, in.tenant)
		if err := sees(projections.Place{Tenant: in.tenant.String()}, err, principal.TenantsRead, in.tenant); err != nil {
			return err
		}
	}
	if !id.IsZero(in.site) {
		place, err := authz.PlaceOfSite(ctx, a.db, in.site)
		if err := sees(place, err, principal.SitesRead, in.site); err != nil {
			return err
		}
	}
	if id.IsZero(in.pool) {
		return nil
	}
	place, err := authz.PlaceOfPool(ctx, a.db, in.pool)
	return sees(place, err, principal.PoolsRead, in.pool)
}

// fieldsOf lists the JSON names of a struct's fields.
func fieldsOf(t reflect.Type) map[string]bool {
	known := map[string]bool{}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			known[name] = true
		}
	}
	return known
}
