package pgtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/schema"
)

// templateLock is the advisory lock under which processes that share a server make the template.
const templateLock = 0x7067746573740001

// makeTemplate migrates the database that all others are cloned from. Its name follows from the schema, so that a
// server which outlives the process keeps one for each schema.
func (s *server) makeTemplate(ctx context.Context) (name string, err error) {
	name, err = templateName()
	if err != nil {
		return "", err
	}
	if err := s.exec(ctx, fmt.Sprintf("SELECT pg_advisory_lock(%d)", templateLock)); err != nil {
		return "", err
	}
	defer func() { _ = s.exec(ctx, fmt.Sprintf("SELECT pg_advisory_unlock(%d)", templateLock)) }()
	var exists bool
	err = s.admin.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&exists)
	if err != nil || exists {
		return name, err
	}
	// Under another name until it is whole: a process that dies here leaves nothing that looks like a template.
	draft := name + "_draft"
	if err := s.exec(ctx, "DROP DATABASE IF EXISTS "+draft+" WITH (FORCE)"); err != nil {
		return "", err
	}
	if err := s.exec(ctx, "CREATE DATABASE "+draft); err != nil {
		return "", err
	}
	pool, err := postgres.Open(ctx, s.dsn(draft), postgres.Options{MaxConns: 2})
	if err != nil {
		return "", err
	}
	err = postgres.Migrate(ctx, pool)
	pool.Close()
	if err != nil {
		return "", err
	}
	return name, s.exec(ctx, fmt.Sprintf("ALTER DATABASE %s RENAME TO %s", draft, name))
}

func templateName() (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(schema.FS, "sql", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(schema.FS, path)
		fmt.Fprintf(sum, "%s %d ", path, len(text))
		sum.Write(text)
		return err
	})
	return "t_base_" + hex.EncodeToString(sum.Sum(nil)[:8]), err
}
