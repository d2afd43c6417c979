package commands

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/site"
)

// PrincipalOutcome is what a verb did to a principal.
type PrincipalOutcome = Outcome[principal.State]

// NewPrincipal is a principal to be created.
type NewPrincipal struct {
	Tenant id.Tenant
	Name   string
	Kind   principal.Kind
}

// CreatePrincipal makes a caller of the API, without a token and without a binding. Decided on the tenant.
func (s *Service) CreatePrincipal(ctx context.Context, call Call, in NewPrincipal) (PrincipalOutcome, error) {
	if err := s.auth.Allow(call.Actor, principal.IAMWrite, tenantResource(in.Tenant)); err != nil {
		return PrincipalOutcome{}, err
	}
	if err := s.existingTenant(ctx, in.Tenant); err != nil {
		return PrincipalOutcome{}, err
	}
	if err := checkNamed(in.Name, nil); err != nil {
		return PrincipalOutcome{}, err
	}
	p := id.Of[id.Principal](call.Command)
	create := principal.Create{Facts: principal.Created{Principal: p, Tenant: in.Tenant, Name: in.Name, Kind: in.Kind}}
	return s.onPrincipal(ctx, call, p, create)
}

// SetPrincipalEnabled stops or allows all of a principal's tokens.
func (s *Service) SetPrincipalEnabled(ctx context.Context, call Call, p id.Principal, enabled bool) (PrincipalOutcome, error) {
	if enabled {
		return s.onPrincipal(ctx, call, p, principal.Enable{})
	}
	if p == Administrator {
		return PrincipalOutcome{}, lastResort("can't be disabled")
	}
	return s.onPrincipal(ctx, call, p, principal.Disable{})
}

// MaxTokenLife bounds how long a token may live.
const MaxTokenLife = 10 * 365 * 24 * time.Hour

// IssueToken makes a bearer token. It is returned here and never again; the log holds its SHA-256. life is how long it
// works; zero is until it is revoked. The same call.Command again gives the same token.
func (s *Service) IssueToken(ctx context.Context, call Call, p id.Principal, note string, life time.Duration,
) (PrincipalOutcome, id.Token, string, error) {
	var wrong issues
	if len(note) > maxName {
		wrong.add("body.note", "at most %d characters", maxName)
	}
	if life < 0 || life > MaxTokenLife {
		wrong.add("body.expiresInSeconds", "from 1 to %d, or left out", int64(MaxTokenLife/time.Second))
	}
	if err := wrong.err(); err != nil {
		return PrincipalOutcome{}, id.Token{}, "", err
	}
	secret := s.secrets.Mint(call.Command)
	token := principal.Token{ID: id.Of[id.Token](call.Command), Hash: TokenHash(secret), Note: note}
	if life > 0 {
		ends := s.clock().Add(life).UTC().Truncate(time.Second)
		token.ExpiresAt = &ends
	}
	done, err := s.onPrincipal(ctx, call, p, principal.IssueToken{Token: token})
	return done, token.ID, secret, err
}

// TokenHash is what the log holds of a bearer token: its SHA-256 in lower-case hexadecimal. The token has 256 random bits,
// so that nothing slower is needed.
func TokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// RevokeToken ends a token.
func (s *Service) RevokeToken(ctx context.Context, call Call, p id.Principal, t id.Token) (PrincipalOutcome, error) {
	return s.onPrincipal(ctx, call, p, principal.RevokeToken{Token: t})
}

// Bind grants actions at a scope. Decided on the principal's tenant and on the tenant of the scope.
func (s *Service) Bind(ctx context.Context, call Call, p id.Principal, actions []principal.Pattern, scope principal.Scope,
) (PrincipalOutcome, id.Binding, error) {
	b := principal.Binding{ID: id.Of[id.Binding](call.Command), Actions: actions, Scope: scope}
	owner, err := s.tenantOf(ctx, scope)
	if err == nil {
		err = s.auth.Allow(call.Actor, principal.IAMWrite, tenantResource(owner))
		if fault.CodeOf(err) == fault.NotFound { // of the scope, never of the tenant that the caller did not name
			_, err = present(owner, false, scope, nil)
		}
	}
	if err != nil {
		return PrincipalOutcome{}, b.ID, err
	}
	done, err := s.onPrincipal(ctx, call, p, principal.Bind{Binding: b})
	return done, b.ID, err
}

// Unbind takes a binding away.
func (s *Service) Unbind(ctx context.Context, call Call, p id.Principal, b id.Binding) (PrincipalOutcome, error) {
	if p == Administrator && b == administratorBinding {
		return PrincipalOutcome{}, lastResort("keeps its binding on the root tenant")
	}
	return s.onPrincipal(ctx, call, p, principal.Unbind{Binding: b})
}

// tenantOf finds the tenant that a scope lies in; NOT_FOUND where there is no such thing.
func (s *Service) tenantOf(ctx context.Context, scope principal.Scope) (id.Tenant, error) {
	invalid := func(err error) (id.Tenant, error) {
		return id.Tenant{}, fault.Invalid(fault.Issue{Path: "body.scope.id", Message: err.Error()})
	}
	switch scope.Kind {
	case principal.ScopeTenant:
		t, err := id.Parse[id.Tenant](scope.ID)
		if err != nil {
			return invalid(err)
		}
		return t, s.existingTenant(ctx, t)
	case principal.ScopeSite:
		at, err := id.Parse[id.Site](scope.ID)
		if err != nil {
			return invalid(err)
		}
		l, err := load(ctx, s, site.Decider, site.StreamOf(at))
		return present(l.state.Tenant, l.state.Exists(), scope, err)
	case principal.ScopePool:
		p, err := id.Parse[id.Pool](scope.ID)
		if err != nil {
			return invalid(err)
		}
		l, err := load(ctx, s, pool.Decider, pool.StreamOf(p))
		return present(l.state.Tenant, l.state.Exists(), scope, err)
	case principal.ScopeNode:
		n, err := id.Parse[id.Node](scope.ID)
		if err != nil {
			return invalid(err)
		}
		l, err := load(ctx, s, node.Decider, node.StreamOf(n))
		return present(l.state.Tenant, l.state.Exists(), scope, err)
	default:
		return id.Tenant{}, fault.Invalid(fault.Issue{
			Path: "body.scope.kind", Message: "one of tenant, site, pool, node",
		})
	}
}

func present(t id.Tenant, exists bool, scope principal.Scope, err error) (id.Tenant, error) {
	if err == nil && !exists {
		err = fault.New(fault.NotFound, "there is no %s %s", scope.Kind, scope.ID)
	}
	return t, err
}

func (s *Service) onPrincipal(ctx context.Context, call Call, p id.Principal, c principal.Command) (PrincipalOutcome, error) {
	return handle(ctx, s, call, request[principal.State, principal.Command, principal.Event]{
		decider: principal.Decider,
		stream:  principal.StreamOf(p),
		authorize: func(state principal.State) error {
			if _, creating := c.(principal.Create); creating {
				return nil // decided on the tenant
			}
			return s.auth.Allow(call.Actor, principal.IAMWrite, Resource{Kind: OnPrincipal, Tenant: state.Tenant})
		},
		decide: func(principal.State, event.Version) (principal.Command, error) { return c, nil },
		meta: func(state principal.State) event.Meta {
			return event.Meta{Tenant: state.Tenant.String(), Subject: "principal/" + state.ID.String()}
		},
	})
}
