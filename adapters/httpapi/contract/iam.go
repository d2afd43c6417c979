package contract

import "time"

// NewPrincipal is a caller of the API to be created, without a token and without a binding.
type NewPrincipal struct {
	Tenant string `json:"tenantId"`
	Name   string `json:"name"`
	Kind   string `json:"kind" doc:"person or service"`
}

// Principal is a caller of the API.
type Principal struct {
	ID        string    `json:"principalId"`
	Tenant    string    `json:"tenantId"`
	Name      string    `json:"name"`
	Kind      string    `json:"kind"`
	Disabled  bool      `json:"disabled"`
	Tokens    []Token   `json:"tokens" nullable:"false"`
	Bindings  []Binding `json:"bindings" nullable:"false"`
	Version   uint64    `json:"version"`
	Position  uint64    `json:"position"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// Token is what is known of a bearer token. It is not the token.
type Token struct {
	ID        string     `json:"id"`
	Note      string     `json:"note,omitempty"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty" doc:"absent: works until it is revoked"`
}

// NewToken asks for a bearer token.
type NewToken struct {
	Note             string `json:"note,omitempty" doc:"up to 100 characters"`
	ExpiresInSeconds int64  `json:"expiresInSeconds,omitempty" doc:"left out: works until it is revoked"`
}

// IssuedToken is the only answer that holds a token.
type IssuedToken struct {
	Principal string     `json:"principalId"`
	ID        string     `json:"id" doc:"to revoke it"`
	Token     string     `json:"token" doc:"the bearer token, shown this once"`
	Note      string     `json:"note,omitempty"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	Version   uint64     `json:"version" doc:"of the principal"`
	Position  uint64     `json:"position"`
}

// Scope is where a binding grants its actions.
type Scope struct {
	Kind string `json:"kind" doc:"tenant, site, pool or node"`
	ID   string `json:"id" doc:"of the tenant, site, pool or node; the root tenant reaches every tenant"`
}

// NewBinding grants actions at a scope.
type NewBinding struct {
	Actions []string `json:"actions" nullable:"false" doc:"such as compute:nodes:read, compute:nodes:* or *"`
	Scope   Scope    `json:"scope"`
}

// Binding is actions granted at a scope.
type Binding struct {
	ID      string   `json:"id"`
	Actions []string `json:"actions" nullable:"false"`
	Scope   Scope    `json:"scope"`
}

// MadeBinding is the answer to a new binding.
type MadeBinding struct {
	Principal string `json:"principalId"`
	Binding
	Version  uint64 `json:"version" doc:"of the principal"`
	Position uint64 `json:"position"`
}

// WhoAmI is the caller as its credential says.
type WhoAmI struct {
	Principal string    `json:"principalId"`
	Tenant    string    `json:"tenantId,omitempty"`
	Name      string    `json:"name,omitempty"`
	Kind      string    `json:"kind,omitempty"`
	Bindings  []Binding `json:"bindings" nullable:"false"`
}
