package postgres

import (
	"context"
	"crypto/ed25519"
)

// Sign signs a head of the log with an Ed25519 key (RFC 8032) that belongs to the installation, and tells the public key
// that checks it. The key is derived from one that is not rotated, so that a head kept for years is still checked by the
// same public key. It never fails.
func (s *Secrets) Sign(_ context.Context, text []byte) (signature, publicKey []byte, err error) {
	key := ed25519.NewKeyFromSeed(s.sign.bytes())
	return ed25519.Sign(key, text), append([]byte(nil), key[ed25519.SeedSize:]...), nil
}

// RequestKey keys the hashes of requests that are kept for idempotency, 32 bytes, the same in every replica: a hash
// without a key would let whoever reads the table guess at a password in a request.
func (s *Secrets) RequestKey() []byte { return append([]byte(nil), s.hash.bytes()...) }
