package client

import (
	"context"
	"iter"

	"github.com/better-compute/metal/adapters/httpapi/contract"
)

var (
	opCreateJoinToken = post("/v1/join-tokens")
	opListJoinTokens  = get("/v1/join-tokens", "tenant", "site", "node", "limit", "cursor")
	opGetJoinToken    = get("/v1/join-tokens/{id}")
	opRevokeJoinToken = post("/v1/join-tokens/{id}/revoke")
	opListAgents      = get("/v1/agents", "site", "node", "role", "limit", "cursor")
	opGetAgent        = get("/v1/agents/{id}")
	opRevokeAgent     = post("/v1/agents/{id}/revoke")
)

// CreateJoinToken makes a token with which agents join. Its text is in this answer and in no other.
func (c *Client) CreateJoinToken(ctx context.Context, in contract.NewJoinToken, o ...Option) (contract.JoinToken, error) {
	return call[contract.JoinToken](ctx, c, opCreateJoinToken, nil, nil, in, o)
}

// GetJoinToken reads one join token.
func (c *Client) GetJoinToken(ctx context.Context, token string, o ...Option) (contract.JoinToken, error) {
	return call[contract.JoinToken](ctx, c, opGetJoinToken, []string{token}, nil, nil, o)
}

// JoinTokens goes through join tokens, newest first; empty narrows nothing.
func (c *Client) JoinTokens(ctx context.Context, tenant, site, node string, o ...Option) iter.Seq2[contract.JoinToken, error] {
	return pages[contract.JoinToken](ctx, c, opListJoinTokens, nil, given("tenant", tenant, "site", site, "node", node), o)
}

// RevokeJoinToken ends a token: nobody joins with it any more; agents that have joined stay.
func (c *Client) RevokeJoinToken(ctx context.Context, token string, in contract.Reason, o ...Option) (contract.JoinToken, error) {
	return call[contract.JoinToken](ctx, c, opRevokeJoinToken, []string{token}, nil, in, o)
}

// GetAgent reads one agent.
func (c *Client) GetAgent(ctx context.Context, agent string, o ...Option) (contract.Agent, error) {
	return call[contract.Agent](ctx, c, opGetAgent, []string{agent}, nil, nil, o)
}

// Agents goes through agents; empty narrows nothing.
func (c *Client) Agents(ctx context.Context, site, node, role string, o ...Option) iter.Seq2[contract.Agent, error] {
	return pages[contract.Agent](ctx, c, opListAgents, nil, given("site", site, "node", node, "role", role), o)
}

// RevokeAgent takes an agent's certificates away: it can join again with a fresh token only.
func (c *Client) RevokeAgent(ctx context.Context, agent string, in contract.Reason, o ...Option) (contract.Agent, error) {
	return call[contract.Agent](ctx, c, opRevokeAgent, []string{agent}, nil, in, o)
}
