package httpapi

import (
	"context"
	"net/http"
	"slices"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/agents"
)

func (a *API) agentOperations() {
	operate(a, document{
		id: "list-agents", method: http.MethodGet, path: "/v1/agents", tag: "agents",
		summary: "List agents with their last sign of life", gives: pageOf[contract.Agent](),
		more: "Agents of nodes are those whose nodes the caller may read; a site's, those of sites that it may read.",
	}, a.listAgents)
	operate(a, document{
		id: "get-agent", method: http.MethodGet, path: "/v1/agents/{id}", tag: "agents",
		summary: "Read an agent: its last contact, and what it does", gives: oneOf[contract.Agent](),
	}, a.getAgent)
	operate(a, document{
		id: "revoke-agent", method: http.MethodPost, path: "/v1/agents/{id}/revoke", tag: "agents", late: true,
		summary: "Take an agent's certificates away; it can join again with a fresh token only", gives: oneOf[contract.Agent](),
	}, a.revokeAgent)
}

type listAgents struct {
	Fresh
	Paging
	Site string `query:"site"`
	Node string `query:"node"`
	Role string `query:"role" enum:"site,ramdisk,node"`
}

func (a *API) listAgents(ctx context.Context, in *listAgents) (*answer, error) {
	var wrong issues
	f := agents.Filter{
		Site: narrow[id.Site](&wrong, "site", in.Site), Node: narrow[id.Node](&wrong, "node", in.Node), Role: agent.Role(in.Role),
	}
	if in.Role != "" && !slices.Contains(agent.Roles, f.Role) {
		wrong.add("query.role", "one of site, ramdisk, node")
	}
	if err := wrong.err(); err != nil {
		return nil, err
	}
	return listIn(ctx, a, agents.Name, in.Fresh, in.Paging, func(who *Identity) ([]agents.View, string, error) {
		return narrowed(ctx, a, who, around{site: f.Site}, principal.NodesRead, in.Cursor == "",
			func(s projections.Scope) ([]agents.View, string, error) {
				f.Scope = s
				return agents.List(ctx, a.db, f, in.page())
			})
	}, agentOf)
}

func (a *API) getAgent(ctx context.Context, in *one) (*answer, error) {
	of, err := pathID[id.Agent](in.ID)
	if err != nil {
		return nil, err
	}
	return singleIn(ctx, a, agents.Name, in.Fresh, func(who *Identity) (agents.View, error) {
		found, err := agents.Get(ctx, a.db, of)
		if err == nil && !who.Scope(principal.NodesRead).Reaches(found.Place()) {
			err = fault.New(fault.NotFound, "there is no agent %s", of)
		}
		return found, err
	}, agentOf, func(agents.View) event.Version { return 0 })
}

// revokesAgent has no If-Match: whatever an agent did meanwhile, its certificates are taken.
type revokesAgent struct {
	ID string `path:"id"`
	Keyed
	Body *contract.Reason
}

func (a *API) revokeAgent(ctx context.Context, in *revokesAgent) (*answer, error) {
	of, err := pathID[id.Agent](in.ID)
	if err != nil {
		return nil, err
	}
	reason := "revoked by an operator"
	if in.Body != nil && in.Body.Reason != "" {
		reason = in.Body.Reason
	}
	done, err := a.service.RevokeAgent(ctx, creation(ctx), of, reason)
	if err != nil {
		return nil, err
	}
	shown := a.settled(ctx, agents.Name, done.Position)
	view, err := agents.Get(ctx, a.db, of)
	if err != nil {
		return nil, readFault(err)
	}
	body, err := encode(agentOf(view))
	out := &answer{Position: done.Position.String(), Body: body}
	if !shown {
		out.Status = http.StatusAccepted
	}
	return out, err
}

func agentOf(v agents.View) contract.Agent {
	out := contract.Agent{
		ID: v.AgentID, Tenant: v.TenantID, Site: v.SiteID, Node: v.NodeID, Role: string(v.Role), Name: v.Name, Software: v.Version,
		BootID: v.BootID, MACs: v.Claims.MACs, ProductUUID: v.Claims.ProductUUID, Serial: v.Claims.Serial, JoinedAt: v.JoinedAt.UTC(),
		Connected: v.Connected, Doing: v.Doing, Revoked: v.Revoked,
	}
	if v.SessionAt != nil {
		out.SessionAt = moment(*v.SessionAt)
	}
	if v.LastContact != nil {
		out.LastContact = moment(*v.LastContact)
	}
	if v.BootURL != "" {
		out.Boot = &contract.AgentBoot{URL: v.BootURL}
		if v.BootUntil != nil {
			out.Boot.Until = moment(*v.BootUntil)
		}
	}
	return out
}
