// Package pki is the built-in certificate authority of agents and their gateway.
//
// Its key is made at the first start and sealed in the secret store, so that all replicas share it. Agents know the
// authority by the SHA-256 of its certificate, which their join token's bearer was told.
package pki

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

// Secrets is the sealed store that holds the authority's key.
type Secrets interface {
	Get(ctx context.Context, ref node.SecretRef) ([]byte, error)
	// PutNew stores a value under an id unless there is one already.
	PutNew(ctx context.Context, secretID uuid.UUID, value []byte) (ref node.SecretRef, added bool, err error)
}

// authority is the id under which key and certificate are kept.
var authority = uuid.MustParse("00000000-0000-7000-8000-0000000000ca")

const (
	authorityLife = 20 * 365 * 24 * time.Hour
	backdate      = time.Hour // clocks of machines are behind
)

// CA issues certificates. It is safe for concurrent use.
type CA struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
	pool        *x509.CertPool
	clock       func() time.Time
}

// kept is how the authority is kept.
type kept struct {
	Key         []byte `json:"key"`         // PKCS #8, DER
	Certificate []byte `json:"certificate"` // DER
}

// Open reads the authority, or makes it where there is none. Of replicas that start together one makes it. Errors:
// UNAVAILABLE; INTERNAL where what is kept was damaged.
func Open(ctx context.Context, secrets Secrets, clock func() time.Time) (*CA, error) {
	ref := node.SecretRef("secret:" + authority.String())
	value, err := secrets.Get(ctx, ref)
	if fault.CodeOf(err) == fault.NotFound {
		made, makeErr := makeAuthority(clock())
		if makeErr != nil {
			return nil, makeErr
		}
		if _, _, err = secrets.PutNew(ctx, authority, made); err == nil {
			value, err = secrets.Get(ctx, ref)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	return read(value, clock)
}

func makeAuthority(now time.Time) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "metal agents"},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(authorityLife),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	return json.Marshal(kept{Key: private, Certificate: der})
}

func read(value []byte, clock func() time.Time) (*CA, error) {
	damaged := func(err error) error {
		return fault.Wrap(err, fault.Internal, "the certificate authority in the secret store is damaged")
	}
	var k kept
	if err := json.Unmarshal(value, &k); err != nil {
		return nil, damaged(err)
	}
	key, err := x509.ParsePKCS8PrivateKey(k.Key)
	if err != nil {
		return nil, damaged(err)
	}
	certificate, err := x509.ParseCertificate(k.Certificate)
	if err != nil {
		return nil, damaged(err)
	}
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok || !private.PublicKey.Equal(certificate.PublicKey) {
		return nil, damaged(nil)
	}
	pool := x509.NewCertPool()
	pool.AddCert(certificate)
	return &CA{key: private, certificate: certificate, pool: pool, clock: clock}, nil
}

func serial() *big.Int {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails: it ends the program instead
	random[0] &= 0x7f
	return new(big.Int).SetBytes(random[:])
}

// Certificate is the authority's own certificate, DER.
func (c *CA) Certificate() []byte { return c.certificate.Raw }

// Pool is the authority as a root to verify with.
func (c *CA) Pool() *x509.CertPool { return c.pool.Clone() }

// Fingerprint is the SHA-256 of the authority's certificate in lower-case hexadecimal: what agents are told.
func (c *CA) Fingerprint() string { return Fingerprint(c.certificate.Raw) }

// Fingerprint is the SHA-256 of a certificate in lower-case hexadecimal.
func Fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}
