// Package agents lists agents, their certificates and their presence.
package agents

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/projections"
)

// Name is the projection's name, to wait for it.
const Name = "agents"

// New is the projection.
func New() projections.Projection {
	return projections.Projection{
		Name: Name, Version: 1, Pace: 200 * time.Millisecond, Consumes: projections.Types(agent.Events),
		Tables: []string{"agents", "node_certs"}, Apply: apply,
	}
}

var (
	agents       = projections.NewTable[row]("agents", "agent_id")
	certificates = projections.NewTable[certificateRow]("node_certs", "fingerprint")
)

type row struct {
	Agent        string         `json:"agent_id"`
	Tenant       string         `json:"tenant_id"`
	Site         string         `json:"site_id"`
	Node         string         `json:"node_id"`
	Role         agent.Role     `json:"role"`
	Name         string         `json:"name"`
	AgentVersion string         `json:"agent_version"`
	BootID       string         `json:"boot_id"`
	Claims       string         `json:"claims"` // JSON
	Revoked      string         `json:"revoked"`
	JoinedAt     time.Time      `json:"joined_at"`
	SessionAt    *time.Time     `json:"session_at"`
	Version      event.Version  `json:"version"`
	Position     event.Position `json:"position"`
	UpdatedAt    time.Time      `json:"updated_at"`
}

type certificateRow struct {
	Fingerprint string         `json:"fingerprint"`
	Agent       string         `json:"agent_id"`
	Node        string         `json:"node_id"`
	Role        agent.Role     `json:"role"`
	PublicKey   string         `json:"public_key"` // hexadecimal
	Serial      string         `json:"serial"`
	NotBefore   time.Time      `json:"not_before"`
	NotAfter    time.Time      `json:"not_after"`
	RevokedAt   *time.Time     `json:"revoked_at"`
	Position    event.Position `json:"position"`
}

func apply(ctx context.Context, tx pgx.Tx, batch []event.Recorded) error {
	rows, err := agents.Load(ctx, tx, projections.Streams(batch))
	if err != nil {
		return err
	}
	issued := projections.Rows[certificateRow]{}
	for _, e := range batch {
		switch known := e.Event.(type) {
		case agent.Joined:
			issued[known.Certificate.Fingerprint] = certificateOf(e, known.Node, known.Certificate)
		case agent.Issued:
			issued[known.Certificate.Fingerprint] = certificateOf(e, known.Node, known.Certificate)
		case agent.Revoked: // it is about those written before it
			if err := certificates.Save(ctx, tx, issued); err != nil {
				return err
			}
			issued = projections.Rows[certificateRow]{}
			if err := revoke(ctx, tx, e, known); err != nil {
				return err
			}
		}
		if known, ok := e.Event.(agent.Event); ok {
			rows[e.Stream.ID()] = rows[e.Stream.ID()].with(e, known)
		}
	}
	if err := agents.Save(ctx, tx, rows); err != nil {
		return err
	}
	return certificates.Save(ctx, tx, issued)
}

func certificateOf(e event.Recorded, n id.Node, c agent.Certificate) *certificateRow {
	return &certificateRow{
		Fingerprint: c.Fingerprint, Agent: e.Stream.ID(), Node: nodeText(n), Role: c.Role, PublicKey: hex.EncodeToString(c.PublicKey),
		Serial: c.Serial, NotBefore: c.NotBefore, NotAfter: c.NotAfter, RevokedAt: c.RevokedAt, Position: e.Position,
	}
}

func nodeText(n id.Node) string {
	if id.IsZero(n) {
		return ""
	}
	return n.String()
}

func revoke(ctx context.Context, tx pgx.Tx, e event.Recorded, r agent.Revoked) error {
	const sql = `UPDATE node_certs SET revoked_at = $2 WHERE agent_id = $1 AND revoked_at IS NULL AND position < $3`
	if _, err := tx.Exec(ctx, sql, e.Stream.ID(), r.At, int64(e.Position)); err != nil {
		return fmt.Errorf("revoke certificates: %w", err)
	}
	return nil
}

// with is the row after an event; r is nil before the first. An event that the row holds already changes nothing.
func (r *row) with(e event.Recorded, known agent.Event) *row {
	if r != nil && e.Position <= r.Position {
		return r
	}
	next := row{Agent: e.Stream.ID()}
	if r != nil {
		next = *r
	}
	next.Version, next.Position, next.UpdatedAt = e.Version, e.Position, e.Meta.At
	switch known := known.(type) {
	case agent.Joined:
		next.Tenant, next.Site, next.Node = known.Tenant.String(), known.Site.String(), nodeText(known.Node)
		next.Name, next.AgentVersion = projections.Text(known.Name), projections.Text(known.Version)
		next.Claims, next.Revoked, next.JoinedAt = projections.Text(projections.JSON(known.Claims)), "", e.Meta.At
		if next.BootID == "" {
			next.Role = known.Role
		}
	case agent.SessionOpened:
		next.Role, next.BootID, next.AgentVersion = known.Role, projections.Text(known.BootID), projections.Text(known.Version)
		next.SessionAt = &e.Meta.At
	case agent.Revoked:
		next.Revoked = projections.Text(known.Reason)
	}
	return &next
}
