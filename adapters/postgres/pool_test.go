package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/test/pgtest"
)

// What stands in the way of the first connection is told with what to do, and without the password.
func TestOpenRefused(t *testing.T) {
	good, err := pgx.ParseConfig(pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	server := "host=" + good.Host + " sslmode=disable password=hunter2"
	for name, test := range map[string]struct {
		dsn   string
		code  fault.Code
		words []string
	}{
		"login":     {server + " user=nobody_here dbname=" + good.Database, fault.InvalidConfig, []string{`"nobody_here"`, "METAL_POSTGRES"}},
		"database":  {server + " user=" + good.User + " dbname=not_there", fault.InvalidConfig, []string{`"not_there"`, "createdb"}},
		"no server": {"postgres://u:hunter2@127.0.0.1:1/d", fault.Unavailable, []string{"127.0.0.1:1", "is running"}},
		"no socket": {"host=/nowhere/at/all user=u password=hunter2", fault.Unavailable, []string{"/nowhere/at/all", "check the address"}},
	} {
		_, err := postgres.Open(t.Context(), test.dsn, postgres.Options{})
		wantCode(t, err, test.code)
		var f *fault.Error
		if !errors.As(err, &f) {
			t.Fatalf("%s: %v", name, err)
		}
		for _, word := range test.words {
			if !strings.Contains(f.Message+" "+f.Remedy, word) {
				t.Errorf("%s: %q, %q do not say %q", name, f.Message, f.Remedy, word)
			}
		}
		for ; err != nil; err = errors.Unwrap(err) {
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: the error tells the password: %v", name, err)
			}
		}
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := postgres.Open(stopped, pgtest.DSN(t), postgres.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller's own end: %v", err)
	}
}
