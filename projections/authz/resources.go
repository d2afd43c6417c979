package authz

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/site"
	"github.com/better-compute/metal/domain/tenant"
)

// Tenant is what a caller sees of a tenant.
type Tenant struct {
	ID        id.Tenant         `json:"tenantId"`
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels"`
	Policy    tenant.Policy     `json:"policy"`
	Version   event.Version     `json:"version"`
	Position  event.Position    `json:"position"`
	CreatedAt time.Time         `json:"createdAt"`
	UpdatedAt time.Time         `json:"updatedAt"`
}

// Site is what a caller sees of a site.
type Site struct {
	ID        id.Site           `json:"siteId"`
	Tenant    id.Tenant         `json:"tenantId"`
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels"`
	Policy    site.Policy       `json:"policy"`
	Version   event.Version     `json:"version"`
	Position  event.Position    `json:"position"`
	CreatedAt time.Time         `json:"createdAt"`
	UpdatedAt time.Time         `json:"updatedAt"`
}

// Pool is what a caller sees of a pool.
type Pool struct {
	ID        id.Pool           `json:"poolId"`
	Tenant    id.Tenant         `json:"tenantId"`
	Site      id.Site           `json:"siteId"`
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels"`
	Policy    pool.Policy       `json:"policy"`
	Version   event.Version     `json:"version"`
	Position  event.Position    `json:"position"`
	CreatedAt time.Time         `json:"createdAt"`
	UpdatedAt time.Time         `json:"updatedAt"`
}

// Principal is what a caller sees of a principal. Tokens and Bindings are empty in a list.
type Principal struct {
	ID        id.Principal   `json:"principalId"`
	Tenant    id.Tenant      `json:"tenantId"`
	Name      string         `json:"name"`
	Kind      principal.Kind `json:"kind"`
	Disabled  bool           `json:"disabled"`
	Tokens    []Token        `json:"tokens,omitempty"`
	Bindings  []Binding      `json:"bindings,omitempty"`
	Version   event.Version  `json:"version"`
	Position  event.Position `json:"position"`
	CreatedAt time.Time      `json:"createdAt"`
	UpdatedAt time.Time      `json:"updatedAt"`
}

// Token is what a caller sees of a bearer token: neither the token nor its hash.
type Token struct {
	ID        id.Token   `json:"tokenId"`
	Note      string     `json:"note,omitempty"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	CreatedAt time.Time  `json:"createdAt"`
}

// Binding is what a caller sees of a binding.
type Binding struct {
	ID        id.Binding          `json:"bindingId"`
	Principal id.Principal        `json:"principalId"`
	Actions   []principal.Pattern `json:"actions"`
	Scope     principal.Scope     `json:"scope"`
	CreatedAt time.Time           `json:"createdAt"`
}

func (r tenantRow) resource() (Tenant, error) {
	t := Tenant{
		ID: r.Tenant, Name: r.Name, Labels: r.Labels, Version: r.Version, Position: r.Position,
		CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
	}
	return t, policy(r.Policy, &t.Policy)
}

func (r siteRow) resource() (Site, error) {
	s := Site{
		ID: r.Site, Tenant: r.Tenant, Name: r.Name, Labels: r.Labels, Version: r.Version, Position: r.Position,
		CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
	}
	return s, policy(r.Policy, &s.Policy)
}

func (r poolRow) resource() (Pool, error) {
	p := Pool{
		ID: r.Pool, Tenant: r.Tenant, Site: r.Site, Name: r.Name, Labels: r.Labels, Version: r.Version,
		Position: r.Position, CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
	}
	return p, policy(r.Policy, &p.Policy)
}

func (r principalRow) resource() (Principal, error) {
	return Principal{
		ID: r.Principal, Tenant: r.Tenant, Name: r.Name, Kind: r.Kind, Disabled: r.Disabled, Version: r.Version,
		Position: r.Position, CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
	}, nil
}

func (r tokenRow) resource() Token {
	t := Token{ID: r.Token, Note: r.Note, ExpiresAt: r.ExpiresAt, CreatedAt: r.CreatedAt.UTC()}
	if t.ExpiresAt != nil {
		expires := t.ExpiresAt.UTC()
		t.ExpiresAt = &expires
	}
	return t
}

func (r bindingRow) resource() (Binding, error) {
	return Binding{
		ID: r.Binding, Principal: r.Principal, Actions: r.Actions,
		Scope: principal.Scope{Kind: r.ScopeKind, ID: r.ScopeID}, CreatedAt: r.CreatedAt.UTC(),
	}, nil
}

func policy(text string, into any) error {
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	return nil
}
