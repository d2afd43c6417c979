package image_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/image"
)

var (
	acme  = id.Of[id.Tenant](uuid.UUID{15: 1})
	other = id.Of[id.Tenant](uuid.UUID{15: 2})
)

func facts() image.Facts {
	return image.Facts{
		Image: image.Of(acme, image.Ref{Name: "ubuntu", Version: "24.04"}), Tenant: acme, Name: "ubuntu", Version: "24.04",
		Digest: "sha256:" + strings.Repeat("ab", 32), Bytes: 1, Format: "raw.zst", URL: "https://images/u.raw.zst",
		Signature: []byte{1}, Signer: "build",
	}
}

func TestRegister(t *testing.T) {
	for path, change := range map[string]func(*image.Facts){
		"":               func(*image.Facts) {},
		"body.name":      func(r *image.Facts) { r.Name = "a@b" },
		"body.version":   func(r *image.Facts) { r.Version = "" },
		"body.digest":    func(r *image.Facts) { r.Digest = strings.ToUpper(r.Digest) },
		"body.bytes":     func(r *image.Facts) { r.Bytes = 0 },
		"body.format":    func(r *image.Facts) { r.Format = "vmdk" },
		"body.url":       func(r *image.Facts) { r.URL = "https://user:password@images/u" },
		"body.signature": func(r *image.Facts) { r.Signature = nil },
	} {
		f := facts()
		change(&f)
		events, err := image.Decide(image.State{}, image.Register{Facts: f})
		var wrong *fault.Error
		switch {
		case path == "" && (err != nil || len(events) != 1):
			t.Errorf("%v, %v", events, err)
		case path != "" && (!errors.As(err, &wrong) || len(wrong.Issues) != 1 || wrong.Issues[0].Path != path):
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestAVersionNeverChanges(t *testing.T) {
	s := image.Decider.Fold(image.State{}, image.Registered{Facts: facts()})
	if again, err := image.Decide(s, image.Register{Facts: facts()}); err != nil || len(again) > 0 {
		t.Errorf("the same again: %v, %v", again, err)
	}
	changed := facts()
	changed.Digest = "sha256:" + strings.Repeat("cd", 32)
	if _, err := image.Decide(s, image.Register{Facts: changed}); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("another digest: %v", err)
	}
	gone, err := image.Decide(s, image.Withdraw{Reason: "a hole"})
	if err != nil || len(gone) != 1 {
		t.Fatal(gone, err)
	}
	s = image.Decider.Fold(s, gone...)
	if s.Available() || s.Reason != "a hole" {
		t.Errorf("withdrawn: %+v", s)
	}
	if again, err := image.Decide(s, image.Withdraw{}); err != nil || len(again) > 0 {
		t.Errorf("withdrawn twice: %v, %v", again, err)
	}
	if _, err := image.Decide(s, image.Register{Facts: facts()}); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("registered after it was withdrawn: %v", err)
	}
	if _, err := image.Decide(image.State{}, image.Withdraw{}); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("withdrawn, never registered: %v", err)
	}
}

func TestIDIsOfTenantAndRef(t *testing.T) {
	a, b := image.Ref{Name: "u", Version: "1"}, image.Ref{Name: "u", Version: "2"}
	ids := map[id.Image]bool{image.Of(acme, a): true, image.Of(acme, b): true, image.Of(other, a): true, image.Of(acme, a): true}
	if len(ids) != 3 {
		t.Errorf("%d ids of three images", len(ids))
	}
}

func TestParseRef(t *testing.T) {
	for text, want := range map[string]image.Ref{
		"ubuntu@24.04": {Name: "ubuntu", Version: "24.04"}, "ubuntu": {}, "@1": {}, "u@": {}, "a@b@c": {}, "a b@c": {}, "": {},
		strings.Repeat("a", 101) + "@1": {},
	} {
		got, err := image.ParseRef("with.image", text)
		if diff := cmp.Diff(want, got); diff != "" || (want == image.Ref{}) != (fault.CodeOf(err) == fault.InvalidInput) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func pemOf(t *testing.T, public any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func TestVerify(t *testing.T) {
	sum := sha256.Sum256([]byte("an image"))
	digest := "sha256:" + hex.EncodeToString(sum[:])
	edPublic, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	big, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ecSigned, err := ecdsa.SignASN1(rand.Reader, ec, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	bigSigned, err := ecdsa.SignASN1(rand.Reader, big, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	edSigned := ed25519.Sign(ed, sum[:])
	for name, c := range map[string]struct {
		digest    string
		signature []byte
		key       string
		want      bool
	}{
		"ed25519":            {digest, edSigned, pemOf(t, edPublic), true},
		"p-256":              {digest, ecSigned, pemOf(t, &ec.PublicKey), true},
		"p-384":              {digest, bigSigned, pemOf(t, &big.PublicKey), false},
		"the other's key":    {digest, edSigned, pemOf(t, &ec.PublicKey), false},
		"another digest":     {"sha256:" + strings.Repeat("00", 32), edSigned, pemOf(t, edPublic), false},
		"over the text":      {digest, ed25519.Sign(ed, []byte(digest)), pemOf(t, edPublic), false},
		"no key":             {digest, edSigned, "nonsense", false},
		"no digest":          {"md5:00", edSigned, pemOf(t, edPublic), false},
		"no signature":       {digest, nil, pemOf(t, edPublic), false},
		"a shorter one":      {digest, edSigned[:63], pemOf(t, edPublic), false},
		"digest too short":   {digest[:len(digest)-2], edSigned, pemOf(t, edPublic), false},
		"digest upper-cased": {"sha256:" + strings.ToUpper(hex.EncodeToString(sum[:])), edSigned, pemOf(t, edPublic), false},
	} {
		if got := image.Verify(c.digest, c.signature, c.key); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// However names are taken and given up, one image has a name at a time, and only it can give it up.
func TestOneImageIsPublic(t *testing.T) {
	images := []id.Image{{}, id.Of[id.Image](uuid.UUID{15: 1}), id.Of[id.Image](uuid.UUID{15: 2}), id.Of[id.Image](uuid.UUID{15: 3})}
	rapid.Check(t, func(rt *rapid.T) {
		var p image.Publication
		for range rapid.IntRange(1, 20).Draw(rt, "verbs") {
			before, by := p.Image, rapid.SampledFrom(images[1:]).Draw(rt, "image")
			if rapid.Bool().Draw(rt, "publish") {
				instead := rapid.SampledFrom(images).Draw(rt, "instead")
				events, err := image.DecidePublic(p, image.Publish{Facts: image.Published{Image: by}, Instead: instead})
				p = image.PublicDecider.Fold(p, events...)
				may := id.IsZero(before) || before == by || before == instead
				if may != (err == nil) || may != (p.Image == by) || !may && p.Image != before {
					rt.Fatalf("%v takes the name of %v instead of %v: %v, %v", by, before, instead, p.Image, err)
				}
				continue
			}
			events, err := image.DecidePublic(p, image.Unpublish{Image: by})
			p = image.PublicDecider.Fold(p, events...)
			if err != nil || before == by && !id.IsZero(p.Image) || before != by && p.Image != before {
				rt.Fatalf("%v gives up the name of %v: %v, %v", by, before, p.Image, err)
			}
		}
	})
}
