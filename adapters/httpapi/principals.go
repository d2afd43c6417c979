package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/authz"
)

func (a *API) principalOperations() {
	document := func(id, method, path, summary string) document {
		return document{
			id: id, method: method, path: path, tag: "principals", summary: summary,
			gives: oneOf[contract.Principal](), late: method != http.MethodGet,
		}
	}
	create := document("create-principal", http.MethodPost, "/v1/principals", "Create a caller of the API")
	create.status = http.StatusCreated
	operate(a, create, a.createPrincipal)
	list := document("list-principals", http.MethodGet, "/v1/principals", "List principals, newest first")
	list.gives, list.more = pageOf[contract.Principal](), "Tokens and bindings are empty in a list."
	operate(a, list, a.listPrincipals)
	operate(a, document("get-principal", http.MethodGet, "/v1/principals/{id}", "Read a principal"), a.getPrincipal)
	operate(a, document("disable-principal", http.MethodPost, "/v1/principals/{id}/disable",
		"Stop all of a principal's tokens"), a.enable(false))
	operate(a, document("enable-principal", http.MethodPost, "/v1/principals/{id}/enable",
		"Let a principal's tokens work again"), a.enable(true))
	issue := document("issue-token", http.MethodPost, "/v1/principals/{id}/tokens", "Make a bearer token")
	issue.gives, issue.status = oneOf[contract.IssuedToken](), http.StatusCreated
	issue.more = "The answer is the only one that holds the token."
	operate(a, issue, a.issueToken)
	operate(a, document("revoke-token", http.MethodDelete, "/v1/principals/{id}/tokens/{tokenId}",
		"End a token"), a.revokeToken)
	bind := document("bind-principal", http.MethodPost, "/v1/principals/{id}/bindings", "Grant actions at a scope")
	bind.gives, bind.status = oneOf[contract.MadeBinding](), http.StatusCreated
	operate(a, bind, a.bind)
	operate(a, document("unbind-principal", http.MethodDelete, "/v1/principals/{id}/bindings/{bindingId}",
		"Take a binding away"), a.unbind)
	who := document("whoami", http.MethodGet, "/v1/whoami", "Read who the credential is")
	who.gives = oneOf[contract.WhoAmI]()
	operate(a, who, a.whoAmI)
}

func (a *API) createPrincipal(ctx context.Context, in *creates[contract.NewPrincipal]) (*answer, error) {
	t, err := idAt[id.Tenant]("body.tenantId", in.Body.Tenant)
	if err != nil {
		return nil, err
	}
	done, err := a.service.CreatePrincipal(ctx, creation(ctx), commands.NewPrincipal{
		Tenant: t, Name: in.Body.Name, Kind: principal.Kind(in.Body.Kind),
	})
	if err != nil {
		return nil, err
	}
	out, err := a.principalDone(ctx, done)
	return located(out, "/v1/principals/"+done.State.ID.String(), err)
}

type listPrincipals struct {
	Fresh
	Paging
	Tenant string `query:"tenant"`
}

func (a *API) listPrincipals(ctx context.Context, in *listPrincipals) (*answer, error) {
	var wrong issues
	within := around{tenant: narrow[id.Tenant](&wrong, "tenant", in.Tenant)}
	if err := wrong.err(); err != nil {
		return nil, err
	}
	return listOf(ctx, a, in.Fresh, in.Paging, func(who *Identity) ([]authz.Principal, string, error) {
		return narrowed(ctx, a, who, within, principal.IAMRead, in.Cursor == "",
			func(s projections.Scope) ([]authz.Principal, string, error) {
				return authz.ListPrincipals(ctx, a.db, s, authz.Around{Tenant: within.tenant}, in.page())
			})
	}, principalOf)
}

func (a *API) getPrincipal(ctx context.Context, in *one) (*answer, error) {
	p, err := pathID[id.Principal](in.ID)
	if err != nil {
		return nil, err
	}
	return single(ctx, a, in.Fresh, func(who *Identity) (authz.Principal, error) {
		return authz.GetPrincipal(ctx, a.db, who.Scope(principal.IAMRead), p)
	}, principalOf, func(p authz.Principal) event.Version { return p.Version })
}

// changes is the input of a mutation of a principal without parameters.
type changes = takes[contract.Empty]

func (a *API) enable(on bool) func(context.Context, *changes) (*answer, error) {
	return func(ctx context.Context, in *changes) (*answer, error) {
		p, call, err := target[id.Principal](ctx, in.ID, in.Matching)
		if err != nil {
			return nil, err
		}
		done, err := a.service.SetPrincipalEnabled(ctx, call, p, on)
		if err != nil {
			return nil, err
		}
		return a.principalDone(ctx, done)
	}
}

func (a *API) issueToken(ctx context.Context, in *takes[contract.NewToken]) (*answer, error) {
	p, call, err := target[id.Principal](ctx, in.ID, in.Matching)
	if err != nil {
		return nil, err
	}
	var asked contract.NewToken
	if in.Body != nil {
		asked = *in.Body
	}
	done, tokenID, secret, err := a.service.IssueToken(ctx, call, p, asked.Note, seconds(asked.ExpiresInSeconds, commands.MaxTokenLife))
	if err != nil {
		return nil, err
	}
	issued := contract.IssuedToken{
		Principal: done.State.ID.String(), ID: tokenID.String(), Token: secret, Note: asked.Note,
		ExpiresAt: done.State.Tokens[tokenID].ExpiresAt, Version: uint64(done.Version), Position: uint64(done.Position),
	}
	out, err := a.iamDone(ctx, done, issued)
	if err == nil {
		out.CacheControl = "no-store"
	}
	return out, err
}

// seconds is a life in seconds; one that no duration holds is longer than most, which is the longest that is allowed.
func seconds(n int64, most time.Duration) time.Duration {
	if n > int64(most/time.Second) {
		return most + time.Second
	}
	return time.Duration(max(n, -1)) * time.Second
}

type revokeToken struct {
	ID    string `path:"id"`
	Token string `path:"tokenId"`
	Matching
}

func (a *API) revokeToken(ctx context.Context, in *revokeToken) (*answer, error) {
	var wrong issues
	p, call, err := target[id.Principal](ctx, in.ID, in.Matching)
	wrong.take(err)
	t, err := idAt[id.Token]("path.tokenId", in.Token)
	wrong.take(err)
	if err := wrong.err(); err != nil {
		return nil, err
	}
	done, err := a.service.RevokeToken(ctx, call, p, t)
	if err != nil {
		return nil, err
	}
	return a.principalDone(ctx, done)
}

func (a *API) bind(ctx context.Context, in *needs[contract.NewBinding]) (*answer, error) {
	p, call, err := target[id.Principal](ctx, in.ID, in.Matching)
	if err != nil {
		return nil, err
	}
	actions := make([]principal.Pattern, len(in.Body.Actions))
	for i, action := range in.Body.Actions {
		actions[i] = principal.Pattern(action)
	}
	scope := principal.Scope{Kind: principal.ScopeKind(in.Body.Scope.Kind), ID: in.Body.Scope.ID}
	done, b, err := a.service.Bind(ctx, call, p, actions, scope)
	if err != nil {
		return nil, err
	}
	return a.iamDone(ctx, done, contract.MadeBinding{
		Principal: done.State.ID.String(), Binding: bindingOf(done.State.Bindings[b]),
		Version: uint64(done.Version), Position: uint64(done.Position),
	})
}

type unbind struct {
	ID      string `path:"id"`
	Binding string `path:"bindingId"`
	Matching
}

func (a *API) unbind(ctx context.Context, in *unbind) (*answer, error) {
	var wrong issues
	p, call, err := target[id.Principal](ctx, in.ID, in.Matching)
	wrong.take(err)
	b, err := idAt[id.Binding]("path.bindingId", in.Binding)
	wrong.take(err)
	if err := wrong.err(); err != nil {
		return nil, err
	}
	done, err := a.service.Unbind(ctx, call, p, b)
	if err != nil {
		return nil, err
	}
	return a.principalDone(ctx, done)
}

func (a *API) whoAmI(ctx context.Context, _ *struct{}) (*answer, error) {
	c := requestOf(ctx).who.Caller
	who := contract.WhoAmI{
		Principal: c.Principal.String(), Tenant: c.Tenant.String(), Name: c.Name, Kind: string(c.Kind),
		Bindings: []contract.Binding{},
	}
	for _, b := range c.Bindings {
		who.Bindings = append(who.Bindings, bindingOf(b))
	}
	body, err := encode(who)
	return &answer{Body: body}, err
}
