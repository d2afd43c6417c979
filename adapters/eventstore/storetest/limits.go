package storetest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/domain/event"
)

func limits(ctx context.Context, t *testing.T, open Opener) {
	store := open(t, Registry(t))
	for name, c := range map[string]struct {
		stream event.Stream
		events []event.Event
	}{
		"a byte too large":     {"thing-1", []event.Event{noted{}, paddedTo(event.MaxEventBytes + 1)}},
		"too many":             {"thing-1", notes(1, event.MaxAppendEvents+1)},
		"none":                 {"thing-1", nil},
		"no hyphen":            {"thing", notes(1, 1)},
		"no id":                {"thing-", notes(1, 1)},
		"no category":          {"-1", notes(1, 1)},
		"no name":              {"", notes(1, 1)},
		"system name":          {"$thing-1", notes(1, 1)},
		"control character":    {"thing-1\n", notes(1, 1)},
		"not UTF-8":            {"thing-\xff", notes(1, 1)},
		"a name of too many B": {event.Stream("thing-" + strings.Repeat("x", 245)), notes(1, 1)},
	} {
		_, err := store.Append(ctx, c.stream, 0, asked(), c.events...)
		var limit *event.LimitError
		if !errors.As(err, &limit) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if head, err := store.Head(ctx); err != nil || head != 0 {
		t.Errorf("after refusals the log stands at %d, %v", head, err)
	}
}

func atTheLimit(ctx context.Context, t *testing.T, open Opener) {
	store := open(t, Registry(t))
	long := event.Stream("thing-" + strings.Repeat("é", 122))
	must(ctx, t, store, long, 0, paddedTo(event.MaxEventBytes), noted{})
	must(ctx, t, store, "thing-1", 0, notes(1, event.MaxAppendEvents)...)
	if got := read(ctx, t, store, long); len(got) != 2 || len(got[0].Data) != event.MaxEventBytes {
		t.Errorf("the largest event reads as %d events", len(got))
	}
	if got := len(read(ctx, t, store, "thing-1")); got != event.MaxAppendEvents {
		t.Errorf("the largest append reads as %d events", got)
	}
}

func unregistered(ctx context.Context, t *testing.T, open Opener) {
	store := open(t, Registry(t))
	if _, err := store.Append(ctx, "thing-1", 0, asked(), noted{}, stranger{}); err == nil {
		t.Error("an event that no registry knows was taken")
	}
	if head, err := store.Head(ctx); err != nil || head != 0 {
		t.Errorf("after the refusal the log stands at %d, %v", head, err)
	}
}

func unknownEvents(ctx context.Context, t *testing.T, open Opener) {
	newer := open(t, laterRegistry(t))
	older := open(t, Registry(t))
	bare := open(t, registry(t, event.Of[rare](1, rareType)))
	must(ctx, t, newer, "thing-1", 0, renamed{Text: "new"}) // schema version 2, which older does not know
	must(ctx, t, older, "thing-1", 1, rare{N: 1})
	for i, s := range []event.Store{older, bare} {
		events := read(ctx, t, s, "thing-1")
		want := []event.Event{event.Unknown{Type: notedType}, rare{N: 1}}
		if len(events) != 2+i || events[0].Event != want[0] || events[1].Event != want[1] {
			t.Fatalf("an older program reads %v", events)
		}
		if events[0].Type != notedType || events[0].Schema != 2 || string(events[0].Data) != `{"text":"new"}` {
			t.Errorf("an unknown event lost what is stored: %v", events[0])
		}
		all, _ := drain(ctx, t, s, 0, nil, 10)
		if diff := cmp.Diff(events, all); diff != "" {
			t.Error(diff)
		}
		must(ctx, t, s, "thing-1", event.Version(2+i), rare{N: 2}) // the chain goes on behind an event it cannot decode
		if _, err := event.VerifyChain("thing-1", read(ctx, t, s, "thing-1")); err != nil {
			t.Error(err)
		}
	}
}

func oldSchemas(ctx context.Context, t *testing.T, open Opener) {
	older, newer := open(t, Registry(t)), open(t, laterRegistry(t))
	must(ctx, t, older, "thing-1", 0, noted{N: 42})
	events := read(ctx, t, newer, "thing-1")
	if len(events) != 1 || events[0].Event != (renamed{Text: "42"}) || events[0].Schema != 1 {
		t.Errorf("a newer program reads %v", events)
	}
	if string(events[0].Data) != `{"n":42}` {
		t.Errorf("the stored data reads as %s", events[0].Data)
	}
}
