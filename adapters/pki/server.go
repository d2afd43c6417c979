package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"sync"
	"time"
)

// serverLife is how long the gateway's certificate is good. It is made anew, in memory, after two thirds of that.
const serverLife = 30 * 24 * time.Hour

// ServerCertificate gives the gateway's certificate for names: DNS names and IP addresses. What it returns is for
// tls.Config.GetCertificate; it keeps the certificate fresh.
func (c *CA) ServerCertificate(names ...string) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	var mu sync.Mutex
	var now *tls.Certificate
	var renew time.Time
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		if at := c.clock(); now == nil || at.After(renew) {
			fresh, err := c.issueServer(names, at)
			if err != nil {
				return nil, err
			}
			now, renew = fresh, at.Add(serverLife*2/3)
		}
		return now, nil
	}
}

func (c *CA) issueServer(names []string, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("certificate of the gateway: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "metal gateway"},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(serverLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, name)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.certificate, key.Public(), c.key)
	if err != nil {
		return nil, fmt.Errorf("certificate of the gateway: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der, c.certificate.Raw}, PrivateKey: key}, nil
}
