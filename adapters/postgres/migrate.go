package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/schema"
)

// migrationLock is the session advisory lock that replicas which start at once queue for; they look once a second.
const (
	migrationLock     = 0x6d6574616c_01
	migrationPatience = 600
)

// Migrate brings the database to the schema of this program, in the order of the files in schema/sql, each in one
// transaction. It is safe to call from many processes at once, and does nothing where nothing is to do. Errors:
// INVALID_CONFIG where the database belongs to a newer program, UNAVAILABLE where the server is away.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	files, err := fs.Sub(schema.FS, "sql")
	if err != nil {
		return fmt.Errorf("embedded schema: %w", err)
	}
	return migrate(ctx, pool, files)
}

func migrate(ctx context.Context, pool *pgxpool.Pool, files fs.FS) error {
	return withRunner(pool, files, func(runner *goose.Provider) error {
		if pending, err := check(ctx, runner); !pending || err != nil {
			return err
		}
		if _, err := runner.Up(ctx); err != nil {
			return fmt.Errorf("migrate the database: %w", Fault(err))
		}
		_, err := check(ctx, runner)
		return err
	})
}

// Migrated tells whether the database has the schema of this program, and changes nothing: for tools, which may be newer than
// the replicas that run. Errors: INVALID_CONFIG where it has not, UNAVAILABLE where the server is away.
func Migrated(ctx context.Context, pool *pgxpool.Pool) error {
	files, err := fs.Sub(schema.FS, "sql")
	if err != nil {
		return fmt.Errorf("embedded schema: %w", err)
	}
	return migrated(ctx, pool, files)
}

func migrated(ctx context.Context, pool *pgxpool.Pool, files fs.FS) error {
	older := fault.New(fault.InvalidConfig, "the database has an older schema than this program").
		WithRemedy("use the program of the replicas that run, or upgrade them; `metald migrate` and `metald serve` bring the schema along")
	var begun bool
	if err := pool.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", versionsTable).Scan(&begun); err != nil {
		return Fault(err)
	}
	if !begun { // to ask for its version would make the table
		return older
	}
	return withRunner(pool, files, func(runner *goose.Provider) error {
		pending, err := check(ctx, runner)
		if err == nil && pending {
			err = older
		}
		return err
	})
}

const versionsTable = "schema_versions"

func withRunner(pool *pgxpool.Pool, files fs.FS, do func(*goose.Provider) error) (err error) {
	locker, err := lock.NewPostgresSessionLocker(
		lock.WithLockID(migrationLock), lock.WithLockTimeout(1, migrationPatience))
	if err != nil {
		return fmt.Errorf("migration lock: %w", err)
	}
	db := stdlib.OpenDBFromPool(pool)
	defer func() { err = errors.Join(err, db.Close()) }()
	runner, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true), goose.WithTableName(versionsTable))
	if err != nil {
		return fmt.Errorf("embedded schema: %w", err)
	}
	return do(runner)
}

// check refuses a database of a newer program and tells whether migrations are due.
func check(ctx context.Context, runner *goose.Provider) (pending bool, err error) {
	current, target, err := runner.GetVersions(ctx)
	if err != nil {
		return false, Fault(err)
	}
	if current > target {
		return false, fault.New(fault.InvalidConfig,
			"the database has schema version %d; this program knows up to %d", current, target).
			WithRemedy("run a program at least as new as the one that migrated the database")
	}
	pending, err = runner.HasPending(ctx)
	return pending, Fault(err)
}
