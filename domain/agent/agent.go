// Package agent is an agent as an aggregate: what it joined as, the certificates it ever had, and the boot of its newest
// session. The agents of one node, in the ramdisk and in the installed OS, are one; a site's agents are one each.
package agent

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// Category is the first part of an agent's stream name.
const Category = "agent"

// StreamOf names the stream of one agent.
func StreamOf(a id.Agent) event.Stream { return event.StreamOf(Category, a.String()) }

// Of is the agent of a node.
func Of(n id.Node) id.Agent {
	return id.Of[id.Agent](uuid.NewSHA1(names, []byte(n.String())))
}

// OfSite is the agent of a site that joined with a token and a first key, given by its hash.
func OfSite(t id.JoinToken, keyHash string) id.Agent {
	return id.Of[id.Agent](uuid.NewSHA1(names, []byte(t.String()+"/"+keyHash)))
}

var names = uuid.MustParse("5b0f7a1e-8c0d-5f5e-9a59-2f1d2f0d7c31")

// Role is as what an agent runs.
type Role string

// The roles.
const (
	RoleSite    Role = "site"
	RoleRamdisk Role = "ramdisk"
	RoleNode    Role = "node"
)

// Roles lists every role.
var Roles = []Role{RoleSite, RoleRamdisk, RoleNode}

// Claims is the hardware that an agent said it runs on when it joined.
type Claims struct {
	MACs        []string `json:"macs,omitempty"`
	ProductUUID string   `json:"productUuid,omitempty"`
	Serial      string   `json:"serial,omitempty"`
	GPUUUIDs    []string `json:"gpuUuids,omitempty"`
}

// Certificate is one certificate that an agent has or had. The key is Ed25519.
type Certificate struct {
	Fingerprint string     `json:"fingerprint"` // SHA-256 of the certificate, lower-case hex
	PublicKey   []byte     `json:"publicKey"`   // 32 bytes
	Serial      string     `json:"serial"`      // hexadecimal
	Role        Role       `json:"role"`        // under which it was issued
	NotBefore   time.Time  `json:"notBefore"`
	NotAfter    time.Time  `json:"notAfter"`
	RevokedAt   *time.Time `json:"revokedAt,omitempty"`
}

// State is the fold of an agent's stream.
type State struct {
	ID     id.Agent  `json:"id"`
	Tenant id.Tenant `json:"tenantId"`
	Site   id.Site   `json:"siteId"`
	Node   id.Node   `json:"nodeId,omitzero"` // zero: a site's agent
	Role   Role      `json:"role"`            // of the newest session; before any, as joined
	Name   string    `json:"name,omitempty"`
	Claims Claims    `json:"claims,omitzero"`

	Version   string    `json:"version,omitempty"`
	BootID    string    `json:"bootId,omitempty"`   // of the newest session; empty: there was none
	SessionAt time.Time `json:"sessionAt,omitzero"` // when it was opened

	Certificates []Certificate `json:"certificates"` // every one ever, in the order of issue
	Current      []string      `json:"current"`      // fingerprints that authenticate; of each role the one in use first
	Revoked      string        `json:"revoked,omitempty"`
}

// Exists reports whether the agent ever joined.
func (s State) Exists() bool { return !id.IsZero(s.ID) }

// Certificate finds a certificate by its fingerprint, however old.
func (s State) Certificate(fingerprint string) (Certificate, bool) {
	return Find(s.Certificates, fingerprint)
}

// Find finds a certificate of a list by its fingerprint.
func Find(in []Certificate, fingerprint string) (Certificate, bool) {
	i := slices.IndexFunc(in, func(c Certificate) bool { return c.Fingerprint == fingerprint })
	if i < 0 {
		return Certificate{}, false
	}
	return in[i], true
}

// InUse is the certificate of a role that the agent uses; a renewed one waits behind it. Empty: there is none.
func (s State) InUse(r Role) string {
	for _, fingerprint := range s.Current {
		if c, _ := s.Certificate(fingerprint); c.Role == r {
			return fingerprint
		}
	}
	return ""
}

// otherRoles are the certificates that authenticate and are not of a role.
func (s State) otherRoles(r Role) []string {
	return slices.DeleteFunc(slices.Clone(s.Current), func(fingerprint string) bool {
		c, _ := s.Certificate(fingerprint)
		return c.Role == r
	})
}

// RenewGrace is how long after its end a certificate can still be renewed: a machine that was off for a weekend comes back.
// Whether it is one of the agent's present ones, and not revoked, its stream says.
const RenewGrace = 90 * 24 * time.Hour

// MayRenew gives the certificate if it is one of the agent's present ones and ended not long ago, or did not yet; else
// UNAUTHENTICATED.
func (s State) MayRenew(fingerprint string, now time.Time) (Certificate, error) {
	if c, _ := s.Certificate(fingerprint); now.After(c.NotAfter) && !now.After(c.NotAfter.Add(RenewGrace)) {
		now = c.NotAfter
	}
	return s.Authenticates(fingerprint, now)
}

// Authenticates gives the certificate if it is one of the agent's present ones and valid now; else UNAUTHENTICATED.
func (s State) Authenticates(fingerprint string, now time.Time) (Certificate, error) {
	c, known := s.Certificate(fingerprint)
	switch {
	case !known, !slices.Contains(s.Current, fingerprint), c.RevokedAt != nil:
		return Certificate{}, unauthenticated("the certificate is not, or no longer, this agent's")
	case now.After(c.NotAfter) || now.Before(c.NotBefore):
		return Certificate{}, unauthenticated("the certificate is not valid at this time")
	}
	return c, nil
}

func unauthenticated(message string) error {
	return fault.New(fault.Unauthenticated, "%s", message).WithRemedy("join again with a fresh token")
}
