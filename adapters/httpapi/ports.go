package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/projections"
)

// Outcome is what is known of a request with an Idempotency-Key.
type Outcome struct {
	Command uuid.UUID // of the first request with the key
	Done    bool      // the rest is the answer it was given
	Status  int
	Header  http.Header
	Body    []byte
}

// Outcomes remembers what a request with an Idempotency-Key was given.
type Outcomes interface {
	// Begin looks a key of a principal up and takes it for the command id fresh if it is new. Errors: INVALID_INPUT at
	// header.Idempotency-Key for a malformed key, and for one that was used with another request; UNAVAILABLE.
	Begin(ctx context.Context, principal, key string, requestHash []byte, fresh uuid.UUID) (Outcome, error)
	// Finish keeps the answer of a key that Begin took. The first answer stays.
	Finish(ctx context.Context, principal, key string, status int, header http.Header, body []byte) error
}

// Waiter knows how far the read models are.
type Waiter interface {
	// Wait returns once the projection has applied everything up to position. Errors: TIMEOUT when ctx ends first,
	// UNAVAILABLE where the projection stands still before position.
	Wait(ctx context.Context, projection string, position event.Position) error
	// Position is how far the projection has come, from memory.
	Position(projection string) event.Position
	// Status tells how the projections stand, whichever process runs them.
	Status(ctx context.Context) ([]projections.Status, error)
}

// Signer signs the head of the log.
type Signer interface {
	// Sign signs text with Ed25519 and tells the public key that checks it.
	Sign(ctx context.Context, text []byte) (signature, publicKey []byte, err error)
}

// Observer is told what the API does, to be measured. Its methods return at once.
type Observer interface {
	// Served tells of one answer. The route is a pattern such as /v1/nodes/{id}; empty where none matched.
	Served(method, route string, status int, took time.Duration)
	// Refused tells of a credential that was not accepted: missing, malformed, invalid or limited.
	Refused(reason string)
	// Following tells of a follower of events that came (1) or went (-1).
	Following(change int)
	// CutOff tells of a follower that was too slow.
	CutOff()
}

// unobserved is an Observer that nobody listens to.
type unobserved struct{}

func (unobserved) Served(string, string, int, time.Duration) {}
func (unobserved) Refused(string)                            {}
func (unobserved) Following(int)                             {}
func (unobserved) CutOff()                                   {}
