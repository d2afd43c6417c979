package agents

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/projections"
)

// View is an agent as it is shown.
type View struct {
	AgentID     string       `json:"agentId"`
	TenantID    string       `json:"tenantId"`
	SiteID      string       `json:"siteId"`
	NodeID      string       `json:"nodeId,omitempty"`
	Role        agent.Role   `json:"role"`
	Name        string       `json:"name,omitempty"`
	Version     string       `json:"version,omitempty"`
	BootID      string       `json:"bootId,omitempty"`
	Claims      agent.Claims `json:"claims,omitzero"`
	Revoked     string       `json:"revoked,omitempty"`
	JoinedAt    time.Time    `json:"joinedAt"`
	SessionAt   *time.Time   `json:"sessionAt,omitempty"`
	LastContact *time.Time   `json:"lastContact,omitempty"`
	Connected   bool         `json:"connected"` // heard of within Alive, not gone on purpose, and not shut out
	Doing       []string     `json:"doing,omitempty"`
	BootURL     string       `json:"bootUrl,omitempty"`   // where it would serve network boot; empty: it does not
	BootUntil   *time.Time   `json:"bootUntil,omitempty"` // it has its site's boot lease
}

// Place says where the agent is, to check a caller's scope.
func (v View) Place() projections.Place {
	return projections.Place{Tenant: v.TenantID, Site: v.SiteID, Node: v.NodeID}
}

const selectView = `SELECT a.agent_id, a.tenant_id, a.site_id, a.node_id, a.role, a.name, a.agent_version, a.boot_id, a.claims, a.revoked,
	a.joined_at, a.session_at, p.last_contact, a.revoked = '' AND ` + present + `, coalesce(p.doing, '{}'),
	coalesce(p.boot_url, ''), l.until
	FROM agents a LEFT JOIN agent_presence p USING (agent_id)
	LEFT JOIN boot_leases l ON l.site_id = a.site_id AND l.agent_id = a.agent_id AND l.until > now()`

func scanView(r pgx.CollectableRow) (v View, err error) {
	var claims []byte
	err = r.Scan(&v.AgentID, &v.TenantID, &v.SiteID, &v.NodeID, &v.Role, &v.Name, &v.Version, &v.BootID, &claims, &v.Revoked,
		&v.JoinedAt, &v.SessionAt, &v.LastContact, &v.Connected, &v.Doing, &v.BootURL, &v.BootUntil)
	if err == nil {
		err = json.Unmarshal(claims, &v.Claims)
	}
	return v, err
}

// Get reads one agent. Errors: NOT_FOUND.
func Get(ctx context.Context, db projections.DB, a id.Agent) (View, error) {
	rows, err := db.Query(ctx, selectView+` WHERE a.agent_id = $1`, a.String())
	if err != nil {
		return View{}, fmt.Errorf("read agent %s: %w", a, err)
	}
	v, err := pgx.CollectExactlyOneRow(rows, scanView)
	if errors.Is(err, pgx.ErrNoRows) {
		return View{}, fault.New(fault.NotFound, "there is no agent %s", a)
	}
	if err != nil {
		return View{}, fmt.Errorf("read agent %s: %w", a, err)
	}
	return v, nil
}

// Filter bounds a list. Every field that is set must match.
type Filter struct {
	Scope projections.Scope // what the caller may see
	Site  id.Site
	Node  id.Node
	Role  agent.Role
}

var list = projections.List[View]{
	Name: "agents", From: selectView, Key: "a.agent_id", Valid: projections.ValidID[id.Agent], Scan: scanView,
	KeyOf: func(v View) string { return v.AgentID },
}

// List reads one page, by id, and the cursor of the next, empty after the last. Errors: INVALID_INPUT for a bad limit or
// cursor.
func List(ctx context.Context, db projections.DB, f Filter, p projections.Page) ([]View, string, error) {
	w := &projections.Where{}
	w.Within(f.Scope, projections.Place{Tenant: "a.tenant_id", Site: "a.site_id", Node: "a.node_id"})
	if !id.IsZero(f.Site) {
		w.Add("a.site_id = {}", f.Site.String())
	}
	if !id.IsZero(f.Node) {
		w.Add("a.node_id = {}", f.Node.String())
	}
	if f.Role != "" {
		w.Add("a.role = {}", f.Role)
	}
	return list.Page(ctx, db, w, p)
}

// Certificates is every certificate that an agent ever had, in the order of issue.
func Certificates(ctx context.Context, db projections.DB, a id.Agent) ([]agent.Certificate, error) {
	const sql = `SELECT fingerprint, role, public_key, serial, not_before, not_after, revoked_at FROM node_certs
		WHERE agent_id = $1 ORDER BY position`
	rows, err := db.Query(ctx, sql, a.String())
	if err != nil {
		return nil, fmt.Errorf("certificates of %s: %w", a, err)
	}
	found, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (c agent.Certificate, err error) {
		var key string
		if err = r.Scan(&c.Fingerprint, &c.Role, &key, &c.Serial, &c.NotBefore, &c.NotAfter, &c.RevokedAt); err == nil {
			c.PublicKey, err = hex.DecodeString(key)
		}
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("certificates of %s: %w", a, err)
	}
	return found, nil
}
