package contract

import (
	"encoding/json"
	"time"
)

// Event is one event of the log: the data of a server-sent event, and an item of a history.
type Event struct {
	Position      uint64          `json:"position"`
	Stream        string          `json:"stream" doc:"<category>-<id> of the aggregate"`
	Version       uint64          `json:"version" doc:"within the stream, dense from 1"`
	ID            string          `json:"id" format:"uuid"`
	Type          string          `json:"type" doc:"such as node.enrolled"`
	Schema        int             `json:"schema" doc:"version of the shape of data"`
	At            time.Time       `json:"at" doc:"when the log took it"`
	DecidedAt     time.Time       `json:"decidedAt" doc:"by the clock of whoever decided it"`
	Tenant        string          `json:"tenant,omitempty"`
	Subject       string          `json:"subject,omitempty" doc:"such as node/node_01k…"`
	Principal     string          `json:"principal,omitempty" doc:"who asked"`
	RequestID     string          `json:"requestId,omitempty"`
	CorrelationID string          `json:"correlationId,omitempty"`
	CausationID   string          `json:"causationId,omitempty"`
	Data          json.RawMessage `json:"data"`
}

// Step is a node after one event of its stream. Exactly the fold that the control plane decides on.
type Step struct {
	Event Event           `json:"event"`
	State json.RawMessage `json:"state" doc:"the fold up to and including the event"`
}

// Replay is a node's stream, folded event by event.
type Replay struct {
	Items []Step `json:"items" nullable:"false"`
}

// Finding is something that needs somebody's attention.
type Finding struct {
	Code     string         `json:"code" doc:"such as metal-failed, metal-stalled, projection-stopped"`
	Severity string         `json:"severity" doc:"critical, error or warning"`
	Subject  string         `json:"subject" doc:"what it is about, such as node/node_01k…"`
	Tenant   string         `json:"tenant,omitempty"`
	Since    time.Time      `json:"since"`
	Message  string         `json:"message" doc:"what is wrong, in one sentence"`
	Remedy   string         `json:"remedy" doc:"what to do"`
	Details  map[string]any `json:"details,omitempty"`
}

// AuditEvent is one stored event, byte for byte, on a line of its own: enough to take its hash again.
type AuditEvent struct {
	Position uint64 `json:"position"`
	Stream   string `json:"stream"`
	Version  uint64 `json:"version"`
	ID       string `json:"id" format:"uuid"`
	Type     string `json:"type"`
	Schema   int    `json:"schema"`
	Data     []byte `json:"data" doc:"base64 of the stored bytes"`
	Meta     []byte `json:"meta" doc:"base64 of the stored bytes; they hold the hash of the predecessor"`
	Hash     string `json:"hash" doc:"SHA-256 of the canonical form, hexadecimal"`
}

// AuditHead commits to the whole log: whoever keeps it can prove later that nothing before it was changed.
type AuditHead struct {
	Position  uint64    `json:"position" doc:"of the newest event that it covers"`
	Dense     bool      `json:"dense" doc:"positions rise by one: a gap is a removed event. Not part of what is signed"`
	Streams   int       `json:"streams"`
	Digest    string    `json:"digest" doc:"over the hash of the newest event of every stream, hexadecimal"`
	At        time.Time `json:"at"`
	KeyID     string    `json:"keyId" doc:"fingerprint of the key that signed it"`
	PublicKey []byte    `json:"publicKey" doc:"Ed25519, base64"`
	Signed    []byte    `json:"signed" doc:"base64 of the signed text"`
	Signature []byte    `json:"signature" doc:"Ed25519 over signed, base64"`
}
