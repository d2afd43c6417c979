package commands_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"testing"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/tenant"
)

// imageSigner signs images; a tenant that trusts it knows it as build.
type imageSigner struct{ key ed25519.PrivateKey }

func newImageSigner(t *testing.T) imageSigner {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return imageSigner{key}
}

func (s imageSigner) policy(t *testing.T) tenant.Policy {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(s.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	text := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	return tenant.Policy{ImageSigners: []tenant.Signer{{Name: "build", PublicKey: text}}}
}

func (s imageSigner) image(owner id.Tenant, version, content string) commands.NewImage {
	sum := sha256.Sum256([]byte(content))
	return commands.NewImage{
		Tenant: owner, Name: "ubuntu", Version: version, Digest: "sha256:" + hex.EncodeToString(sum[:]), Bytes: 9,
		Format: "raw.zst", URL: "https://images/" + content, Signature: ed25519.Sign(s.key, sum[:]),
	}
}

func TestImagesAreRegisteredBySignersOfTheirTenant(t *testing.T) {
	ctx, w, build := context.Background(), newWorld(t), newImageSigner(t)
	acme := w.newTenant(t)
	in := build.image(acme, "24.04", "content")
	if _, err := w.RegisterImage(ctx, system(), in); fault.CodeOf(err) != fault.InvalidInput {
		t.Errorf("a signer that nobody trusts: %v", err)
	}
	if _, err := w.ChangeTenantPolicy(ctx, system(), acme, build.policy(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.RegisterImage(ctx, of(tenant.Root), in); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("registered by a stranger: %v", err)
	}
	done, err := w.RegisterImage(ctx, of(acme), in)
	if err != nil || done.State.Signer != "build" || done.State.SignerKey == "" {
		t.Fatalf("%+v, %v", done.State, err)
	}
	again, err := w.RegisterImage(ctx, of(acme), in)
	if err != nil || again.Version != done.Version {
		t.Errorf("registered again: version %d, %v", again.Version, err)
	}
	if _, err := w.RegisterImage(ctx, of(acme), build.image(acme, "24.04", "other")); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("another content under the same version: %v", err)
	}
	found, err := w.ResolveImage(ctx, acme, "ubuntu@24.04")
	if err != nil || found.Image != done.State.Image {
		t.Errorf("found %+v, %v", found, err)
	}
	for text, code := range map[string]fault.Code{"ubuntu@25.04": fault.NotFound, "ubuntu": fault.InvalidInput} {
		if _, err := w.ResolveImage(ctx, acme, text); fault.CodeOf(err) != code {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := w.ResolveImage(ctx, w.newTenant(t), "ubuntu@24.04"); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("another tenant's image: %v", err)
	}
	if _, err := w.WithdrawImage(ctx, of(w.newTenant(t)), done.State.Image, ""); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("withdrawn by a stranger: %v", err)
	}
	if gone, err := w.WithdrawImage(ctx, of(acme), done.State.Image, "a hole"); err != nil || !gone.State.Withdrawn {
		t.Fatalf("%+v, %v", gone.State, err)
	}
	if _, err := w.ResolveImage(ctx, acme, "ubuntu@24.04"); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("a withdrawn image: %v", err)
	}
}

func TestPublicImages(t *testing.T) {
	ctx, w, build := context.Background(), newWorld(t), newImageSigner(t)
	acme := w.newTenant(t)
	for _, owner := range []id.Tenant{tenant.Root, acme} {
		if _, err := w.ChangeTenantPolicy(ctx, system(), owner, build.policy(t)); err != nil {
			t.Fatal(err)
		}
	}
	public := build.image(tenant.Root, "24.04", "public")
	public.Public = true
	theirs := build.image(acme, "24.04", "theirs")
	theirs.Public = true
	if _, err := w.RegisterImage(ctx, of(acme), theirs); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("published by a tenant: %v", err)
	}
	done, err := w.RegisterImage(ctx, of(tenant.Root), public)
	if err != nil {
		t.Fatal(err)
	}
	if found, err := w.ResolveImage(ctx, acme, "ubuntu@24.04"); err != nil || found.Image != done.State.Image {
		t.Errorf("the public one: %+v, %v", found, err)
	}
	if _, err := w.RegisterImage(ctx, system(), theirs); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("a second public one: %v", err)
	}
	theirs.Public = false
	own, err := w.RegisterImage(ctx, system(), theirs)
	if err != nil {
		t.Fatal(err)
	}
	if found, err := w.ResolveImage(ctx, acme, "ubuntu@24.04"); err != nil || found.Image != own.State.Image {
		t.Errorf("one's own goes before the public one: %+v, %v", found, err)
	}
	if _, err := w.WithdrawImage(ctx, system(), own.State.Image, ""); err != nil {
		t.Fatal(err)
	}
	if found, err := w.ResolveImage(ctx, acme, "ubuntu@24.04"); err != nil || found.Image != done.State.Image {
		t.Errorf("the public one again: %+v, %v", found, err)
	}
	if _, err := w.WithdrawImage(ctx, system(), done.State.Image, ""); err != nil {
		t.Fatal(err)
	}
	third := w.newTenant(t)
	if _, err := w.ChangeTenantPolicy(ctx, system(), third, build.policy(t)); err != nil {
		t.Fatal(err)
	}
	next := build.image(third, "24.04", "next")
	next.Public = true
	last, err := w.RegisterImage(ctx, system(), next)
	if err != nil {
		t.Fatalf("the name of a withdrawn image: %v", err)
	}
	if found, err := w.ResolveImage(ctx, acme, "ubuntu@24.04"); err != nil || found.Image != last.State.Image {
		t.Errorf("the next public one: %+v, %v", found, err)
	}
}
