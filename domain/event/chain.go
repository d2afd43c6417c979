package event

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/google/uuid"
)

// Hash is the SHA-256 of an event's canonical form. Each event's metadata holds its predecessor's, so that no event of a
// stream can be changed or removed without every later hash changing.
type Hash [sha256.Size]byte

// String is the hash in lower-case hexadecimal; empty for the zero hash.
func (h Hash) String() string {
	if h == (Hash{}) {
		return ""
	}
	return hex.EncodeToString(h[:])
}

// MarshalText writes the hash as String does.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (h *Hash) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*h = Hash{}
		return nil
	}
	raw, err := hex.DecodeString(string(text))
	if err != nil || len(raw) != len(h) {
		return fmt.Errorf("a hash is %d hexadecimal digits", 2*len(h))
	}
	copy(h[:], raw)
	return nil
}

// Wire is an event as a store keeps it: bytes that are never re-encoded, so that its hash can always be taken again.
type Wire struct {
	ID      uuid.UUID
	Stream  Stream
	Version Version
	Type    string
	Schema  int
	Data    []byte // JSON
	Meta    []byte // JSON, with the hash of the predecessor
}

// chainFormat names the canonical form: it would change with it.
const chainFormat = "metal-event-1"

// Hash is the SHA-256 of the canonical form: every field in turn, each after its length as eight big-endian bytes, so
// that no two events share a form. Position and the log's own time are not part of it: a store gives them, and a copy of
// the stream in another store has others.
func (w Wire) Hash() Hash {
	d := sha256.New()
	var size [8]byte
	put := func(b []byte) {
		binary.BigEndian.PutUint64(size[:], uint64(len(b)))
		d.Write(size[:])
		d.Write(b)
	}
	number := func(n uint64) {
		binary.BigEndian.PutUint64(size[:], n)
		d.Write(size[:])
	}
	put([]byte(chainFormat))
	put([]byte(w.Stream))
	number(uint64(w.Version))
	put(w.ID[:])
	put([]byte(w.Type))
	number(uint64(w.Schema))
	put(w.Data)
	put(w.Meta)
	var h Hash
	d.Sum(h[:0])
	return h
}

// BrokenChainError tells where a stream's chain does not hold.
type BrokenChainError struct {
	Stream  Stream
	Version Version // of the first event that does not fit
	Reason  string
}

// Error names the stream and the version.
func (e *BrokenChainError) Error() string {
	return fmt.Sprintf("%s: version %d: %s", e.Stream, e.Version, e.Reason)
}

// VerifyChain checks a whole stream from its first event: versions dense from 1, each event holding its predecessor's
// hash. It returns the hash of the last event, or a *BrokenChainError.
func VerifyChain(stream Stream, events []Recorded) (Hash, error) {
	var prev Hash
	for i, e := range events {
		want := Version(i + 1)
		switch {
		case e.Stream != stream:
			return Hash{}, &BrokenChainError{stream, want, "the event is of another stream: " + string(e.Stream)}
		case e.Version != want:
			return Hash{}, &BrokenChainError{stream, want, fmt.Sprintf("missing: the next event is version %d", e.Version)}
		case e.Prev != prev:
			return Hash{}, &BrokenChainError{stream, want, "its predecessor was changed or replaced"}
		}
		prev = e.Hash
	}
	return prev, nil
}
