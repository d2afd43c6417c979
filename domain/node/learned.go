package node

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/better-compute/metal/domain/fault"
)

// BMCLearned is what a driver found out about a machine's controller; what is empty is as before. As a part of State it is
// everything that is known.
type BMCLearned struct {
	Fingerprint string          `json:"fingerprint,omitempty"` // SHA-256 of the certificate, lower-case hex; pinned
	Quirks      json.RawMessage `json:"quirks,omitempty"`      // in the driver's own shape, handed back to it
	System      string          `json:"system,omitempty"`      // which of the controller's systems the machine is
}

// MaxQuirks bounds what a driver may keep about one controller, in bytes.
const MaxQuirks = 16 << 10

// EventType is the stored name.
func (BMCLearned) EventType() string { return "node.bmc.learned" }

func (BMCLearned) nodeEvent() {}

// With is what is known after news.
func (l BMCLearned) With(news BMCLearned) BMCLearned {
	if news.Fingerprint != "" {
		l.Fingerprint = news.Fingerprint
	}
	if len(news.Quirks) > 0 {
		l.Quirks = news.Quirks
	}
	if news.System != "" {
		l.System = news.System
	}
	return l
}

// Equal reports whether both say the same.
func (l BMCLearned) Equal(o BMCLearned) bool {
	return l.Fingerprint == o.Fingerprint && l.System == o.System && bytes.Equal(l.Quirks, o.Quirks)
}

// Pins reports whether the controller is known by its certificate.
func (b BMC) Pins() bool { return b.TLS.Mode == TLSPinOnFirstUse || b.TLS.Mode == TLSPinned }

// PinnedCertificate is the fingerprint that the controller's certificate must have: the one that was seen first or that the
// operator trusted since, else the one that the machine was enrolled with. Empty: not known yet, or another policy.
func (s State) PinnedCertificate() string {
	switch {
	case s.BMC == nil || !s.BMC.Pins():
		return ""
	case s.Learned.Fingerprint != "":
		return s.Learned.Fingerprint
	}
	return s.BMC.TLS.Fingerprint
}

func learnBMC(s State, news BMCLearned) ([]Event, error) {
	if s.BMC == nil {
		return nil, fault.New(fault.InvalidState, "the node has no BMC to learn of").WithDetail("state", string(s.Provision))
	}
	if len(news.Quirks) > MaxQuirks || len(news.Quirks) > 0 && !json.Valid(news.Quirks) {
		return nil, fault.Invalid(fault.Issue{Path: "quirks", Message: fmt.Sprintf("JSON of at most %d bytes", MaxQuirks)})
	}
	if !s.BMC.Pins() {
		news.Fingerprint = "" // trust comes from a CA, or from nowhere by the operator's word
	}
	if pinned := s.PinnedCertificate(); news.Fingerprint != "" && pinned != "" && news.Fingerprint != pinned {
		return nil, fault.New(fault.DriverError, "the BMC shows another certificate than the one that is pinned").
			WithDetail("reason", "certificate-changed").WithDetail("pinned", pinned).WithDetail("found", news.Fingerprint).
			WithRemedy("find out who answers at the address; if the certificate was renewed, trust the new one")
	}
	if s.Learned.With(news).Equal(s.Learned) {
		return nil, nil
	}
	return []Event{news}, nil
}

// trustBMC pins another certificate, by the operator's word: controllers renew theirs.
func trustBMC(s State, fingerprint string) ([]Event, error) {
	const digits = 64
	switch {
	case s.BMC == nil || !s.BMC.Pins() || s.Provision == Retired:
		return nil, fault.New(fault.InvalidState, "no certificate is pinned for the node").WithDetail("state", string(s.Provision))
	case len(fingerprint) != digits || strings.Trim(fingerprint, "0123456789abcdef") != "":
		return nil, fault.Invalid(fault.Issue{Path: "body.fingerprint", Message: "the SHA-256 of the certificate, 64 lower-case hex digits"})
	case s.PinnedCertificate() == fingerprint:
		return nil, nil
	}
	return []Event{BMCLearned{Fingerprint: fingerprint}}, nil
}
