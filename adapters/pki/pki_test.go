package pki_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/pki"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
)

// vault keeps secrets in memory.
type vault struct {
	mu     sync.Mutex
	values map[node.SecretRef][]byte
}

func (v *vault) Get(_ context.Context, ref node.SecretRef) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	value, found := v.values[ref]
	if !found {
		return nil, fault.New(fault.NotFound, "there is no such secret")
	}
	return value, nil
}

func (v *vault) PutNew(_ context.Context, secretID uuid.UUID, value []byte) (node.SecretRef, bool, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	ref := node.SecretRef("secret:" + secretID.String())
	if _, found := v.values[ref]; found {
		return ref, false, nil
	}
	v.values[ref] = value
	return ref, true, nil
}

func newVault() *vault { return &vault{values: map[node.SecretRef][]byte{}} }

func open(t *testing.T, v *vault, clock func() time.Time) *pki.CA {
	t.Helper()
	ca, err := pki.Open(t.Context(), v, clock)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func request(t *testing.T) ([]byte, ed25519.PrivateKey) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return csr, key
}

func TestReplicasShareOneAuthority(t *testing.T) {
	v := newVault()
	prints := make([]string, 8)
	var all sync.WaitGroup
	for i := range prints {
		all.Go(func() {
			ca, err := pki.Open(t.Context(), v, time.Now)
			if err != nil {
				t.Error(err)
				return
			}
			prints[i] = ca.Fingerprint()
		})
	}
	all.Wait()
	if len(slices.Compact(prints)) != 1 || len(prints[0]) != 64 {
		t.Errorf("authorities: %v", prints)
	}
}

func TestADamagedAuthorityIsNotReplaced(t *testing.T) {
	v := newVault()
	open(t, v, time.Now)
	for ref := range v.values {
		v.values[ref] = []byte("{}")
	}
	if _, err := pki.Open(t.Context(), v, time.Now); fault.CodeOf(err) != fault.Internal {
		t.Error(err)
	}
}

func TestAnAgentsCertificate(t *testing.T) {
	ca := open(t, newVault(), time.Now)
	csr, _ := request(t)
	key, err := pki.RequestKey(csr)
	if err != nil {
		t.Fatal(err)
	}
	a, n := id.Of[id.Agent](uuid.Must(uuid.NewV7())), id.Of[id.Node](uuid.Must(uuid.NewV7()))
	issued, err := ca.IssueAgent(key, a, n, "ramdisk", 0)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(issued.DER)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parsed.Verify(x509.VerifyOptions{Roots: ca.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if who, err := ca.AgentIn(parsed); err != nil || who != a {
		t.Errorf("it is %s's, %v", who, err)
	}
	if parsed.URIs[1].String() != "urn:metal:node:"+n.String() {
		t.Errorf("names %v", parsed.URIs)
	}
	if c := issued.Certificate; c.Fingerprint != pki.Fingerprint(issued.DER) || !slices.Equal(c.PublicKey, key) || !c.NotAfter.Equal(parsed.NotAfter) ||
		!issued.RenewAfter.Before(c.NotAfter) {
		t.Errorf("%+v", c)
	}
	if _, err := open(t, newVault(), time.Now).AgentIn(parsed); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("to another control plane: %v", err)
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	csr, _ := request(t)
	tampered := slices.Clone(csr)
	tampered[len(tampered)-1] ^= 1
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ec, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, other)
	if err != nil {
		t.Fatal(err)
	}
	for name, der := range map[string][]byte{"nothing": nil, "noise": []byte("noise"), "tampered with": tampered, "of another kind of key": ec} {
		if _, err := pki.RequestKey(der); fault.CodeOf(err) != fault.InvalidInput {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzRequestKey(f *testing.F) {
	f.Add([]byte("noise"))
	f.Fuzz(func(t *testing.T, der []byte) {
		if key, err := pki.RequestKey(der); err == nil && len(key) != ed25519.PublicKeySize {
			t.Errorf("a key of %d bytes", len(key))
		}
	})
}

func TestTheGatewaysCertificateStaysFresh(t *testing.T) {
	now := time.Now()
	ca := open(t, newVault(), func() time.Time { return now })
	get := ca.ServerCertificate("gateway.example", "192.0.2.1")
	verify := func(c *tls.Certificate) {
		t.Helper()
		leaf, err := x509.ParseCertificate(c.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"gateway.example", "192.0.2.1"} {
			if _, err := leaf.Verify(x509.VerifyOptions{Roots: ca.Pool(), DNSName: name, CurrentTime: now}); err != nil {
				t.Error(err)
			}
		}
		if !slices.Equal(c.Certificate[1], ca.Certificate()) {
			t.Error("the authority is not in the chain: agents that know its fingerprint need it there")
		}
	}
	first, err := get(nil)
	if err != nil {
		t.Fatal(err)
	}
	verify(first)
	if same, _ := get(nil); same != first {
		t.Error("made anew without need")
	}
	now = now.Add(25 * 24 * time.Hour)
	second, err := get(nil)
	if err != nil || second == first {
		t.Fatalf("not made anew, %v", err)
	}
	verify(second)
}
