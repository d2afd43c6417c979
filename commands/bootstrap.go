package commands

import (
	"context"
	"strconv"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/tenant"
)

// bootstrap names the commands of the first start, so that several replicas that start at once, and every later start,
// find what the first one did.
var bootstrap = uuid.MustParse("00000000-0000-7000-8000-000000000002")

// Administrator is the first principal. It may do everything everywhere.
var Administrator = id.Of[id.Principal](bootstrap)

// administratorBinding is its binding on the root tenant.
var administratorBinding = id.Of[id.Binding](bootstrap)

// lastResort refuses what would leave nobody who can let anybody in.
func lastResort(what string) error {
	return fault.New(fault.InvalidState, "the first administrator %s: nobody could undo it", what).
		WithRemedy("revoke its tokens instead; a token in --admin-token-file lets it in again at the next start")
}

// Bootstrap makes sure that the root tenant and the first administrator exist, and reports whether the administrator has
// a token. It is idempotent and safe in several replicas at once.
func (s *Service) Bootstrap(ctx context.Context) (hasToken bool, err error) {
	call := Call{Actor: Actor{System: true}, Command: bootstrap}
	if _, err := s.onTenant(ctx, call, tenant.Root, tenant.Create{Facts: tenant.Created{
		Tenant: tenant.Root, Name: "root",
	}}); err != nil {
		return false, err
	}
	if _, err := s.onPrincipal(ctx, call, Administrator, principal.Create{Facts: principal.Created{
		Principal: Administrator, Tenant: tenant.Root, Name: "administrator", Kind: principal.Person,
	}}); err != nil {
		return false, err
	}
	call.Command = uuid.NewSHA1(bootstrap, []byte("bind"))
	done, err := s.onPrincipal(ctx, call, Administrator, principal.Bind{Binding: principal.Binding{
		ID: administratorBinding, Actions: []principal.Pattern{"*"},
		Scope: principal.Scope{Kind: principal.ScopeTenant, ID: tenant.Root.String()},
	}})
	if err != nil {
		return false, err
	}
	now, err := load(ctx, s, principal.Decider, principal.StreamOf(Administrator))
	return len(now.state.Tokens) > 0 || len(done.State.Tokens) > 0, err
}

// GiveAdministratorToken makes a token work for the first administrator. The same token again changes nothing.
func (s *Service) GiveAdministratorToken(ctx context.Context, token, note string) error {
	const least = 32 // characters: 128 bits in hexadecimal
	if len(token) < least {
		return fault.New(fault.InvalidConfig, "the administrator's token holds at least %d characters", least).
			WithRemedy("make one with: openssl rand -hex 32")
	}
	hash := TokenHash(token)
	now, err := load(ctx, s, principal.Decider, principal.StreamOf(Administrator))
	if err != nil {
		return err
	}
	for _, t := range now.state.Tokens {
		if t.Hash == hash {
			return nil
		}
	}
	// Replicas that start together collide on one version; a token that was revoked since is given anew.
	command := uuid.NewSHA1(bootstrap, []byte(hash+"/"+strconv.FormatUint(uint64(now.version), 10)))
	call := Call{Actor: Actor{System: true}, Command: command}
	_, err = s.onPrincipal(ctx, call, Administrator, principal.IssueToken{Token: principal.Token{
		ID: id.Of[id.Token](command), Hash: hash, Note: note,
	}})
	return err
}
