package doctor_test

import (
	"testing"
	"time"

	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/doctor"
	"github.com/better-compute/metal/test/pgtest"
)

func TestPassesThatFailAreFound(t *testing.T) {
	pool := pgtest.New(t)
	for _, sql := range []string{
		`INSERT INTO wakeups (manager, key, attempts, error, failing_since) VALUES ('workflow', 'node_a', 3, 'no route', now() - interval '1 minute')`,
		`INSERT INTO wakeups (manager, key, attempts, error, failing_since) VALUES ('workflow', 'wf_a', 9, 'no route', now() - interval '1 hour')`,
		`INSERT INTO wakeups (manager, key, attempts, error, failing_since) VALUES ('provision', 'node_b', 2, 'no route', now())`,
		`INSERT INTO wakeups (manager, key) VALUES ('provision', 'node_c')`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	found, err := doctor.Findings(t.Context(), pool, doctor.Input{Scope: projections.Scope{All: true}, Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 2 || found[0].Subject != "workflow/wf_a" || found[1].Subject != "node/node_a" || found[1].Code != doctor.PassesFailing {
		t.Errorf("found %+v", found)
	}
	found, err = doctor.Findings(t.Context(), pool, doctor.Input{Now: time.Now()})
	if err != nil || len(found) != 0 {
		t.Errorf("who sees nothing is told %+v, %v", found, err)
	}
}
