package commands_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/tenant"
)

func TestTheFirstCertificateOfABMCIsPinned(t *testing.T) {
	ctx, w := context.Background(), newWorld(t)
	n := w.enrolled(t, machine(w.pool, "https://10.0.0.10")).State.ID
	first := node.BMCLearned{Fingerprint: "f1", Quirks: json.RawMessage(`{"vendor":"dell"}`), System: "1"}
	done, err := w.LearnBMC(ctx, system(), n, first)
	if err != nil || !done.State.Learned.Equal(first) {
		t.Fatalf("%+v, %v", done.State.Learned, err)
	}
	again, err := w.LearnBMC(ctx, system(), n, first)
	if err != nil || again.Version != done.Version {
		t.Errorf("learned twice: version %d, %v", again.Version, err)
	}
	_, err = w.LearnBMC(ctx, system(), n, node.BMCLearned{Fingerprint: "f2"})
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.DriverError || f.Details["reason"] != "certificate-changed" {
		t.Errorf("another certificate: %v", err)
	}
	if _, err := w.LearnBMC(ctx, of(w.newTenant(t)), n, first); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("learned by a stranger: %v", err)
	}
	renewed := strings.Repeat("ab", 32)
	if _, err := w.TrustBMC(ctx, of(w.newTenant(t)), n, renewed); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("trusted by a stranger: %v", err)
	}
	if _, err := w.TrustBMC(ctx, of(tenant.Root), n, renewed); err != nil {
		t.Fatal(err)
	}
	first.Fingerprint = renewed
	// What was learned is in the log as it was told: another replica folds the same.
	if other, err := w.over(w.log).LearnBMC(ctx, system(), n, first); err != nil || !other.State.Learned.Equal(first) {
		t.Errorf("another replica: %+v, %v", other.State.Learned, err)
	}
}
