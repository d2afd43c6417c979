package agents

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/projections"
)

// BootHolder is the agent of a site that serves network boot, and until when it does unless it is heard of.
type BootHolder struct {
	AgentID string    `json:"agentId"`
	Until   time.Time `json:"until"`
}

// BootHolders are the agents that have the boot leases of sites now. Sites without one are left out.
func BootHolders(ctx context.Context, db projections.DB, sites ...string) (map[string]BootHolder, error) {
	rows, err := db.Query(ctx, `SELECT site_id, agent_id, until FROM boot_leases WHERE site_id = ANY($1) AND until > now()`, sites)
	if err != nil {
		return nil, fmt.Errorf("boot leases: %w", err)
	}
	found := map[string]BootHolder{}
	var at string
	var h BootHolder
	_, err = pgx.ForEachRow(rows, []any{&at, &h.AgentID, &h.Until}, func() error {
		found[at] = h
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("boot leases: %w", err)
	}
	return found, nil
}

// Boots reports whether an agent of a site serves network boot now.
func Boots(ctx context.Context, db projections.DB, at id.Site) (is bool, err error) {
	err = db.QueryRow(ctx, `SELECT until > now() FROM boot_leases WHERE site_id = $1`, at.String()).Scan(&is)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return false, fmt.Errorf("boot lease of %s: %w", at, err)
	}
	return is, nil
}
