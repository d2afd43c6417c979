package commands

import (
	"context"
	"crypto/subtle"
	"strings"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/jointoken"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/site"
)

// JoinTokenOutcome is what a verb did to a join token.
type JoinTokenOutcome = Outcome[jointoken.State]

// MintJoinToken makes a token with which agents join: jtk_<26 characters>.<secret>. It is returned here and never again; the
// log holds its SHA-256. Tenant, site and, for the roles that lead to a node, pool are taken from what the facts name; zero
// MaxUses is one. Decided on the site, or on the pool. The same call.Command again gives the same token.
func (s *Service) MintJoinToken(ctx context.Context, call Call, facts jointoken.Minted) (JoinTokenOutcome, string, error) {
	facts, on, err := s.placeToken(ctx, facts)
	if err != nil {
		return JoinTokenOutcome{}, "", err
	}
	if err := s.auth.Allow(call.Actor, principal.TokensWrite, on); err != nil {
		if fault.CodeOf(err) == fault.NotFound && !id.IsZero(facts.Node) {
			err = noNode(facts.Node) // whoever may not see it does not hear of its pool
		}
		return JoinTokenOutcome{}, "", err
	}
	var wrong issues
	wrong.labels("body.labels", facts.Labels)
	if err := wrong.err(); err != nil {
		return JoinTokenOutcome{}, "", err
	}
	facts.Token = id.Of[id.JoinToken](call.Command)
	secret := s.secrets.Mint(uuid.NewSHA1(call.Command, []byte("join-token")))
	token := facts.Token.String() + "." + strings.TrimPrefix(secret, "metal_")
	facts.Hash, facts.ExpiresAt = TokenHash(token), facts.ExpiresAt.UTC()
	if facts.MaxUses == 0 {
		facts.MaxUses = 1
	}
	done, err := s.onJoinToken(ctx, call, facts.Token, jointoken.Mint{Facts: facts, Now: s.clock()})
	return done, token, err
}

// placeToken finds where a token belongs, and what it is decided on.
func (s *Service) placeToken(ctx context.Context, facts jointoken.Minted) (jointoken.Minted, Resource, error) {
	switch facts.Role {
	case jointoken.RoleSite:
		at, err := load(ctx, s, site.Decider, site.StreamOf(facts.Site))
		if err == nil && !at.state.Exists() {
			err = fault.New(fault.NotFound, "there is no site %s", facts.Site)
		}
		facts.Tenant = at.state.Tenant
		return facts, siteResource(at.state), err
	case jointoken.RoleNode:
		into, err := load(ctx, s, pool.Decider, pool.StreamOf(facts.Pool))
		if err == nil && !into.state.Exists() {
			err = fault.New(fault.NotFound, "there is no pool %s", facts.Pool)
		}
		facts.Tenant, facts.Site = into.state.Tenant, into.state.Site
		return facts, poolResource(into.state), err
	case jointoken.RoleDiscovery, jointoken.RoleProvisioned:
		to, err := load(ctx, s, node.Decider, node.StreamOf(facts.Node))
		if err == nil && !to.state.Exists() {
			err = noNode(facts.Node)
		}
		facts.Tenant, facts.Site = to.state.Tenant, to.state.Site
		return facts, Resource{Kind: OnPool, Tenant: to.state.Tenant, Site: to.state.Site, Pool: to.state.Pool}, err
	}
	return facts, Resource{}, fault.Invalid(fault.Issue{Path: "body.role", Message: "one of node, site, provisioned, discovery"})
}

// RevokeJoinToken ends a token: nobody joins with it any more. Agents that have joined stay. Decided on its site or pool.
func (s *Service) RevokeJoinToken(ctx context.Context, call Call, t id.JoinToken, reason string) (JoinTokenOutcome, error) {
	now, err := s.JoinToken(ctx, t)
	if err != nil {
		return JoinTokenOutcome{}, err
	}
	on := Resource{Kind: OnSite, Tenant: now.Tenant, Site: now.Site, Pool: now.Pool}
	if err := s.auth.Allow(call.Actor, principal.TokensWrite, on); err != nil {
		if fault.CodeOf(err) == fault.NotFound {
			err = noJoinToken(t)
		}
		return JoinTokenOutcome{}, err
	}
	return s.onJoinToken(ctx, call, t, jointoken.Revoke{Reason: reason})
}

// JoinToken is a join token as its stream has it: who made it for what, and who has used it. Errors: NOT_FOUND.
func (s *Service) JoinToken(ctx context.Context, t id.JoinToken) (jointoken.State, error) {
	now, err := load(ctx, s, jointoken.Decider, jointoken.StreamOf(t))
	if err == nil && !now.state.Exists() {
		err = noJoinToken(t)
	}
	return now.state, err
}

func noJoinToken(t id.JoinToken) error {
	return fault.New(fault.NotFound, "there is no join token %s", t)
}

// presented finds the token that an agent presents: the token itself names its stream. One that is not known and one that is
// wrong are told in the same words.
func (s *Service) presented(ctx context.Context, token string) (jointoken.State, error) {
	unknown := fault.New(fault.Unauthenticated, "the join token is not known").WithRemedy("ask for a fresh join token")
	name, _, whole := strings.Cut(token, ".")
	t, err := id.Parse[id.JoinToken](name)
	if err != nil || !whole {
		return jointoken.State{}, unknown
	}
	now, err := s.JoinToken(ctx, t)
	switch {
	case fault.CodeOf(err) == fault.NotFound:
		return jointoken.State{}, unknown
	case err != nil:
		return jointoken.State{}, err
	case subtle.ConstantTimeCompare([]byte(now.Hash), []byte(TokenHash(token))) != 1:
		return jointoken.State{}, unknown
	}
	return now, nil
}

func (s *Service) onJoinToken(ctx context.Context, call Call, t id.JoinToken, c jointoken.Command) (JoinTokenOutcome, error) {
	return handle(ctx, s, call, request[jointoken.State, jointoken.Command, jointoken.Event]{
		decider:   jointoken.Decider,
		stream:    jointoken.StreamOf(t),
		authorize: func(jointoken.State) error { return nil }, // decided on its site or pool, or by the token itself
		decide:    func(jointoken.State, event.Version) (jointoken.Command, error) { return c, nil },
		meta: func(state jointoken.State) event.Meta {
			return event.Meta{Tenant: state.Tenant.String(), Subject: "token/" + state.Token.String()}
		},
	})
}
