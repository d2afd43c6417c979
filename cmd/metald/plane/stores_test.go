package plane

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/test/pgtest"
)

// A tool of another version than the replicas that run does not migrate their database under them.
func TestToolsDoNotMigrate(t *testing.T) {
	pool := pgtest.New(t)
	if _, err := pool.Exec(t.Context(), "DROP SCHEMA public CASCADE; CREATE SCHEMA public"); err != nil {
		t.Fatal(err)
	}
	s, err := OpenStores(t.Context(), pool.Config().ConnString(), "", slog.New(slog.DiscardHandler))
	if err == nil {
		s.Close()
	}
	if fault.CodeOf(err) != fault.InvalidConfig {
		t.Errorf("error: %v", err)
	}
	var tables int
	const sql = `SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace`
	if err := pool.QueryRow(t.Context(), sql).Scan(&tables); err != nil || tables > 0 {
		t.Errorf("%d tables, %v", tables, err)
	}
}

// Somebody takes the connection and never answers: the log says what is waited for, and the wait ends.
func TestSilentEventStore(t *testing.T) {
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	registry, err := commands.Registry()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	log := &until{text: "waiting for the event store", then: cancel}
	_, err = openEventStore(ctx, "esdb://"+silent.Addr().String()+"?tls=false", registry, slog.New(slog.NewTextHandler(log, nil)))
	if fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("error: %v", err)
	}
	if !errors.Is(ctx.Err(), context.Canceled) {
		t.Errorf("it does not say what it waits for:\n%s", log.all.String())
	}
}

// until is a log; something happens once it holds a text.
type until struct {
	text string
	then func()
	all  bytes.Buffer
}

// Write implements io.Writer. A logger's handler has one call at a time.
func (u *until) Write(p []byte) (int, error) {
	if strings.Contains(string(p), u.text) {
		u.then()
	}
	return u.all.Write(p)
}
