package plane

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/test/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// What a step put away is gone once its time is over, whatever became of the workflow and of whoever ran it.
func TestSecretsOfStepsAreForgotten(t *testing.T) {
	pool := pgtest.New(t)
	key, err := postgres.ParseMasterKey([]byte(strings.Repeat("k1", 16)))
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := postgres.NewSecrets(t.Context(), pool, key)
	if err != nil {
		t.Fatal(err)
	}
	p := &plane{
		secrets: secrets, presence: postgres.NewPresence(pool), outcomes: postgres.NewOutcomes(pool, secrets),
		logger: slog.New(slog.DiscardHandler),
	}
	steps, now := stepSecrets{secrets}, time.Now()
	over, err := steps.Put(t.Context(), "wf:1:user-data", []byte("over"), now.Add(-time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	needed, err := steps.Put(t.Context(), "wf:2:user-data", []byte("needed"), now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	p.forget(t.Context())
	if _, err := secrets.Get(t.Context(), over); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("the secret of a workflow that is long over: %v", err)
	}
	if _, err := secrets.Get(t.Context(), needed); err != nil {
		t.Errorf("a secret that is still needed: %v", err)
	}
}
