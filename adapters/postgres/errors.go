package postgres

import (
	"context"
	"errors"
	"net"
	"strconv"
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

// openFault tells an operator why the first connection was not made, and what to look at. pgx takes the password out of
// its own words.
func openFault(ctx context.Context, err error, to *pgx.ConnConfig) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var refused *pgconn.PgError
	switch {
	case !errors.As(err, &refused):
		return fault.Wrap(err, fault.Unavailable, "no PostgreSQL answers at %s", serverOf(to)).
			WithRemedy("check the address in --postgres (METAL_POSTGRES), and that the server is running")
	case strings.HasPrefix(refused.Code, "28"), refused.Code == "42501": // authorization; CONNECT not granted
		return fault.Wrap(err, fault.InvalidConfig, "PostgreSQL at %s refuses the user %q for the database %q",
			serverOf(to), to.User, to.Database).
			WithRemedy("check the user and the password in METAL_POSTGRES (or PGPASSWORD, a passfile), and the server's pg_hba.conf")
	case refused.Code == "3D000":
		return fault.Wrap(err, fault.InvalidConfig, "PostgreSQL at %s has no database %q", serverOf(to), to.Database).
			WithRemedy("make it with createdb, or name another in --postgres (METAL_POSTGRES)")
	}
	return Fault(err)
}

// serverOf is where a connection goes: host and port, or the directory of the socket.
func serverOf(to *pgx.ConnConfig) string {
	if strings.HasPrefix(to.Host, "/") {
		return to.Host
	}
	return net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port)))
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
