package tenant_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"testing"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/tenant"
)

func TestPolicy(t *testing.T) {
	create := tenant.Create{Facts: tenant.Created{Tenant: id.Of[id.Tenant](uuid.UUID{15: 1}), Name: "x", Policy: tenant.Policy{}}}
	if _, err := tenant.Decide(tenant.State{}, tenant.ChangePolicy{}); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("the policy of nothing: %v", err)
	}
	made, err := tenant.Decide(tenant.State{}, create)
	if err != nil {
		t.Fatal(err)
	}
	s := tenant.Decider.Fold(tenant.State{}, made...)
	if _, err := tenant.Decide(s, create); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("created twice: %v", err)
	}
	good := tenant.Policy{ImageSigners: []tenant.Signer{{Name: "build", PublicKey: ed25519Key(t)}}}
	changed, err := tenant.Decide(s, tenant.ChangePolicy{Policy: good})
	if err != nil || len(changed) != 1 {
		t.Fatalf("got %v, %v", changed, err)
	}
	s = tenant.Decider.Fold(s, changed...)
	if again, err := tenant.Decide(s, tenant.ChangePolicy{Policy: good}); err != nil || len(again) != 0 {
		t.Errorf("the same policy again: %v, %v", again, err)
	}
	for _, bad := range []tenant.Policy{{ImageSigners: []tenant.Signer{{Name: "x", PublicKey: "nonsense"}}}, {ImageSigners: []tenant.Signer{{PublicKey: rsaKey(t)}}}} {
		if _, err := tenant.Decide(s, tenant.ChangePolicy{Policy: bad}); fault.CodeOf(err) != fault.InvalidInput {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func ed25519Key(t *testing.T) string {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return pemOf(t, public)
}

func rsaKey(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return pemOf(t, &key.PublicKey)
}

func pemOf(t *testing.T, public any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}
