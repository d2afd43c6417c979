// Package pgtest gives tests a real PostgreSQL: the server that TEST_DATABASE_URL names, or a private cluster,
// started by the first test of the process that needs it and stopped with the process. Each test has a database of
// its own, a clone of a template that was migrated once.
//
// A package whose tests use it has
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/domain/fault"
)

// patience bounds what the package itself does.
const patience = 2 * time.Minute

// Main runs the tests of a package, stops the cluster, and fails where goroutines are left.
func Main(m interface{ Run() int }) {
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := leaks(); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// leaks is an error that names the goroutines that do not end. On a busy computer they may take longer than goleak waits.
func leaks() (err error) {
	for range 20 {
		if err = goleak.Find(); err == nil {
			return nil
		}
	}
	return err
}

// New is a pool on the test's database.
func New(t testing.TB) *pgxpool.Pool {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pool, err := postgres.Open(ctx, DSN(t), postgres.Options{MaxConns: 8})
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// databases holds the database of each test that has one.
var databases sync.Map // of testing.TB to the connection string

// DSN is the connection string of the test's database, migrated and empty: the same for every call of one test,
// another for each test and subtest. The database is dropped when the test ends.
func DSN(t testing.TB) string {
	t.Helper()
	if dsn, made := databases.Load(t); made {
		return dsn.(string)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := shared()
	if err != nil {
		t.Fatalf("pgtest: %s", withRemedy(err))
	}
	name := "t_" + strings.ToLower(rand.Text())
	if err := s.exec(ctx, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s", name, s.template)); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	dsn := s.dsn(name)
	databases.Store(t, dsn)
	t.Cleanup(func() {
		databases.Delete(t)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.exec(ctx, fmt.Sprintf("DROP DATABASE %s WITH (FORCE)", name)); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return dsn
}

// withRemedy is an error with what to do about it.
func withRemedy(err error) string {
	var f *fault.Error
	if errors.As(err, &f) && f.Remedy != "" {
		return f.Error() + "; " + f.Remedy
	}
	return err.Error()
}

// server is where databases are made.
type server struct {
	dsn      func(database string) string
	template string
	stop     func(context.Context) error

	mu    sync.Mutex // admin is one session
	admin *pgx.Conn
}

var (
	started sync.Mutex
	running *server
	failed  error
)

// shared is the server of this process, started by the first call. A failure is not tried again.
func shared() (*server, error) {
	started.Lock()
	defer started.Unlock()
	if running == nil && failed == nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		running, failed = open(ctx)
	}
	return running, failed
}

func open(ctx context.Context) (*server, error) {
	s := &server{stop: func(context.Context) error { return nil }}
	if external := os.Getenv("TEST_DATABASE_URL"); external != "" {
		u, err := url.Parse(external)
		if err != nil || u.Scheme == "" {
			return nil, errors.New("TEST_DATABASE_URL is not a URL such as postgres://user@host:5432/postgres")
		}
		s.dsn = func(database string) string {
			other := *u
			other.Path = "/" + database
			return other.String()
		}
	} else {
		c, remove, err := private(ctx)
		if err != nil {
			return nil, err
		}
		s.dsn = c.DSN
		s.stop = func(ctx context.Context) error { return errors.Join(c.Stop(ctx), remove()) }
	}
	var err error
	if s.admin, err = pgx.Connect(ctx, s.dsn("postgres")); err != nil {
		return nil, errors.Join(err, s.stop(ctx))
	}
	if s.template, err = s.makeTemplate(ctx); err != nil {
		return nil, errors.Join(err, s.admin.Close(ctx), s.stop(ctx))
	}
	return s, nil
}

func (s *server) exec(ctx context.Context, statement string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.admin.Exec(ctx, statement)
	return err
}

func stop() error {
	started.Lock()
	defer started.Unlock()
	if running == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return errors.Join(running.admin.Close(ctx), running.stop(ctx))
}
