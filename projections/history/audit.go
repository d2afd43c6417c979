package history

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
)

// Head is the end of a stream: its newest event's version and hash vouch for every event before it.
type Head struct {
	Stream  event.Stream  `json:"stream"`
	Version event.Version `json:"version"`
	Hash    event.Hash    `json:"hash"`
}

// Problem is one place where the log is not what it was.
type Problem struct {
	Stream  event.Stream  `json:"stream"`
	Version event.Version `json:"version"` // of the first event that does not fit
	Reason  string        `json:"reason"`
}

// Audit is the result of a check of the whole log.
type Audit struct {
	Position event.Position `json:"position"` // how far the log was read
	Events   int            `json:"events"`
	Heads    []Head         `json:"heads"`    // of every stream, by name
	Digest   event.Hash     `json:"digest"`   // of Heads: what an export signs
	Problems []Problem      `json:"problems"` // at most 1,000; none: nothing was changed or removed
}

const (
	maxProblems = 1000
	auditBatch  = 2000
)

// VerifyStream checks the hash chain of one stream and gives its head. Errors: NOT_FOUND for one without events,
// *event.BrokenChainError.
func VerifyStream(ctx context.Context, store event.Store, s event.Stream) (Head, error) {
	events, err := store.Read(ctx, s, 0)
	if err != nil {
		return Head{}, fmt.Errorf("read %s: %w", s, err)
	}
	if len(events) == 0 {
		return Head{}, fault.New(fault.NotFound, "there is no stream %s", s)
	}
	hash, err := event.VerifyChain(s, events)
	if err != nil {
		return Head{}, err
	}
	return Head{Stream: s, Version: event.Version(len(events)), Hash: hash}, nil
}

// VerifyAll reads the whole log once and checks the chain of every stream, holding no more than the end of each.
// kept, heads that were exported earlier, proves that the log still holds what it held then: a chain alone can't
// show that its newest events were cut off or all of it was written anew. progress, which may be nil, is told the
// position and the number of events read so far.
func VerifyAll(
	ctx context.Context, store event.Store, kept []Head, progress func(event.Position, int),
) (Audit, error) {
	a := auditor{heads: map[event.Stream]Head{}, kept: map[event.Stream]Head{}}
	for _, h := range kept {
		a.kept[h.Stream] = h
	}
	for {
		events, head, err := store.ReadAll(ctx, a.Position, nil, auditBatch)
		if err != nil {
			return Audit{}, fmt.Errorf("read the log after %s: %w", a.Position, err)
		}
		if head == a.Position {
			return a.finish(), nil
		}
		for _, e := range events {
			a.add(e)
		}
		a.Position = head
		if progress != nil {
			progress(head, a.Events)
		}
	}
}

// auditor holds the end of every stream that it has seen.
type auditor struct {
	Audit
	heads map[event.Stream]Head
	kept  map[event.Stream]Head // not yet found again
}

// add checks that e follows the end of its stream. A stream goes on after a problem from the event that was found,
// so that one change is one problem.
func (a *auditor) add(e event.Recorded) {
	a.Events++
	end := a.heads[e.Stream]
	switch {
	case e.Version != end.Version+1:
		a.problem(e.Stream, end.Version+1, fmt.Sprintf("missing: the next event is version %d", e.Version))
	case e.Prev != end.Hash:
		a.problem(e.Stream, e.Version, "its predecessor was changed or replaced")
	}
	a.heads[e.Stream] = Head{Stream: e.Stream, Version: e.Version, Hash: e.Hash}
	if kept, ok := a.kept[e.Stream]; ok && kept.Version == e.Version {
		if kept.Hash != e.Hash {
			a.problem(e.Stream, e.Version, "it is not the event that the kept head vouches for")
		}
		delete(a.kept, e.Stream)
	}
}

func (a *auditor) problem(s event.Stream, v event.Version, reason string) {
	if len(a.Problems) < maxProblems {
		a.Problems = append(a.Problems, Problem{s, v, reason})
	}
}

func (a *auditor) finish() Audit {
	for _, s := range slices.Sorted(maps.Keys(a.kept)) {
		a.problem(s, a.kept[s].Version, "missing: the kept head vouches for it")
	}
	for _, s := range slices.Sorted(maps.Keys(a.heads)) {
		a.Heads = append(a.Heads, a.heads[s])
	}
	a.Digest = Digest(a.Heads)
	return a.Audit
}

// digestFormat names the form that Digest hashes: it would change with it.
const digestFormat = "metal-heads-1"

// Digest is one hash over heads sorted by stream: SHA-256 over the format's name and one line "stream version hash"
// for each.
func Digest(heads []Head) event.Hash {
	d := sha256.New()
	fmt.Fprintln(d, digestFormat)
	for _, h := range heads {
		fmt.Fprintln(d, h.Stream, uint64(h.Version), h.Hash)
	}
	var sum event.Hash
	d.Sum(sum[:0])
	return sum
}

// Broken reports whether err tells of a chain that does not hold.
func Broken(err error) bool {
	var broken *event.BrokenChainError
	return errors.As(err, &broken)
}
