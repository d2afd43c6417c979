package client

import (
	"context"
	"iter"

	"github.com/better-compute/metal/adapters/httpapi/contract"
)

var (
	opWhoAmI           = get("/v1/whoami")
	opCreatePrincipal  = post("/v1/principals")
	opListPrincipals   = get("/v1/principals", "tenant", "limit", "cursor")
	opGetPrincipal     = get("/v1/principals/{id}")
	opEnablePrincipal  = post("/v1/principals/{id}/enable")
	opDisablePrincipal = post("/v1/principals/{id}/disable")
	opIssueToken       = post("/v1/principals/{id}/tokens")
	opRevokeToken      = remove("/v1/principals/{id}/tokens/{tokenId}")
	opBind             = post("/v1/principals/{id}/bindings")
	opUnbind           = remove("/v1/principals/{id}/bindings/{bindingId}")
)

// WhoAmI is the caller as its credential says.
func (c *Client) WhoAmI(ctx context.Context, o ...Option) (contract.WhoAmI, error) {
	return call[contract.WhoAmI](ctx, c, opWhoAmI, nil, nil, nil, o)
}

// CreatePrincipal makes a caller of the API, without a token and without a binding.
func (c *Client) CreatePrincipal(ctx context.Context, in contract.NewPrincipal, o ...Option,
) (contract.Principal, error) {
	return call[contract.Principal](ctx, c, opCreatePrincipal, nil, nil, in, o)
}

// Principals goes through all principals, of one tenant unless it is empty.
func (c *Client) Principals(ctx context.Context, tenant string, o ...Option) iter.Seq2[contract.Principal, error] {
	return pages[contract.Principal](ctx, c, opListPrincipals, nil, given("tenant", tenant), o)
}

// GetPrincipal reads one principal with its tokens, as far as they may be told, and its bindings.
func (c *Client) GetPrincipal(ctx context.Context, principal string, o ...Option) (contract.Principal, error) {
	return call[contract.Principal](ctx, c, opGetPrincipal, []string{principal}, nil, nil, o)
}

// EnablePrincipal lets a principal's tokens work again.
func (c *Client) EnablePrincipal(ctx context.Context, principal string, o ...Option) (contract.Principal, error) {
	return call[contract.Principal](ctx, c, opEnablePrincipal, []string{principal}, nil, contract.Empty{}, o)
}

// DisablePrincipal stops all tokens of a principal.
func (c *Client) DisablePrincipal(ctx context.Context, principal string, o ...Option) (contract.Principal, error) {
	return call[contract.Principal](ctx, c, opDisablePrincipal, []string{principal}, nil, contract.Empty{}, o)
}

// IssueToken makes a bearer token. The answer is the only place that ever holds it.
func (c *Client) IssueToken(ctx context.Context, principal string, in contract.NewToken, o ...Option,
) (contract.IssuedToken, error) {
	return call[contract.IssuedToken](ctx, c, opIssueToken, []string{principal}, nil, in, o)
}

// RevokeToken ends a token.
func (c *Client) RevokeToken(ctx context.Context, principal, token string, o ...Option) (contract.Principal, error) {
	return call[contract.Principal](ctx, c, opRevokeToken, []string{principal, token}, nil, nil, o)
}

// Bind grants actions at a scope.
func (c *Client) Bind(ctx context.Context, principal string, in contract.NewBinding, o ...Option,
) (contract.MadeBinding, error) {
	return call[contract.MadeBinding](ctx, c, opBind, []string{principal}, nil, in, o)
}

// Unbind takes a binding away.
func (c *Client) Unbind(ctx context.Context, principal, binding string, o ...Option) (contract.Principal, error) {
	return call[contract.Principal](ctx, c, opUnbind, []string{principal, binding}, nil, nil, o)
}
