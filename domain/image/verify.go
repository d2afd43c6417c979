package image

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"net/url"
	"slices"
	"strings"

	"github.com/better-compute/metal/domain/fault"
)

// Formats lists what an image may be: the disk's bytes or qcow2, compressed or not.
var Formats = []string{
	"raw", "raw.gz", "raw.xz", "raw.zst", "qcow2", "qcow2.gz", "qcow2.xz", "qcow2.zst",
}

const (
	digestPrefix = "sha256:"
	digestBytes  = 32
	maxURL       = 2048
)

// Check lists what is wrong with the facts of an image.
func Check(r Facts) error {
	var issues []fault.Issue
	need := func(ok bool, path, message string) {
		if !ok {
			issues = append(issues, fault.Issue{Path: path, Message: message})
		}
	}
	_, digest := rawDigest(r.Digest)
	need(word(r.Name), "body.name", "1 to 100 of letters, digits and -_.+")
	need(word(r.Version), "body.version", "1 to 100 of letters, digits and -_.+")
	need(digest, "body.digest", "sha256:<64 lower-case hex digits>")
	need(r.Bytes > 0, "body.bytes", "above zero")
	need(slices.Contains(Formats, r.Format), "body.format", "one of "+strings.Join(Formats, ", "))
	need(location(r.URL), "body.url", "an http or https URL of at most 2048 bytes, without credentials and fragment")
	need(len(r.Signature) > 0, "body.signature", "needed")
	if len(issues) > 0 {
		return fault.Invalid(issues...)
	}
	return nil
}

// location tells whether the URL can be handed to every agent that deploys the image: it is in the log and in agent commands,
// so it holds no password.
func location(text string) bool {
	u, err := url.Parse(text)
	return err == nil && len(text) <= maxURL && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" &&
		u.User == nil && u.Fragment == ""
}

func rawDigest(text string) ([]byte, bool) {
	digits, prefixed := strings.CutPrefix(text, digestPrefix)
	raw, err := hex.DecodeString(digits)
	return raw, prefixed && err == nil && len(raw) == digestBytes && strings.ToLower(digits) == digits
}

// Verify reports whether a key signed a digest: with Ed25519 its 32 bytes as the message, with ECDSA on P-256 its 32 bytes as
// the digest, the signature being ASN.1. The key is PEM, PKIX.
func Verify(digest string, signature []byte, key string) bool {
	raw, ok := rawDigest(digest)
	block, _ := pem.Decode([]byte(key))
	if !ok || block == nil {
		return false
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return false
	}
	switch public := public.(type) {
	case ed25519.PublicKey:
		return ed25519.Verify(public, raw, signature)
	case *ecdsa.PublicKey:
		return public.Curve == elliptic.P256() && ecdsa.VerifyASN1(public, raw, signature)
	default:
		return false
	}
}
