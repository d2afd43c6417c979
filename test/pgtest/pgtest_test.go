package pgtest_test

import (
	"testing"

	"github.com/better-compute/metal/test/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestEachTestHasItsOwnDatabase(t *testing.T) {
	first := pgtest.DSN(t)
	if again := pgtest.DSN(t); again != first {
		t.Error("one test has two databases")
	}
	for range 2 {
		t.Run("clone", func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t)
			var events int
			if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM events").Scan(&events); err != nil || events != 0 {
				t.Fatalf("a fresh database holds %d events, %v", events, err)
			}
			_, err := pool.Exec(t.Context(), `
				INSERT INTO events (position, stream, version, id, type, schema_version, data, meta)
				VALUES (1, 'thing-1', 1, gen_random_uuid(), 'thing.happened', 1, '{}', '{}')`)
			if err != nil {
				t.Error(err)
			}
		})
	}
}
