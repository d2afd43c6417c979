package contract

import "time"

// NewTenant is a tenant to be created.
type NewTenant struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	Policy TenantPolicy      `json:"policy,omitzero" required:"false"`
}

// TenantPolicy is what a tenant trusts.
type TenantPolicy struct {
	ImageSigners []ImageSigner `json:"imageSigners,omitempty"`
}

// ImageSigner is a key whose signature on an image a tenant trusts.
type ImageSigner struct {
	Name      string `json:"name"`
	PublicKey string `json:"publicKey" doc:"PEM: Ed25519, or ECDSA on P-256"`
}

// ChangeTenantPolicy replaces a tenant's policy.
type ChangeTenantPolicy struct {
	Policy TenantPolicy `json:"policy"`
}

// Tenant is an owner of machines.
type Tenant struct {
	ID        string            `json:"tenantId"`
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels,omitempty"`
	Policy    TenantPolicy      `json:"policy"`
	Version   uint64            `json:"version"`
	Position  uint64            `json:"position"`
	UpdatedAt time.Time         `json:"updatedAt"`
}

// NewSite is a site to be created.
type NewSite struct {
	Tenant string            `json:"tenantId"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	Policy SitePolicy        `json:"policy,omitzero" required:"false"`
}

// SitePolicy is what a site allows.
type SitePolicy struct {
	BMCNetworks []string `json:"bmcNetworks,omitempty" doc:"CIDRs in which its BMCs must lie; none: any address"`
}

// ChangeSitePolicy replaces a site's policy.
type ChangeSitePolicy struct {
	Policy SitePolicy `json:"policy"`
}

// Site is a place with a network of BMCs.
type Site struct {
	ID        string            `json:"siteId"`
	Tenant    string            `json:"tenantId"`
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels,omitempty"`
	Policy    SitePolicy        `json:"policy"`
	Boot      *SiteBoot         `json:"boot,omitempty" doc:"who serves network boot now; absent: nobody, or not known here"`
	Version   uint64            `json:"version"`
	Position  uint64            `json:"position"`
	UpdatedAt time.Time         `json:"updatedAt"`
}

// SiteBoot is the agent that serves a site's network boot: of several one does.
type SiteBoot struct {
	Agent string    `json:"agentId"`
	Until time.Time `json:"until" doc:"another takes over then if it is not heard of"`
}

// NewPool is a pool to be created.
type NewPool struct {
	Tenant string            `json:"tenantId"`
	Site   string            `json:"siteId" doc:"of the tenant, or of the root tenant"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	Policy PoolPolicy        `json:"policy,omitzero" required:"false"`
}

// PoolPolicy is what a pool decides for its nodes.
type PoolPolicy struct {
	Agent             string `json:"agent,omitempty" doc:"required (default) or none"`
	HardwareProfile   string `json:"hardwareProfile,omitempty" doc:"which drivers its nodes use"`
	UnverifiedRelease string `json:"unverifiedRelease,omitempty" doc:"allow-unverified-release, for agent none only"`
}

// ChangePoolPolicy replaces a pool's policy.
type ChangePoolPolicy struct {
	Policy PoolPolicy `json:"policy"`
}

// Pool is a group of nodes at a site under one policy.
type Pool struct {
	ID        string            `json:"poolId"`
	Tenant    string            `json:"tenantId"`
	Site      string            `json:"siteId"`
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels,omitempty"`
	Policy    PoolPolicy        `json:"policy"`
	Version   uint64            `json:"version"`
	Position  uint64            `json:"position"`
	UpdatedAt time.Time         `json:"updatedAt"`
}
