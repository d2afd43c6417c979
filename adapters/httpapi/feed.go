package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/authz"
)

func (a *API) feed() {
	stream(a, document{
		id: "follow-events", method: http.MethodGet, path: "/v1/events", tag: "events", gives: oneOf[contract.Event](),
		summary: "Follow what happens, as server-sent events",
		more: "The id of an event is its log position; Last-Event-ID resumes after it. A heartbeat comment comes every 15 s. " +
			"A reader that is too slow is cut off, with a last event lagging.",
	}, "text/event-stream", a.follow)
}

type followEvents struct {
	After   string   `query:"after" doc:"the log position to follow from; left out: from now on; 0: from the beginning"`
	Last    string   `header:"Last-Event-ID" doc:"as after, and over it"`
	Tenant  string   `query:"tenant"`
	Subject string   `query:"subject" doc:"such as node/node_01k…"`
	Node    string   `query:"node" doc:"a machine's id: its own events, and those of its workflows and agent commands"`
	Type    []string `query:"type" doc:"types, separated by commas; one that ends in * is a prefix"`
}

// feedFilter says which events a follower is given.
type feedFilter struct {
	scope   projections.Scope
	tenant  string
	subject string
	node    string // as it stands in the data of events that are about the machine but not of its stream
	types   []string
}

func (f feedFilter) takes(e event.Recorded) bool {
	switch {
	case !f.scope.Reaches(projections.Place{Tenant: e.Meta.Tenant}):
		return false
	case f.tenant != "" && f.tenant != e.Meta.Tenant, f.subject != "" && f.subject != e.Meta.Subject:
		return false
	case f.node != "" && e.Meta.Subject != "node/"+f.node && !bytes.Contains(e.Data, []byte(`"nodeId":"`+f.node+`"`)):
		return false
	case len(f.types) == 0:
		return true
	}
	for _, t := range f.types {
		if prefix, wild := strings.CutSuffix(t, "*"); t == e.Type || wild && strings.HasPrefix(e.Type, prefix) {
			return true
		}
	}
	return false
}

// follow checks a request for the feed, and gives what writes it.
func (a *API) follow(ctx context.Context, in *followEvents) (func(huma.Context), error) {
	who := requestOf(ctx).who
	filter := feedFilter{scope: eventScope(who), tenant: in.Tenant, subject: in.Subject, types: in.Type}
	if filter.scope.Empty() {
		return nil, fault.New(fault.Forbidden, "the credential does not allow %s anywhere", principal.EventsRead).
			WithDetail("action", string(principal.EventsRead))
	}
	if err := a.visibleTenant(ctx, filter.scope, in.Tenant); err != nil {
		return nil, err
	}
	if in.Node != "" {
		n, err := idAt[id.Node]("query.node", in.Node)
		if err != nil {
			return nil, err
		}
		filter.node = n.String()
	}
	from, err := a.followFrom(ctx, in)
	if err != nil {
		return nil, err
	}
	if _, running := a.hub.position(); !running {
		return nil, fault.New(fault.Unavailable, "the feed is not running now")
	}
	if requestOf(ctx).head { // a feed never ends: nobody waits for the end of nothing
		return headersOf("text/event-stream"), nil
	}
	leave, err := a.followers.enter(who.Actor.Principal)
	if err != nil {
		return nil, err
	}
	return func(hc huma.Context) {
		defer leave()
		r, w := humachi.Unwrap(hc)
		a.observer.Following(1)
		defer a.observer.Following(-1)
		f := &follower{api: a, r: r, who: who, filter: filter, at: from, told: from, out: newSSE(w, a.writing)}
		f.run(hc.Context())
	}, nil
}

// eventScope is what a caller may follow. Events are decided on by tenant: narrower bindings grant none.
func eventScope(who *Identity) projections.Scope {
	s := who.Scope(principal.EventsRead)
	return projections.Scope{All: s.All, Tenants: s.Tenants}
}

func (a *API) visibleTenant(ctx context.Context, s projections.Scope, text string) error {
	if text == "" {
		return nil
	}
	t, err := idAt[id.Tenant]("query.tenant", text)
	if err != nil {
		return err
	}
	if !s.Reaches(projections.Place{Tenant: text}) {
		return fault.New(fault.NotFound, "there is no %s", t)
	}
	_, err = authz.GetTenant(ctx, a.db, s, t)
	return readFault(err)
}

// followFrom is the position after which a follower begins.
func (a *API) followFrom(ctx context.Context, in *followEvents) (event.Position, error) {
	text, path := in.Last, "header.Last-Event-ID"
	if text == "" {
		text, path = in.After, "query.after"
	}
	head, err := a.store.Head(ctx)
	if err != nil || text == "" {
		return head, logFault(err)
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || text[0] == '+' {
		return 0, fault.Invalid(fault.Issue{Path: path, Message: "a log position"})
	}
	if event.Position(n) > head {
		return 0, fault.Invalid(fault.Issue{Path: path, Message: fmt.Sprintf("the log ends at position %s", head)})
	}
	return event.Position(n), nil
}
