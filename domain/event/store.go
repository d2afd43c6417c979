package event

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Store is the log. Its semantics, which storetest proves for every adapter:
//
//   - An append is durable when it returns. One whose connection dies has an unknown outcome (ErrUnknownOutcome): the
//     caller may append the same events with the same Meta.Command and expected version again.
//   - Versions of a stream are dense from 1. Positions rise in commit order and within one append, and a reader that
//     follows positions never misses an event, whatever other writers do.
//   - Every call returns soon after its context ends.
type Store interface {
	// Append adds events to stream s if its version is expect (zero: the stream has no events), and returns the position
	// of the last one. The same event ids (Meta.EventID) at the same expected version again is success with the same
	// position and adds nothing. Errors: *ConflictError (the stream is at another version), *LimitError,
	// ErrUnknownOutcome, ErrUnavailable (nothing was written).
	Append(ctx context.Context, s Stream, expect Version, meta Meta, events ...Event) (Position, error)

	// Read returns the events of s with a version above after, in order; none for a stream that does not exist.
	Read(ctx context.Context, s Stream, after Version) ([]Recorded, error)

	// ReadAll returns up to limit events of all streams with a position above after, in order, of the given types (none
	// given: all). head is how far it looked: every event of those types at or below head and above after is in the
	// result. head is at least after; it equals after when nothing newer exists.
	ReadAll(ctx context.Context, after Position, types []string, limit int) (events []Recorded, head Position, err error)

	// Changed returns nil once there may be events above after, or the context's error. It may return early.
	Changed(ctx context.Context, after Position) error

	// Head is the position of the newest event; zero for an empty log.
	Head(ctx context.Context) (Position, error)
}

// ErrUnknownOutcome says that an append may or may not have happened: append the same again to find out.
var ErrUnknownOutcome = errors.New("the outcome of the append is unknown")

// ErrUnavailable says that the log could not be reached and nothing was written.
var ErrUnavailable = errors.New("the event log is unavailable")

// ConflictError says that a stream is not at the expected version.
type ConflictError struct {
	Stream           Stream
	Expected, Actual Version
}

// Error tells both versions.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s is at version %d, not %d", e.Stream, e.Actual, e.Expected)
}

// LimitError says that an append is too large or not well-formed; nothing was written.
type LimitError struct{ Reason string }

// Error is the reason.
func (e *LimitError) Error() string { return e.Reason }

// maxStreamBytes bounds a stream's name.
const maxStreamBytes = 250

func checkAppend(s Stream, events []Event) error {
	switch {
	case s.Category() == "" || s.ID() == "":
		return &LimitError{fmt.Sprintf("stream %q is not of the form <category>-<id>", string(s))}
	case len(s) > maxStreamBytes || !utf8.ValidString(string(s)):
		return &LimitError{fmt.Sprintf("a stream's name is UTF-8 of at most %d bytes", maxStreamBytes)}
	case s[0] == '$':
		return &LimitError{"a stream's name does not begin with $"}
	case len(events) == 0:
		return &LimitError{"an append holds at least one event"}
	case len(events) > MaxAppendEvents:
		return &LimitError{fmt.Sprintf("an append of %d events; the most is %d", len(events), MaxAppendEvents)}
	}
	for _, r := range s {
		if r < ' ' || r == 0x7f {
			return &LimitError{"a stream's name holds no control characters"}
		}
	}
	return nil
}
