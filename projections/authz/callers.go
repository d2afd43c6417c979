package authz

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/projections"
)

// Caller is whoever holds a valid token.
type Caller struct {
	Principal id.Principal
	Tenant    id.Tenant
	Name      string
	Kind      principal.Kind
	Token     id.Token
	ExpiresAt *time.Time // of the token; nil: it works until it is revoked
	Bindings  []principal.Binding
}

// Scope is what the caller reaches for one action.
func (c Caller) Scope(action principal.Action) projections.Scope { return ScopeOf(c.Bindings, action) }

const lookup = `SELECT p.principal_id, p.tenant_id, p.name, p.kind, p.disabled, t.token_id, t.expires_at,
		(SELECT json_agg(json_build_object('id', b.binding_id, 'actions', b.actions,
				'scope', json_build_object('kind', b.scope_kind, 'id', b.scope_id)) ORDER BY b.binding_id)
			FROM authz_bindings b WHERE b.principal_id = p.principal_id)
	FROM authz_tokens t JOIN authz_principals p USING (principal_id) WHERE t.hash = $1`

// Lookup finds the caller by the hash of its token (principal.Token.Hash), in one round trip. Errors:
// UNAUTHENTICATED for a token that is not known, expired at now, revoked, or of a disabled principal; the answer
// does not tell which.
func Lookup(ctx context.Context, db projections.DB, hash string, now time.Time) (Caller, error) {
	var c Caller
	var disabled bool
	var bindings []byte
	err := db.QueryRow(ctx, lookup, projections.Text(hash)).
		Scan(&c.Principal, &c.Tenant, &c.Name, &c.Kind, &disabled, &c.Token, &c.ExpiresAt, &bindings)
	switch {
	case err != nil && !errors.Is(err, pgx.ErrNoRows):
		return Caller{}, fmt.Errorf("look up a token: %w", err)
	case err != nil, disabled, c.ExpiresAt != nil && !now.Before(*c.ExpiresAt):
		return Caller{}, fault.New(fault.Unauthenticated, "the token is not valid")
	case bindings == nil:
		return c, nil
	}
	if err := json.Unmarshal(bindings, &c.Bindings); err != nil {
		return Caller{}, fmt.Errorf("bindings of %s: %w", c.Principal, err)
	}
	return c, nil
}

// GetPrincipal reads one principal with its tokens and bindings. Errors: NOT_FOUND, also where the scope does not
// reach its tenant.
func GetPrincipal(ctx context.Context, db projections.DB, s projections.Scope, p id.Principal) (Principal, error) {
	who, err := get(ctx, db, "authz_principals", "principal_id", tenantPlace, s, p, principalRow.resource)
	if err != nil {
		return Principal{}, err
	}
	one := []Principal{who}
	err = credentials(ctx, db, one)
	return one[0], err
}

// credentials fills the tokens and the bindings of principals in, by id, with one query.
func credentials(ctx context.Context, db projections.DB, of []Principal) error {
	if len(of) == 0 {
		return nil
	}
	keys := make([]string, len(of))
	at := make(map[id.Principal]*Principal, len(of))
	for i := range of {
		keys[i], at[of[i].ID] = of[i].ID.String(), &of[i]
	}
	const sql = `SELECT
		(SELECT json_agg(t ORDER BY t.token_id) FROM authz_tokens t WHERE t.principal_id = ANY($1)),
		(SELECT json_agg(b ORDER BY b.binding_id) FROM authz_bindings b WHERE b.principal_id = ANY($1))`
	var held []tokenRow
	var bound []bindingRow
	if err := db.QueryRow(ctx, sql, keys).Scan(&held, &bound); err != nil {
		return fmt.Errorf("read tokens and bindings: %w", err)
	}
	for _, row := range held {
		at[row.Principal].Tokens = append(at[row.Principal].Tokens, row.resource())
	}
	for _, row := range bound {
		b, err := row.resource()
		if err != nil {
			return err
		}
		at[row.Principal].Bindings = append(at[row.Principal].Bindings, b)
	}
	return nil
}

// ListPrincipals reads one page, newest first, with tokens and bindings, and the cursor of the next. Errors:
// INVALID_INPUT for a bad limit or cursor.
func ListPrincipals(
	ctx context.Context, db projections.DB, s projections.Scope, a Around, p projections.Page,
) ([]Principal, string, error) {
	w := &projections.Where{}
	w.Within(s, tenantPlace)
	Around{Tenant: a.Tenant}.where(w)
	found, next, err := page(ctx, db, principalList, w, p)
	if err != nil {
		return nil, "", err
	}
	return found, next, credentials(ctx, db, found)
}

// ListBindings reads one page of the bindings of principals within the scope, newest first, of one principal where
// of is not zero. Errors: INVALID_INPUT for a bad limit or cursor.
func ListBindings(
	ctx context.Context, db projections.DB, s projections.Scope, of id.Principal, p projections.Page,
) ([]Binding, string, error) {
	w := &projections.Where{}
	w.Within(s, projections.Place{
		Tenant: "(SELECT tenant_id FROM authz_principals p WHERE p.principal_id = t.principal_id)",
	})
	if !id.IsZero(of) {
		w.Add("principal_id = {}", of.String())
	}
	return page(ctx, db, bindingList, w, p)
}
