package pki

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// AgentLife is how long an agent's certificate is good, unless another life is asked for.
const AgentLife = 24 * time.Hour

// agentURI and nodeURI begin the names in an agent's certificate.
const (
	agentURI = "metal:agent:"
	nodeURI  = "metal:node:"
)

// Issued is a certificate as the agent gets it, and as its stream keeps it.
type Issued struct {
	DER         []byte
	Certificate agent.Certificate
	RenewAfter  time.Time // two thirds of its life
}

// RequestKey reads a request for a certificate (PKCS #10, DER), proves that whoever made it holds the key, and gives the
// public key. Errors: INVALID_INPUT for anything but an Ed25519 key that signed its own request.
func RequestKey(csr []byte) (ed25519.PublicKey, error) {
	request, err := x509.ParseCertificateRequest(csr)
	if err != nil {
		return nil, badRequest("a PKCS #10 request, DER")
	}
	key, ok := request.PublicKey.(ed25519.PublicKey)
	if !ok {
		return nil, badRequest("of an Ed25519 key")
	}
	if request.CheckSignature() != nil {
		return nil, badRequest("signed with its own key")
	}
	return key, nil
}

func badRequest(want string) error { return fault.Invalid(fault.Issue{Path: "csr", Message: want}) }

// IssueAgent makes an agent's certificate for a public key. A zero life is AgentLife. The agent's id, and its node's where it
// has one, are in it; nothing of the request but the key is.
func (c *CA) IssueAgent(key ed25519.PublicKey, a id.Agent, n id.Node, role agent.Role, life time.Duration) (Issued, error) {
	if life <= 0 {
		life = AgentLife
	}
	now := c.clock().UTC().Truncate(time.Second)
	names := []*url.URL{{Scheme: "urn", Opaque: agentURI + a.String()}}
	if !id.IsZero(n) {
		names = append(names, &url.URL{Scheme: "urn", Opaque: nodeURI + n.String()})
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: a.String(), OrganizationalUnit: []string{string(role)}},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(life), URIs: names,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.certificate, key, c.key)
	if err != nil {
		return Issued{}, fmt.Errorf("issue a certificate for %s: %w", a, err)
	}
	issued := agent.Certificate{
		Fingerprint: Fingerprint(der), PublicKey: key, Serial: template.SerialNumber.Text(16), Role: role,
		NotBefore: template.NotBefore, NotAfter: template.NotAfter,
	}
	return Issued{DER: der, RenewAfter: RenewAfter(issued), Certificate: issued}, nil
}

// RenewAfter is when two thirds of an agent's certificate's life are over.
func RenewAfter(c agent.Certificate) time.Time {
	issued := c.NotBefore.Add(backdate)
	return issued.Add(c.NotAfter.Sub(issued) * 2 / 3)
}

// AgentIn reads whose certificate it is, once it is known to be of this authority. Whether the agent still has it, its stream
// says; so an expired one is told too.
func (c *CA) AgentIn(certificate *x509.Certificate) (id.Agent, error) {
	if err := certificate.CheckSignatureFrom(c.certificate); err != nil {
		return id.Agent{}, fault.Wrap(err, fault.Unauthenticated, "the certificate is not of this control plane").
			WithRemedy("join again with a fresh token")
	}
	for _, name := range certificate.URIs {
		if text, ok := strings.CutPrefix(name.Opaque, agentURI); ok && name.Scheme == "urn" {
			return id.Parse[id.Agent](text)
		}
	}
	return id.Agent{}, fault.New(fault.Unauthenticated, "the certificate is not an agent's")
}
