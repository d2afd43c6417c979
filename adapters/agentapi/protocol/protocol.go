// Package protocol is what an agent and the gateway say to each other: JSON over HTTPS, POST only, paths below Prefix.
// schema/agent-protocol.md is the contract for a second implementation.
package protocol

import (
	"encoding/json"
	"time"

	"github.com/better-compute/metal/domain/agentcommand"
)

// Prefix begins every path.
const Prefix = "/agent/v1"

// The paths. Join needs no client certificate; every other call does. An error is a problem document (RFC 9457) with a code
// of domain/fault. UNAUTHENTICATED: the certificate is not, or no longer, the agent's; join again with a fresh token.
const (
	PathJoin     = Prefix + "/join"     // JoinRequest → JoinAnswer
	PathSession  = Prefix + "/session"  // SessionRequest → SessionAnswer
	PathPoll     = Prefix + "/poll"     // PollRequest → PollAnswer
	PathAck      = Prefix + "/ack"      // AckRequest → {}
	PathProgress = Prefix + "/progress" // ProgressRequest → {}
	PathResult   = Prefix + "/result"   // ResultRequest → {}
	PathSecret   = Prefix + "/secret"   // SecretRequest → SecretAnswer
	PathRenew    = Prefix + "/renew"    // RenewRequest → Certificate
	PathClose    = Prefix + "/close"    // CloseRequest → {}
)

// Claims is the hardware that an agent says it runs on.
type Claims struct {
	MACs        []string `json:"macs,omitempty"`
	ProductUUID string   `json:"productUuid,omitempty"` // SMBIOS system UUID
	Serial      string   `json:"serial,omitempty"`
	GPUUUIDs    []string `json:"gpuUuids,omitempty"`
}

// JoinRequest presents a join token, what the machine is, and a request for a certificate of a fresh Ed25519 key.
type JoinRequest struct {
	Token   string            `json:"token"`
	Role    agentcommand.Role `json:"role"` // as what; the token must allow it
	Claims  Claims            `json:"claims"`
	CSR     []byte            `json:"csr"` // PKCS #10, DER
	BootID  string            `json:"bootId"`
	Version string            `json:"version"`
	Name    string            `json:"name,omitempty"` // of the host
}

// JoinAnswer says who the agent is now.
type JoinAnswer struct {
	AgentID string `json:"agentId"`
	NodeID  string `json:"nodeId,omitempty"` // of ramdisk and node agents
	SiteID  string `json:"siteId"`
	Certificate
}

// Certificate is an issued certificate.
type Certificate struct {
	Certificate []byte    `json:"certificate"` // DER
	CA          []byte    `json:"ca"`          // DER of the issuer
	NotAfter    time.Time `json:"notAfter"`
	RenewAfter  time.Time `json:"renewAfter"`
}

// SessionRequest opens a session: this boot of this agent is now the one that gets orders. Orders that another boot of it
// was given expire.
type SessionRequest struct {
	BootID  string                  `json:"bootId"`
	Role    agentcommand.Role       `json:"role"`
	Version string                  `json:"version"`
	Kinds   []agentcommand.KindName `json:"kinds"` // that it can carry out
	Claims  Claims                  `json:"claims"`
}

// SessionAnswer tells how to behave.
type SessionAnswer struct {
	PollSeconds   float64   `json:"pollSeconds"` // how long a poll may stay open
	ServerTime    time.Time `json:"serverTime"`
	RenewAfter    time.Time `json:"renewAfter"`
	SignerVersion int       `json:"signerVersion"` // of the signing input; 1
}

// PollRequest waits for orders. It also tells what the agent is doing, which counts as a sign of life.
type PollRequest struct {
	BootID      string   `json:"bootId"`
	WaitSeconds float64  `json:"waitSeconds"`
	Room        int      `json:"room"`              // how many orders the agent can take now
	Doing       []string `json:"doing,omitempty"`   // ids of agent commands it works on
	Unknown     []string `json:"unknown,omitempty"` // reserved: orders it was given but has no journal of
	// Boot says that the agent would serve its site's machines network boot. Left out it does not, and gives back what it had.
	Boot *BootOffer `json:"boot,omitempty"`
}

// BootOffer is a boot server of a site.
type BootOffer struct {
	URL string `json:"url"` // as machines reach it
}

// BootLease says that the agent may serve network boot, for a time only.
type BootLease struct {
	Term int64 `json:"term"` // of another term than before: the agent begins without any boot entry
	// Seconds is for how long, from the moment at which the agent sent the request.
	Seconds float64 `json:"seconds"`
	// Complete says that the agent has every boot entry of the site. Until then it sends no machine on to its next boot device.
	Complete bool     `json:"complete"`
	Servers  []string `json:"servers,omitempty"` // URLs of the boot servers of all agents of the site
}

// PollAnswer has the orders. One that was handed to this boot and neither acked nor settled is handed out again.
type PollAnswer struct {
	Orders []Order  `json:"orders"`
	Cancel []string `json:"cancel,omitempty"` // orders that are over: stop working on them
	// Boot is there while the agent holds the boot lease of its site.
	Boot *BootLease `json:"boot,omitempty"`
}

// Order is one agent command.
type Order struct {
	ID       string                `json:"id"`
	Kind     agentcommand.KindName `json:"kind"`
	NodeID   string                `json:"nodeId"`
	Attempt  int                   `json:"attempt"`
	NotAfter time.Time             `json:"notAfter"`
	Payload  json.RawMessage       `json:"payload"` // the exact bytes that the result's signature covers
}

// AckRequest says that orders are in the agent's journal. It may be left out for one that settles at once.
type AckRequest struct {
	BootID string   `json:"bootId"`
	IDs    []string `json:"ids"`
}

// ProgressRequest tells how far an order is. It is not history: only the newest is kept.
type ProgressRequest struct {
	BootID  string  `json:"bootId"`
	ID      string  `json:"id"`
	Percent float64 `json:"percent"` // 0 to 100; below zero: not known
	Message string  `json:"message,omitempty"`
}

// ResultRequest settles an order. The same again is answered as the first time.
type ResultRequest struct {
	BootID      string                    `json:"bootId"`
	ID          string                    `json:"id"`
	Status      agentcommand.Status       `json:"status"` // succeeded, failed or rejected
	Result      json.RawMessage           `json:"result,omitempty"`
	Code        string                    `json:"code,omitempty"`
	Reason      string                    `json:"reason,omitempty"`
	Details     json.RawMessage           `json:"details,omitempty"`
	Attestation *agentcommand.Attestation `json:"attestation,omitempty"`
}

// SecretRequest fetches a value that an order in the agent's hands refers to.
type SecretRequest struct {
	BootID string `json:"bootId"`
	ID     string `json:"id"` // of the agent command
	Ref    string `json:"ref"`
}

// SecretAnswer has the value. It is never logged.
type SecretAnswer struct {
	Value []byte `json:"value"`
}

// RenewRequest asks for a certificate of a fresh key.
type RenewRequest struct {
	CSR []byte `json:"csr"`
}

// CloseRequest ends the session in order: the agent is gone on purpose.
type CloseRequest struct {
	BootID string `json:"bootId"`
	Reason string `json:"reason,omitempty"` // such as shutdown, kexec, reboot
}
