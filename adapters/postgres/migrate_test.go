package postgres_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/schema"
	"github.com/better-compute/metal/test/pgtest"
)

// The files are named and numbered in the way the runner and people read them, and only go forward.
func TestMigrationFiles(t *testing.T) {
	files, err := schema.FS.ReadDir("sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := schema.FS.ReadFile("sql/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(text), "-- +goose Up\n") || strings.Contains(string(text), "+goose Down") {
			t.Errorf("%s does not begin with -- +goose Up, or goes back", f.Name())
		}
		if len(f.Name()) < len("0001_x.sql") || f.Name()[4] != '_' {
			t.Errorf("%s is not named NNNN_name.sql", f.Name())
		}
	}
}

func TestFaults(t *testing.T) {
	for code, want := range map[string]fault.Code{
		"57P01": fault.Unavailable, "08006": fault.Unavailable, "53100": fault.Unavailable, "25006": fault.Unavailable,
		"58030": fault.Unavailable, "42P01": fault.Internal, "23505": fault.Internal,
	} {
		cause := &pgconn.PgError{Code: code, Message: "secret detail"}
		err := postgres.Fault(cause)
		if fault.CodeOf(err) != want || strings.Contains(err.Error(), "secret") || !errors.Is(err, cause) {
			t.Errorf("%s: %v", code, err)
		}
	}
	if postgres.Fault(nil) != nil {
		t.Error("no error became one")
	}
}

func TestOpenTellsNoPassword(t *testing.T) {
	for _, dsn := range []string{"postgres://u:hunter2@h:notaport/d", "host=h password=hunter2 port=x", "hunter2"} {
		_, err := postgres.Open(t.Context(), dsn, postgres.Options{})
		for ; err != nil; err = errors.Unwrap(err) {
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error tells the password: %v", err)
			}
		}
	}
	_, err := postgres.Open(t.Context(), "host=/nowhere/at/all user=u", postgres.Options{})
	if fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("no server: %v", err)
	}
}

func migration(statement string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte("-- +goose Up\n" + statement + ";\n")}
}

var (
	older = fstest.MapFS{"0001_a.sql": migration("CREATE TABLE a (n int)")}
	newer = fstest.MapFS{"0001_a.sql": older["0001_a.sql"], "0002_b.sql": migration("CREATE TABLE b (n int)")}
	wrong = fstest.MapFS{
		"0001_a.sql": older["0001_a.sql"], "0002_b.sql": newer["0002_b.sql"],
		"0003_c.sql": migration("CREATE TABLE c (n int); SELECT no_such_function()"),
	}
)

// Replicas that start at once migrate once; a program older than the database refuses it; a migration that fails
// leaves nothing of itself.
func TestMigrate(t *testing.T) {
	pool := pgtest.New(t)
	if _, err := pool.Exec(t.Context(), "DROP SCHEMA public CASCADE; CREATE SCHEMA public"); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := postgres.MigrateFiles(t.Context(), pool, newer); err != nil {
				t.Errorf("one of four: %v", err)
			}
		})
	}
	all.Wait()
	err := postgres.MigrateFiles(t.Context(), pool, older)
	if fault.CodeOf(err) != fault.InvalidConfig || !strings.Contains(err.Error(), "version 2; this program knows up to") {
		t.Errorf("an older program: %v", err)
	}
	if err := postgres.MigrateFiles(t.Context(), pool, wrong); err == nil {
		t.Error("a wrong migration passed")
	}
	var exists bool
	if err := pool.QueryRow(t.Context(), "SELECT to_regclass('c') IS NOT NULL").Scan(&exists); err != nil || exists {
		t.Errorf("a failed migration left its table: %v, %v", exists, err)
	}
	if err := postgres.MigrateFiles(t.Context(), pool, newer); err != nil {
		t.Errorf("again: %v", err)
	}
}

// A tool that only looks refuses another schema than its own and leaves it as it is.
func TestMigratedChangesNothing(t *testing.T) {
	pool := pgtest.New(t)
	if err := postgres.Migrated(t.Context(), pool); err != nil {
		t.Errorf("this program's schema: %v", err)
	}
	if _, err := pool.Exec(t.Context(), "DROP SCHEMA public CASCADE; CREATE SCHEMA public"); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, files fstest.MapFS, tables int) {
		t.Helper()
		if err := postgres.MigratedFiles(t.Context(), pool, files); fault.CodeOf(err) != fault.InvalidConfig {
			t.Errorf("%s: %v", what, err)
		}
		var found int
		const sql = `SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'`
		if err := pool.QueryRow(t.Context(), sql).Scan(&found); err != nil || found != tables {
			t.Errorf("%s: %d tables, want %d, %v", what, found, tables, err)
		}
	}
	refused("an empty database", older, 0)
	if err := postgres.MigrateFiles(t.Context(), pool, older); err != nil {
		t.Fatal(err)
	}
	refused("an older schema", newer, 2)
	if err := postgres.MigrateFiles(t.Context(), pool, newer); err != nil {
		t.Fatal(err)
	}
	refused("a newer schema", older, 3)
}
