package agent

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"time"
)

var errUntrusted = errors.New("its certificate does not lead to the control plane's CA")

// tlsConfig trusts one CA, known by the SHA-256 of its certificate only. The gateway sends that certificate with its own.
func (l *link) tlsConfig(presents *tls.Certificate) *tls.Config {
	host := ""
	if u, err := url.Parse(l.Gateway); err == nil {
		host = u.Hostname()
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		ServerName:         host,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection does it: the CA is known by its fingerprint
		VerifyConnection: func(s tls.ConnectionState) error {
			if err := l.verify(s.PeerCertificates, host); err != nil {
				return fmt.Errorf("%w: %w", errUntrusted, err)
			}
			return nil
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if presents == nil {
				return &tls.Certificate{}, nil
			}
			return presents, nil
		},
		// Sessions are not resumed: a resumed one would go on with the certificate of the first.
		SessionTicketsDisabled: true,
	}
}

// verify wants a chain from the server's certificate to the CA, and the server's name.
func (l *link) verify(chain []*x509.Certificate, host string) error {
	if len(chain) == 0 {
		return errors.New("it has none")
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	known := false
	for _, c := range append(chain[1:len(chain):len(chain)], l.knownCA()...) {
		if fingerprint(c.Raw) == l.CA {
			roots.AddCert(c)
			known = true
		} else {
			between.AddCert(c)
		}
	}
	if !known {
		return errors.New("the CA's certificate is not among what it sent")
	}
	at := l.Now()
	if at.Before(chain[0].NotBefore) {
		at = chain[0].NotBefore // a machine whose clock is behind: its time is before the certificate was made
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		DNSName: host, Roots: roots, Intermediates: between, CurrentTime: at,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}

// knownCA is the CA's certificate where a join or a renewal told it.
func (l *link) knownCA() []*x509.Certificate {
	ca, err := x509.ParseCertificate(l.who().CA)
	if err != nil {
		return nil
	}
	return []*x509.Certificate{ca}
}

// fingerprint is the SHA-256 of a certificate, in lower-case hex.
func fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

// valid tells whether an identity may be presented at a time.
func (i Identity) valid(at time.Time) bool {
	return i.AgentID != "" && len(i.Certificate) > 0 && at.Before(i.NotAfter)
}
