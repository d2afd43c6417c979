package agent

import (
	"crypto/ed25519"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
)

// Decider is the aggregate.
var Decider = event.Decider[State, Command, Event]{Decide: Decide, Evolve: Evolve}

// maxText bounds what an agent says of itself, in bytes.
const maxText = 256

// Decide applies one verb. No events and no error: there was nothing to change. Errors: UNAUTHENTICATED for a certificate
// that is not, or no longer, the agent's; FORBIDDEN for a role that it was not issued for; CONFLICT, INVALID_INPUT.
func Decide(s State, c Command) ([]Event, error) {
	if c, ok := c.(Join); ok {
		return join(s, c.Facts)
	}
	if c, ok := c.(Revoke); ok {
		return revoke(s, c), nil
	}
	if !s.Exists() {
		return nil, unauthenticated("there is no such agent")
	}
	switch c := c.(type) {
	case Renew:
		return renew(s, c)
	case OpenSession:
		return openSession(s, c)
	case Use:
		return use(s, c)
	default:
		return nil, fmt.Errorf("agent.Decide does not know %T", c)
	}
}

func join(s State, j Joined) ([]Event, error) {
	if !slices.Contains(Roles, j.Role) {
		return nil, fault.Invalid(fault.Issue{Path: "role", Message: "one of site, ramdisk, node"})
	}
	if s.Exists() && (s.Tenant != j.Tenant || s.Site != j.Site || s.Node != j.Node) {
		return nil, fault.New(fault.Conflict, "agent %s belongs elsewhere", s.ID)
	}
	if err := checkCertificate(s, j.Certificate); err != nil {
		return nil, err
	}
	if err := checkTexts(map[string]string{"name": j.Name, "version": j.Version}); err != nil {
		return nil, err
	}
	j.Certificate.Role = j.Role
	return []Event{j}, nil
}

// checkTexts refuses what no agent says of itself.
func checkTexts(texts map[string]string) error {
	var issues []fault.Issue
	for path, text := range texts {
		if len(text) > maxText || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			issues = append(issues, fault.Issue{Path: path, Message: fmt.Sprintf("at most %d bytes, no control characters", maxText)})
		}
	}
	if len(issues) > 0 {
		slices.SortFunc(issues, func(a, b fault.Issue) int { return strings.Compare(a.Path, b.Path) })
		return fault.Invalid(issues...)
	}
	return nil
}

func checkCertificate(s State, c Certificate) error {
	_, known := s.Certificate(c.Fingerprint)
	switch {
	case c.Fingerprint == "" || len(c.PublicKey) != ed25519.PublicKeySize || !c.NotAfter.After(c.NotBefore):
		return fault.Invalid(fault.Issue{Path: "certificate", Message: "a certificate of an Ed25519 key, with a time of validity"})
	case known:
		return fault.New(fault.Conflict, "certificate %s was issued before", c.Fingerprint)
	}
	return nil
}

func renew(s State, c Renew) ([]Event, error) {
	present, err := s.MayRenew(c.With, c.Now)
	if err != nil {
		return nil, err
	}
	if err := checkCertificate(s, c.Certificate); err != nil {
		return nil, err
	}
	c.Certificate.Role = present.Role
	var events []Event
	if s.InUse(present.Role) != c.With {
		events = []Event{Used{Agent: s.ID, Node: s.Node, Fingerprint: c.With}}
	}
	return append(events, Issued{Agent: s.ID, Node: s.Node, Certificate: c.Certificate}), nil
}

func openSession(s State, c OpenSession) ([]Event, error) {
	with, err := s.Authenticates(c.Fingerprint, c.Now)
	switch {
	case err != nil:
		return nil, err
	case with.Role != c.Role:
		return nil, fault.New(fault.Forbidden, "the certificate is of role %s, not %s", with.Role, c.Role).
			WithRemedy("join with a token of the other role")
	case c.BootID == "":
		return nil, fault.Invalid(fault.Issue{Path: "bootId", Message: "needed"})
	}
	if err := checkTexts(map[string]string{"bootId": c.BootID, "version": c.Version}); err != nil {
		return nil, err
	}
	if s.BootID == c.BootID && s.Role == c.Role {
		return use(s, Use{Fingerprint: c.Fingerprint, Now: c.Now})
	}
	return []Event{SessionOpened{
		Agent: s.ID, Node: s.Node, Role: c.Role, BootID: c.BootID, Version: c.Version, Fingerprint: c.Fingerprint, At: c.Now,
	}}, nil
}

// use takes a renewed certificate into use: what was issued before it no longer authenticates. The one that is in use
// already changes nothing, and leaves a renewed one waiting.
func use(s State, c Use) ([]Event, error) {
	with, err := s.Authenticates(c.Fingerprint, c.Now)
	if err != nil || s.InUse(with.Role) == c.Fingerprint {
		return nil, err
	}
	return []Event{Used{Agent: s.ID, Node: s.Node, Fingerprint: c.Fingerprint}}, nil
}

func revoke(s State, c Revoke) []Event {
	if len(s.Current) == 0 {
		return nil
	}
	return []Event{Revoked{Agent: s.ID, Node: s.Node, Reason: cut(c.Reason), At: c.Now.UTC().Truncate(time.Microsecond)}}
}

func cut(reason string) string {
	const most = 512
	reason = strings.ToValidUTF8(reason, "\uFFFD")
	if len(reason) > most {
		return strings.ToValidUTF8(reason[:most], "")
	}
	return reason
}

// Evolve folds one event.
func Evolve(s State, e Event) State {
	switch e := e.(type) {
	case Joined:
		s.ID, s.Tenant, s.Site, s.Node = e.Agent, e.Tenant, e.Site, e.Node
		s.Name, s.Version, s.Claims, s.Revoked = e.Name, e.Version, e.Claims, ""
		if s.BootID == "" { // a session, once there was one, is replaced by the next session only
			s.Role = e.Role
		}
		var kept []string
		if e.Keeps {
			kept = s.otherRoles(e.Role)
		}
		s.Certificates = append(slices.Clip(s.Certificates), e.Certificate)
		s.Current = append(kept, e.Certificate.Fingerprint)
	case Issued:
		next := s.otherRoles(e.Certificate.Role)
		if now := s.InUse(e.Certificate.Role); now != "" {
			next = append(next, now)
		}
		s.Certificates = append(slices.Clip(s.Certificates), e.Certificate)
		s.Current = append(next, e.Certificate.Fingerprint)
	case Used:
		s = s.using(e.Fingerprint)
	case SessionOpened:
		s.Role, s.BootID, s.Version, s.SessionAt = e.Role, e.BootID, e.Version, e.At
		s = s.using(e.Fingerprint)
	case Revoked:
		s.Certificates = slices.Clone(s.Certificates)
		for i, c := range s.Certificates {
			if c.RevokedAt == nil {
				s.Certificates[i].RevokedAt = &e.At
			}
		}
		s.Current, s.Revoked = nil, e.Reason
	default:
		panic(fmt.Sprintf("agent.Evolve does not know %T", e))
	}
	return s
}

// using takes a certificate into use. What was issued for its role before it goes; a renewed one that waits stays.
func (s State) using(fingerprint string) State {
	with, _ := s.Certificate(fingerprint)
	if s.InUse(with.Role) != fingerprint {
		s.Current = append(s.otherRoles(with.Role), fingerprint)
	}
	return s
}
