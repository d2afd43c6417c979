// Package contract holds what the HTTP API takes and gives, as Go structs. The server registers its routes with them, and
// the client decodes into them; schema/openapi.json is generated from them.
//
// Ids are strings of the form <prefix>_<26 characters>. Times are RFC 3339 in UTC. A field without omitempty is always
// there in an answer, and needed in a request.
package contract

// The headers of the API beside the standard ones.
const (
	// HeaderPosition is the log position of an answer. On a read it asks to wait until the read model has reached it.
	HeaderPosition = "Metal-Position"
	// HeaderDense is true on a copy of the log whose positions have no gaps: one that is missing was removed.
	HeaderDense = "Metal-Positions-Dense"
	// HeaderIdempotencyKey names a mutation, so that sending it again gives the first outcome.
	HeaderIdempotencyKey = "Idempotency-Key"
	// HeaderReplayed is true on an answer that was kept from an earlier request with the same key.
	HeaderReplayed = "Idempotency-Replayed"
	// HeaderRequestID identifies a request in answers, logs and events.
	HeaderRequestID = "X-Request-ID"
	// HeaderCorrelationID is shared by everything that one undertaking of a caller leads to.
	HeaderCorrelationID = "X-Correlation-ID"
	// HeaderTraceParent is the W3C Trace Context of a request.
	HeaderTraceParent = "Traceparent"
)

// MaxBody is the most bytes that a request's body may have.
const MaxBody = 1 << 20

// List is one page, newest first. Next asks for the page after it (query cursor); it is left out on the last.
type List[T any] struct {
	Items []T    `json:"items" nullable:"false" doc:"one page, newest first"`
	Next  string `json:"next,omitempty" doc:"the cursor of the next page; absent on the last"`
}

// Empty is the body of a verb without parameters: nothing at all, or an empty object.
type Empty struct{}
