package cli

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"
)

// tamper STATEMENT changes the log by SQL, as only who owns the database can: with the trigger that forbids it off.
func (s *server) tamper(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 || s == nil {
		ts.Fatalf("usage, with a server: tamper STATEMENT")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	db, err := pgx.Connect(ctx, s.dsn)
	ts.Check(err)
	defer func() { _ = db.Close(ctx) }() // what it did is committed
	for _, sql := range []string{
		"ALTER TABLE events DISABLE TRIGGER events_append_only", args[0],
		"ALTER TABLE events ENABLE TRIGGER events_append_only",
	} {
		_, err := db.Exec(ctx, sql)
		ts.Check(err)
	}
}
