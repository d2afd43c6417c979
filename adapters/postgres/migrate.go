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

func migrate(ctx context.Context, pool *pgxpool.Pool, files fs.FS) (err error) {
	locker, err := lock.NewPostgresSessionLocker(
		lock.WithLockID(migrationLock), lock.WithLockTimeout(1, migrationPatience))
	if err != nil {
		return fmt.Errorf("migration lock: %w", err)
	}
	db := stdlib.OpenDBFromPool(pool)
	defer func() { err = errors.Join(err, db.Close()) }()
	runner, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true), goose.WithTableName("schema_versions"))
	if err != nil {
		return fmt.Errorf("embedded schema: %w", err)
	}
	if pending, err := check(ctx, runner); !pending || err != nil {
		return err
	}
	if _, err := runner.Up(ctx); err != nil {
		return fmt.Errorf("migrate the database: %w", Fault(err))
	}
	_, err = check(ctx, runner)
	return err
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
