package httpapi

import (
	"cmp"
	"context"
	"slices"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/projections/authz"
)

// principalDone answers with a principal as a verb left it.
func (a *API) principalDone(ctx context.Context, done commands.PrincipalOutcome) (*answer, error) {
	s := done.State
	view := contract.Principal{
		ID: s.ID.String(), Tenant: s.Tenant.String(), Name: s.Name, Kind: string(s.Kind), Disabled: s.Disabled,
		Tokens: []contract.Token{}, Bindings: []contract.Binding{},
		Version: uint64(done.Version), Position: uint64(done.Position), UpdatedAt: done.At.UTC(),
	}
	for _, t := range s.Tokens {
		view.Tokens = append(view.Tokens, contract.Token{ID: t.ID.String(), Note: t.Note, ExpiresAt: t.ExpiresAt})
	}
	for _, b := range s.Bindings {
		view.Bindings = append(view.Bindings, bindingOf(b))
	}
	slices.SortFunc(view.Tokens, func(a, b contract.Token) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(view.Bindings, func(a, b contract.Binding) int { return cmp.Compare(a.ID, b.ID) })
	return a.iamDone(ctx, done, view)
}

// iamDone answers with the outcome of a change to a principal, and makes this process forget what it knew of it.
func (a *API) iamDone(ctx context.Context, done commands.PrincipalOutcome, view any) (*answer, error) {
	out, err := a.done(ctx, authz.Name, done.Version, done.Position, view)
	a.tokens.forget(done.State.ID)
	return out, err
}

func principalOf(p authz.Principal) contract.Principal {
	view := contract.Principal{
		ID: p.ID.String(), Tenant: p.Tenant.String(), Name: p.Name, Kind: string(p.Kind), Disabled: p.Disabled,
		Tokens: []contract.Token{}, Bindings: []contract.Binding{},
		Version: uint64(p.Version), Position: uint64(p.Position), UpdatedAt: p.UpdatedAt,
	}
	for _, t := range p.Tokens {
		view.Tokens = append(view.Tokens, contract.Token{ID: t.ID.String(), Note: t.Note, ExpiresAt: t.ExpiresAt})
	}
	for _, b := range p.Bindings {
		view.Bindings = append(view.Bindings, bindingOf(principal.Binding{ID: b.ID, Actions: b.Actions, Scope: b.Scope}))
	}
	return view
}

func bindingOf(b principal.Binding) contract.Binding {
	actions := make([]string, len(b.Actions))
	for i, action := range b.Actions {
		actions[i] = string(action)
	}
	return contract.Binding{
		ID: b.ID.String(), Actions: actions, Scope: contract.Scope{Kind: string(b.Scope.Kind), ID: b.Scope.ID},
	}
}
