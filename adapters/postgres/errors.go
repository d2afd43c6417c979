package postgres

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/better-compute/metal/domain/fault"
)

// Fault tells a caller what an error of the database means: UNAVAILABLE where the server is away, out of resources or
// read-only, INTERNAL where a statement is wrong. Errors that are faults already, pgx.ErrNoRows and the end of the
// caller's own context stay what they are.
func Fault(err error) error {
	var known *fault.Error
	switch {
	case err == nil, errors.As(err, &known), errors.Is(err, pgx.ErrNoRows),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case IsAway(err), outOfResources(err):
		return fault.Wrap(err, fault.Unavailable, "the database is unavailable")
	}
	return fault.Wrap(err, fault.Internal, "the database refused a statement")
}

// IsAway tells whether err means that the connection is gone or could not be made, so that nothing is known about
// what was under way and another connection is needed.
func IsAway(err error) bool {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return err != nil && !errors.Is(err, pgx.ErrNoRows)
	}
	switch refused.Code {
	case "57P01", "57P02", "57P03", "57P05": // shut down, crashed, starting, idle too long
		return true
	case "25006": // read-only: a standby, or a primary that became one
		return true
	case "53300": // too many connections: this one was never made
		return true
	}
	return strings.HasPrefix(refused.Code, "08")
}

// outOfResources is class 53 (disk full, out of memory), 57 (cancelled, by an administrator) and 58 (I/O error).
func outOfResources(err error) bool {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.Code[:2] {
	case "53", "57", "58":
		return true
	}
	return false
}
