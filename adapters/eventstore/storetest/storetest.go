// Package storetest is the conformance suite of event.Store: every adapter runs it, and what it does not prove no
// caller may rely on.
//
// An adapter's test is one line: storetest.Run(t, fresh), where fresh makes an empty log and gives an Opener of
// handles on it. Several handles on one log stand for several processes.
package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/event"
)

// Opener gives another handle on the same log, as another process would have. It closes the handle with t.Cleanup.
type Opener func(t *testing.T, r *event.Registry) event.Store

// Factory makes a fresh, empty log.
type Factory func(t *testing.T) Opener

// patience bounds every case: a store that hangs fails instead of blocking the run.
const patience = 3 * time.Minute

// Run proves every promise of event.Store, each as a subtest on its own fresh log.
func Run(t *testing.T, fresh Factory) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			c.prove(ctx, t, fresh(t))
		})
	}
}

// cases lists the promises. The names are stable: a report about an adapter cites them.
var cases = []struct {
	name  string
	prove func(ctx context.Context, t *testing.T, open Opener)
}{
	{"round trip", roundTrip},
	{"versions are dense from one", denseVersions},
	{"read after a version", readAfterVersion},
	{"a stream that does not exist is empty", missingStream},
	{"a wrong expected version is a conflict", conflicts},
	{"a retry adds nothing", retryAddsNothing},
	{"a retry of many events adds nothing", retryOfMany},
	{"a retry after others appended adds nothing", retryBehindOthers},
	{"a retry from another handle adds nothing", retryElsewhere},
	{"eight retries at once add one copy", retriesAtOnce},
	{"other ids at a taken version conflict", otherIDsConflict},
	{"of sixteen appends at one version one wins", oneWins},
	{"positions rise in commit order", positionsRise},
	{"no gap under sixteen writers", noGap},
	{"a reader resumes from any position", resumeAnywhere},
	{"limit bounds a read", limitBounds},
	{"types filter a read", typesFilter},
	{"a follower of rare types moves on", rareTypes},
	{"an empty log reads empty", emptyLog},
	{"a position past the end reads empty", pastTheEnd},
	{"head is the newest position", headIsNewest},
	{"changed wakes on an append elsewhere", changedWakes},
	{"changed returns at once where there is more", changedAtOnce},
	{"changed rests while nothing happens", changedRests},
	{"an ended context ends every call", endedContext},
	{"limits write nothing", limits},
	{"sizes at the limit are taken", atTheLimit},
	{"an event outside the registry is refused", unregistered},
	{"unknown events read as unknown", unknownEvents},
	{"old schema versions read as current", oldSchemas},
	{"the hash chain holds", chainHolds},
	{"the hash chain holds over many writers", chainUnderWriters},
	{"random appends match a model", matchesModel},
}

// asked is the metadata of a new command: appending with it again is a retry.
func asked() event.Meta {
	return event.Meta{Command: uuid.New(), At: time.Now(), Principal: "storetest"}
}

// failer is what testing.T and rapid.T share.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// must appends and fails the test where the store refuses.
func must(
	ctx context.Context, t failer, s event.Store, stream event.Stream, expect event.Version, events ...event.Event,
) event.Position {
	t.Helper()
	p, err := s.Append(ctx, stream, expect, asked(), events...)
	if err != nil {
		t.Fatalf("append to %s at version %d: %v", stream, expect, err)
	}
	return p
}

// read gives a whole stream.
func read(ctx context.Context, t failer, s event.Store, stream event.Stream) []event.Recorded {
	t.Helper()
	events, err := s.Read(ctx, stream, 0)
	if err != nil {
		t.Fatalf("read %s: %v", stream, err)
	}
	return events
}

// drain follows positions from after until the log has no more, limit events at a time.
func drain(
	ctx context.Context, t failer, s event.Store, after event.Position, types []string, limit int,
) (all []event.Recorded, head event.Position) {
	t.Helper()
	for {
		events, head, err := s.ReadAll(ctx, after, types, limit)
		if err != nil {
			t.Fatalf("read all after %d: %v", after, err)
		}
		checkPage(t, events, after, head, types, limit)
		all = append(all, events...)
		if head == after {
			return all, head
		}
		after = head
	}
}

// checkPage proves what holds for every answer of ReadAll by itself.
func checkPage(t failer, page []event.Recorded, after, head event.Position, types []string, limit int) {
	t.Helper()
	if head < after {
		t.Fatalf("head %d is before %d, where the read began", head, after)
	}
	if len(page) > limit {
		t.Fatalf("%d events; the limit was %d", len(page), limit)
	}
	last := after
	for _, e := range page {
		if e.Position <= last || e.Position > head {
			t.Fatalf("position %d follows %d, with head %d", e.Position, last, head)
		}
		if !among(types, e.Type) {
			t.Fatalf("event of type %s; asked for %v", e.Type, types)
		}
		last = e.Position
	}
}

func among(types []string, name string) bool {
	for _, t := range types {
		if t == name {
			return true
		}
	}
	return len(types) == 0
}
