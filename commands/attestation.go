package commands

import (
	"slices"

	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
)

// VerifyResult judges the signature of a settled result once more, with the certificates that the agent ever had. One that
// was revoked after it signed counts as it stood then: retiring a machine does not undo what was proven of it. The error
// says why the signature does not hold.
func (s *Service) VerifyResult(c agentcommand.State, bootID string, certificates []agent.Certificate) error {
	if c.Attestation == nil {
		return fault.Invalid(fault.Issue{Path: "attestation", Message: "the result is not signed"})
	}
	then := slices.Clone(certificates)
	for i := range then {
		if revoked := then[i].RevokedAt; revoked != nil && revoked.After(c.Attestation.At) {
			then[i].RevokedAt = nil
		}
	}
	return s.attest.Verify(c, bootID, c.Result, *c.Attestation, then, s.clock())
}
