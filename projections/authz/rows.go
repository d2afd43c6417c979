package authz

import (
	"time"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/projections"
)

var (
	tenants    = projections.NewTable[tenantRow]("authz_tenants", "tenant_id")
	sites      = projections.NewTable[siteRow]("authz_sites", "site_id")
	pools      = projections.NewTable[poolRow]("authz_pools", "pool_id")
	nodes      = projections.NewTable[nodeRow]("authz_nodes", "node_id")
	principals = projections.NewTable[principalRow]("authz_principals", "principal_id")
	tokens     = projections.NewTable[tokenRow]("authz_tokens", "token_id")
	bindings   = projections.NewTable[bindingRow]("authz_bindings", "binding_id")
)

type tenantRow struct {
	Tenant    id.Tenant         `json:"tenant_id"`
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels"`
	Policy    string            `json:"policy"` // JSON
	Version   event.Version     `json:"version"`
	Position  event.Position    `json:"position"`
	CreatedAt time.Time         `json:"created_at"`
	UpdatedAt time.Time         `json:"updated_at"`
}

type siteRow struct {
	Site      id.Site           `json:"site_id"`
	Tenant    id.Tenant         `json:"tenant_id"`
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels"`
	Policy    string            `json:"policy"` // JSON
	Version   event.Version     `json:"version"`
	Position  event.Position    `json:"position"`
	CreatedAt time.Time         `json:"created_at"`
	UpdatedAt time.Time         `json:"updated_at"`
}

type poolRow struct {
	Pool      id.Pool           `json:"pool_id"`
	Tenant    id.Tenant         `json:"tenant_id"`
	Site      id.Site           `json:"site_id"`
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels"`
	Policy    string            `json:"policy"` // JSON
	Version   event.Version     `json:"version"`
	Position  event.Position    `json:"position"`
	CreatedAt time.Time         `json:"created_at"`
	UpdatedAt time.Time         `json:"updated_at"`
}

type nodeRow struct {
	Node   id.Node           `json:"node_id"`
	Tenant id.Tenant         `json:"tenant_id"`
	Site   id.Site           `json:"site_id"`
	Pool   id.Pool           `json:"pool_id"`
	Labels map[string]string `json:"labels"`
}

type principalRow struct {
	Principal id.Principal   `json:"principal_id"`
	Tenant    id.Tenant      `json:"tenant_id"`
	Name      string         `json:"name"`
	Kind      principal.Kind `json:"kind"`
	Disabled  bool           `json:"disabled"`
	Version   event.Version  `json:"version"`
	Position  event.Position `json:"position"`
	CreatedAt time.Time      `json:"created_at"`
	UpdatedAt time.Time      `json:"updated_at"`
}

type tokenRow struct {
	Token     id.Token     `json:"token_id"`
	Principal id.Principal `json:"principal_id"`
	Hash      string       `json:"hash"`
	Note      string       `json:"note"`
	ExpiresAt *time.Time   `json:"expires_at"`
	CreatedAt time.Time    `json:"created_at"`
}

type bindingRow struct {
	Binding   id.Binding          `json:"binding_id"`
	Principal id.Principal        `json:"principal_id"`
	Actions   []principal.Pattern `json:"actions"`
	ScopeKind principal.ScopeKind `json:"scope_kind"`
	ScopeID   string              `json:"scope_id"`
	CreatedAt time.Time           `json:"created_at"`
}
