// Package jointokens is the tokens with which agents join, as callers see them: what each is for, and how often it was used.
package jointokens

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/jointoken"
	"github.com/better-compute/metal/projections"
)

// Name is the projection's name, to wait for it.
const Name = "jointokens"

// New is the projection.
func New() projections.Projection {
	return projections.Projection{
		Name: Name, Version: 1, Pace: 200 * time.Millisecond, Consumes: projections.Types(jointoken.Events),
		Tables: []string{"join_tokens"}, Apply: apply,
	}
}

var tokens = projections.NewTable[Token]("join_tokens", "token_id")

// Token is one row.
type Token struct {
	ID             string         `json:"token_id"`
	Tenant         string         `json:"tenant_id"`
	Site           string         `json:"site_id"`
	Pool           string         `json:"pool_id"`
	Node           string         `json:"node_id"`
	Role           jointoken.Role `json:"role"`
	MintedAt       time.Time      `json:"minted_at"`
	MintedPosition event.Position `json:"minted_position"`
	ExpiresAt      time.Time      `json:"expires_at"`
	MaxUses        int            `json:"max_uses"`
	Uses           int            `json:"uses"`
	Revoked        bool           `json:"revoked"`
	Expect         string         `json:"expect"` // JSON of what machine it expects
	Version        event.Version  `json:"version"`
	Position       event.Position `json:"position"`
	UpdatedAt      time.Time      `json:"updated_at"`
}

func apply(ctx context.Context, tx pgx.Tx, batch []event.Recorded) error {
	return tokens.Fold(ctx, tx, batch, (*Token).with)
}

// with is the row after an event; one that the row holds already changes nothing.
func (t *Token) with(e event.Recorded) *Token {
	minted, first := e.Event.(jointoken.Minted)
	switch {
	case t == nil && first:
		t = mintedRow(minted, e)
	case t == nil || e.Version <= t.Version:
		return t
	}
	row := *t
	row.Version, row.Position, row.UpdatedAt = e.Version, e.Position, e.Meta.At
	switch e.Event.(type) {
	case jointoken.Used:
		row.Uses++
	case jointoken.Revoked:
		row.Revoked = true
	}
	return &row
}

func mintedRow(m jointoken.Minted, e event.Recorded) *Token {
	row := &Token{
		ID: e.Stream.ID(), Tenant: m.Tenant.String(), Site: m.Site.String(), Role: m.Role, MintedAt: e.Meta.At,
		MintedPosition: e.Position, ExpiresAt: m.ExpiresAt, MaxUses: m.MaxUses, Expect: projections.JSON(m.Expect),
	}
	if !id.IsZero(m.Pool) {
		row.Pool = m.Pool.String()
	}
	if !id.IsZero(m.Node) {
		row.Node = m.Node.String()
	}
	return row
}

// Place says where the token leads to.
func (t Token) Place() projections.Place {
	return projections.Place{Tenant: t.Tenant, Site: t.Site, Pool: t.Pool, Node: t.Node}
}

// Get reads one token. Errors: NOT_FOUND.
func Get(ctx context.Context, db projections.DB, t id.JoinToken) (Token, error) {
	return projections.One[Token](ctx, db, "join token "+t.String(), `SELECT to_json(t) FROM join_tokens t WHERE token_id = $1`, t.String())
}

// Filter bounds a list. Every field that is set must match.
type Filter struct {
	Scope  projections.Scope
	Tenant id.Tenant
	Site   id.Site
	Node   id.Node
}

var list = projections.List[Token]{
	Name: Name, From: `SELECT to_json(t) FROM join_tokens t`, Key: "minted_position", Valid: projections.ValidPosition,
	Scan: projections.ScanJSON[Token], KeyOf: func(t Token) string { return t.MintedPosition.String() },
}

// List reads one page, newest first, and the cursor of the next, empty after the last. Errors: INVALID_INPUT for a bad limit
// or cursor.
func List(ctx context.Context, db projections.DB, f Filter, p projections.Page) ([]Token, string, error) {
	w := &projections.Where{}
	w.Within(f.Scope, projections.Place{Tenant: "tenant_id", Site: "site_id", Pool: "pool_id", Node: "node_id"})
	if !id.IsZero(f.Tenant) {
		w.Add("tenant_id = {}", f.Tenant.String())
	}
	if !id.IsZero(f.Site) {
		w.Add("site_id = {}", f.Site.String())
	}
	if !id.IsZero(f.Node) {
		w.Add("node_id = {}", f.Node.String())
	}
	return list.Page(ctx, db, w, p)
}
