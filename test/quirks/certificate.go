package quirks

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// Certificate says what a controller's certificate is like. The zero value is self-signed, valid, and of the loopback
// addresses.
type Certificate struct {
	Name    string // in place of the addresses
	Expired bool
	RSA     bool             // as the oldest ciphers need it
	Signer  *tls.Certificate // nil: itself
	CA      bool             // it signs others
}

// Make makes a new key and its certificate.
func (c Certificate) Make(t testing.TB) tls.Certificate {
	t.Helper()
	var private crypto.Signer
	var err error
	if c.RSA {
		private, err = rsa.GenerateKey(rand.Reader, 2048)
	} else {
		private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "bmc"}, NotBefore: now.Add(-2 * time.Hour), NotAfter: now.Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: c.CA,
	}
	if c.CA {
		template.KeyUsage |= x509.KeyUsageCertSign
	}
	if c.Name != "" {
		template.DNSNames = []string{c.Name}
	} else {
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	}
	if c.Expired {
		template.NotAfter = now.Add(-time.Hour)
	}
	parent, signer := template, any(private)
	if c.Signer != nil {
		parent, signer = c.Signer.Leaf, c.Signer.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, private.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private, Leaf: leaf}
}

// PEM is a certificate as a policy holds it.
func PEM(c tls.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}))
}
