package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/projections"
)

// failures is how many passes in a row must fail before it is a finding: what heals by itself is none.
const failures = 3

// failing finds keys of process managers whose passes fail, in the table of wake-ups.
func failing(ctx context.Context, db projections.DB, in Input) ([]Finding, error) {
	if !in.Scope.All {
		return nil, nil
	}
	const sql = `SELECT manager, key, attempts, coalesce(error, ''), failing_since, due FROM wakeups
		WHERE attempts > 0 AND attempts >= $1 ORDER BY failing_since, manager, key LIMIT $2`
	rows, err := db.Query(ctx, sql, failures, maxFindings)
	if err != nil {
		return nil, fmt.Errorf("findings: %w", err)
	}
	var found []Finding
	var manager, key, text string
	var attempts int
	var since, due time.Time
	_, err = pgx.ForEachRow(rows, []any{&manager, &key, &attempts, &text, &since, &due}, func() error {
		f := Finding{
			Code: PassesFailing, Subject: "node/" + key, Since: since,
			Message: fmt.Sprintf("the process manager %s failed at %s %d times in a row: %s", manager, key, attempts, text),
			Details: map[string]any{"manager": manager, "attempts": attempts, "again": due.UTC()},
		}
		if strings.HasPrefix(key, (id.Workflow{}).Prefix()+"_") {
			f.Subject = "workflow/" + key
		}
		if strings.HasPrefix(key, (id.Site{}).Prefix()+"_") {
			f.Subject = "site/" + key
		}
		found = append(found, f.complete())
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("findings: %w", err)
	}
	return found, nil
}
