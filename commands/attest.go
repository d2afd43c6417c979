package commands

import (
	"crypto/ed25519"
	"time"

	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
)

// SignedResults is the check of signed results that is used unless another is set: the input is rebuilt from the stored
// agent command, and checked with the key of a certificate that the agent had at the time of the signature, in the role that
// the agent command is for.
type SignedResults struct{}

// clockSkew is how far an agent's clock may be off.
const clockSkew = 5 * time.Minute

// Verify implements Attestor.
func (SignedResults) Verify(c agentcommand.State, bootID string, result []byte, a agentcommand.Attestation,
	certificates []agent.Certificate, now time.Time,
) error {
	with, known := agent.Find(certificates, a.Certificate)
	switch {
	case !known:
		return unproven("the agent never had the certificate")
	case with.RevokedAt != nil:
		return unproven("the certificate was revoked")
	case string(with.Role) != string(c.Role): // the installed OS, which is its tenant's, proves nothing for the ramdisk
		return unproven("the certificate is of another role than the agent command")
	case a.At.After(now.Add(clockSkew)):
		return unproven("the time of the signature is in the future")
	case a.At.Before(with.NotBefore.Add(-clockSkew)) || a.At.After(with.NotAfter.Add(clockSkew)):
		return unproven("the certificate was not valid at the time of the signature")
	case len(with.PublicKey) != ed25519.PublicKeySize:
		return unproven("the certificate's key is not an Ed25519 key")
	}
	input := agentcommand.SigningInput(c.AgentCommand, c.Kind, c.Node, c.Attempt, bootID, c.Payload, result, a.At)
	if !ed25519.Verify(with.PublicKey, input, a.Signature) {
		return unproven("the signature is not of this result, for this agent command, by this key")
	}
	return nil
}

func unproven(why string) error {
	return fault.Invalid(fault.Issue{Path: "attestation", Message: why})
}
