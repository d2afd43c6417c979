package history

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/projections"
)

// Entry is one event of a machine's history.
type Entry struct {
	ID            uuid.UUID       `json:"id"`
	Node          string          `json:"nodeId"`
	Stream        event.Stream    `json:"stream"`
	Version       event.Version   `json:"version"`
	Position      event.Position  `json:"position"`
	Type          string          `json:"type"`
	Schema        int             `json:"schema"`    // version of the shape of Data
	At            time.Time       `json:"at"`        // when the log took it
	DecidedAt     time.Time       `json:"decidedAt"` // by the clock of whoever decided it
	Tenant        string          `json:"tenant,omitempty"`
	Subject       string          `json:"subject,omitempty"`
	Principal     string          `json:"principal,omitempty"`
	RequestID     string          `json:"requestId,omitempty"`
	CorrelationID string          `json:"correlationId,omitempty"`
	CausationID   string          `json:"causationId,omitempty"`
	Data          json.RawMessage `json:"data"`
}

// Order is the direction of a list.
type Order string

// The orders.
const (
	NewestFirst Order = "newest"
	OldestFirst Order = "oldest"
)

// entryColumns are what scan reads.
const entryColumns = `event_id, node_id, stream, version, position, type, schema_version, at, decided_at, tenant, subject, principal,
	request_id, correlation_id, causation_id, data`

// List reads one page of a machine's events in causal order or against it, and the cursor of the next page, empty
// after the last. Whether the caller may see the machine is checked before. Errors: INVALID_INPUT for a bad limit or
// cursor; a cursor goes on in the order of the page it came from.
func List(
	ctx context.Context, db projections.DB, n id.Node, order Order, p projections.Page,
) ([]Entry, string, error) {
	up := order == OldestFirst
	if !up {
		order = NewestFirst
	}
	list := projections.List[Entry]{
		Name: "history-" + string(order), From: `SELECT ` + entryColumns + ` FROM history_events`, Key: "position", Up: up,
		Valid: projections.ValidPosition, Scan: scan, KeyOf: func(e Entry) string { return e.Position.String() },
	}
	w := &projections.Where{}
	w.Add("node_id = {}", n.String())
	return list.Page(ctx, db, w, p)
}

func scan(row pgx.CollectableRow) (e Entry, err error) {
	err = row.Scan(&e.ID, &e.Node, &e.Stream, &e.Version, &e.Position, &e.Type, &e.Schema, &e.At, &e.DecidedAt, &e.Tenant, &e.Subject,
		&e.Principal, &e.RequestID, &e.CorrelationID, &e.CausationID, &e.Data)
	e.At, e.DecidedAt = e.At.UTC(), e.DecidedAt.UTC()
	return e, err
}

// Chain is an event with what led to it: the entries of a machine that share its correlation, oldest first, at most a
// page. Whether the caller may see the machine is checked before.
func Chain(ctx context.Context, db projections.DB, n id.Node, correlation string) ([]Entry, error) {
	const sql = `SELECT ` + entryColumns + ` FROM history_events
		WHERE node_id = $1 AND correlation_id = $2 ORDER BY position DESC LIMIT $3`
	rows, err := db.Query(ctx, sql, n.String(), correlation, projections.MaxPage)
	if err != nil {
		return nil, fmt.Errorf("chain of %s: %w", n, err)
	}
	entries, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, fmt.Errorf("chain of %s: %w", n, err)
	}
	slices.Reverse(entries)
	return entries, nil
}
