package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"time"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/jointoken"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/jointokens"
)

// joinTokenLife is how long a join token is good where its maker does not say.
const joinTokenLife = time.Hour

func (a *API) joinTokenOperations() {
	operate(a, document{
		id: "create-join-token", method: http.MethodPost, path: "/v1/join-tokens", tag: "agents", status: http.StatusCreated, late: true,
		summary: "Make a token with which agents join", gives: oneOf[contract.JoinToken](),
		more: "The token is in this answer and in no other, with the gateway's URL and the SHA-256 of its authority, which the agent " +
			"needs too; only the token's hash is kept. Decided on the site, or on the pool.",
	}, a.createJoinToken)
	operate(a, document{
		id: "list-join-tokens", method: http.MethodGet, path: "/v1/join-tokens", tag: "agents",
		summary: "List join tokens, newest first", gives: pageOf[contract.JoinToken](),
	}, a.listJoinTokens)
	operate(a, document{
		id: "get-join-token", method: http.MethodGet, path: "/v1/join-tokens/{id}", tag: "agents",
		summary: "Read a join token: what it is for, and how often it was used", gives: oneOf[contract.JoinToken](),
	}, a.getJoinToken)
	operate(a, document{
		id: "revoke-join-token", method: http.MethodPost, path: "/v1/join-tokens/{id}/revoke", tag: "agents", late: true,
		summary: "End a join token; agents that have joined stay", gives: oneOf[contract.JoinToken](),
	}, a.revokeJoinToken)
}

func (a *API) createJoinToken(ctx context.Context, in *creates[contract.NewJoinToken]) (*answer, error) {
	facts, err := joinTokenFacts(in.Body, a.clock())
	if err != nil {
		return nil, err
	}
	done, token, err := a.service.MintJoinToken(ctx, creation(ctx), facts)
	if err != nil {
		return nil, err
	}
	out, err := a.joinTokenDone(ctx, done, token)
	return located(out, "/v1/join-tokens/"+done.State.Token.String(), err)
}

func joinTokenFacts(b contract.NewJoinToken, now time.Time) (jointoken.Minted, error) {
	facts := jointoken.Minted{Role: jointoken.Role(b.Role), MaxUses: b.MaxUses, Labels: b.Labels}
	var wrong issues
	given := func(text string, read func() error) {
		if text != "" {
			wrong.take(read())
		}
	}
	given(b.Site, func() (err error) { facts.Site, err = idAt[id.Site]("body.siteId", b.Site); return err })
	given(b.Pool, func() (err error) { facts.Pool, err = idAt[id.Pool]("body.poolId", b.Pool); return err })
	given(b.Node, func() (err error) { facts.Node, err = idAt[id.Node]("body.nodeId", b.Node); return err })
	needed := map[jointoken.Role]string{
		jointoken.RoleSite: b.Site, jointoken.RoleNode: b.Pool, jointoken.RoleDiscovery: b.Node, jointoken.RoleProvisioned: b.Node,
	}
	path := map[jointoken.Role]string{jointoken.RoleSite: "body.siteId", jointoken.RoleNode: "body.poolId"}
	if place, known := needed[facts.Role]; known && place == "" {
		where := path[facts.Role]
		if where == "" {
			where = "body.nodeId"
		}
		wrong.add(where, "needed with role "+b.Role)
	}
	facts.ExpiresAt = now.Add(joinTokenLife)
	if b.TTL > 0 {
		facts.ExpiresAt = now.Add(seconds(int64(b.TTL), jointoken.MaxLife))
	}
	if e := b.Expect; e != nil {
		facts.Expect = jointoken.Expect{MACs: e.MACs, ProductUUID: e.ProductUUID, Serial: e.Serial, GPUUUID: e.GPUUUID}
	}
	return facts, wrong.err()
}

func (a *API) revokeJoinToken(ctx context.Context, in *takes[contract.Reason]) (*answer, error) {
	t, call, err := target[id.JoinToken](ctx, in.ID, in.Matching)
	if err != nil {
		return nil, err
	}
	var reason string
	if in.Body != nil {
		reason = in.Body.Reason
	}
	done, err := a.service.RevokeJoinToken(ctx, call, t, reason)
	if err != nil {
		return nil, err
	}
	return a.joinTokenDone(ctx, done, "")
}

func (a *API) joinTokenDone(ctx context.Context, done commands.JoinTokenOutcome, token string) (*answer, error) {
	s := done.State
	out := contract.JoinToken{
		ID: s.Token.String(), Token: token, Role: string(s.Role), Tenant: s.Tenant.String(), Site: s.Site.String(),
		Expect: expectOf(s.Expect), ExpiresAt: s.ExpiresAt.UTC(), MaxUses: s.MaxUses, Uses: len(s.Uses), Revoked: s.Revoked,
		Version: uint64(done.Version), Position: uint64(done.Position), UpdatedAt: done.At.UTC(),
	}
	if token != "" {
		out.Gateway, out.CASHA256 = a.gateway.URL, a.gateway.CASHA256
	}
	if !id.IsZero(s.Pool) {
		out.Pool = s.Pool.String()
	}
	if !id.IsZero(s.Node) {
		out.Node = s.Node.String()
	}
	return a.done(ctx, jointokens.Name, done.Version, done.Position, out)
}

func expectOf(e jointoken.Expect) *contract.JoinExpect {
	if reflect.ValueOf(e).IsZero() {
		return nil
	}
	return &contract.JoinExpect{MACs: e.MACs, ProductUUID: e.ProductUUID, Serial: e.Serial, GPUUUID: e.GPUUUID}
}

type listJoinTokens struct {
	Fresh
	Paging
	Tenant string `query:"tenant"`
	Site   string `query:"site"`
	Node   string `query:"node"`
}

func (a *API) listJoinTokens(ctx context.Context, in *listJoinTokens) (*answer, error) {
	var wrong issues
	f := jointokens.Filter{
		Tenant: narrow[id.Tenant](&wrong, "tenant", in.Tenant), Site: narrow[id.Site](&wrong, "site", in.Site),
		Node: narrow[id.Node](&wrong, "node", in.Node),
	}
	if err := wrong.err(); err != nil {
		return nil, err
	}
	return listIn(ctx, a, jointokens.Name, in.Fresh, in.Paging, func(who *Identity) ([]jointokens.Token, string, error) {
		return narrowed(ctx, a, who, around{tenant: f.Tenant, site: f.Site}, principal.TokensRead, in.Cursor == "",
			func(s projections.Scope) ([]jointokens.Token, string, error) {
				f.Scope = s
				return jointokens.List(ctx, a.db, f, in.page())
			})
	}, joinTokenOf)
}

func (a *API) getJoinToken(ctx context.Context, in *one) (*answer, error) {
	t, err := pathID[id.JoinToken](in.ID)
	if err != nil {
		return nil, err
	}
	return singleIn(ctx, a, jointokens.Name, in.Fresh, func(who *Identity) (jointokens.Token, error) {
		found, err := jointokens.Get(ctx, a.db, t)
		if err == nil && !who.Scope(principal.TokensRead).Reaches(found.Place()) {
			err = fault.New(fault.NotFound, "there is no join token %s", t)
		}
		return found, err
	}, joinTokenOf, func(t jointokens.Token) event.Version { return t.Version })
}

func joinTokenOf(t jointokens.Token) contract.JoinToken {
	var expect jointoken.Expect
	_ = json.Unmarshal([]byte(t.Expect), &expect) // the projection wrote it
	return contract.JoinToken{
		ID: t.ID, Role: string(t.Role), Tenant: t.Tenant, Site: t.Site, Pool: t.Pool, Node: t.Node, Expect: expectOf(expect),
		ExpiresAt: t.ExpiresAt.UTC(), MaxUses: t.MaxUses, Uses: t.Uses, Revoked: t.Revoked,
		Version: uint64(t.Version), Position: uint64(t.Position), UpdatedAt: t.UpdatedAt.UTC(),
	}
}
