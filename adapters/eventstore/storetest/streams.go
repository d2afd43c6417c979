package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/event"
)

func roundTrip(ctx context.Context, t *testing.T, open Opener) {
	store, other := open(t, Registry(t)), open(t, Registry(t))
	meta := event.Meta{
		Command: uuid.New(), At: time.Date(2031, 2, 3, 4, 5, 6, 7890, time.FixedZone("far", 5*3600)), Tenant: "tenant_a",
		Subject: "thing/1", Principal: "user_b", RequestID: "req", CorrelationID: "cor", CausationID: "cau",
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
	position, err := store.Append(ctx, "thing-1", 0, meta, noted{N: 7}, padded{Pad: "é \" \\ \u2028 <&> 𝄞 \x00"})
	if err != nil {
		t.Fatal(err)
	}
	written := meta
	written.Command, written.At = uuid.Nil, meta.At.UTC().Truncate(time.Microsecond)
	want := []event.Recorded{
		{
			ID: meta.EventID("thing-1", 0), Stream: "thing-1", Version: 1, Event: noted{N: 7}, Meta: written,
			Type: notedType, Schema: 1, Data: []byte(`{"n":7}`),
		},
		{
			ID: meta.EventID("thing-1", 1), Stream: "thing-1", Version: 2, Event: padded{Pad: "é \" \\ \u2028 <&> 𝄞 \x00"},
			Meta: written, Type: "storetest.padded", Schema: 1,
			Data: []byte(`{"pad":"é \" \\ \u2028 \u003c\u0026\u003e 𝄞 \u0000"}`),
		},
	}
	got := read(ctx, t, store, "thing-1")
	given := cmpopts.IgnoreFields(event.Recorded{}, "Position", "At", "RawMeta", "Prev", "Hash") // by the store
	if diff := cmp.Diff(want, got, given); diff != "" {
		t.Fatalf("what was written and what was read (-want +got):\n%s", diff)
	}
	if got[1].Position != position {
		t.Errorf("append returned %d; the last event is at %d", position, got[1].Position)
	}
	for _, e := range got {
		if e.Wire().Hash() != e.Hash {
			t.Errorf("version %d: the hash does not follow from what was read", e.Version)
		}
		if age := time.Since(e.At); age < -time.Minute || age > 5*time.Minute || e.At.Location() != time.UTC {
			t.Errorf("version %d was taken at %v, %v ago", e.Version, e.At, age)
		}
	}
	if diff := cmp.Diff(got, read(ctx, t, other, "thing-1")); diff != "" {
		t.Errorf("another handle reads otherwise:\n%s", diff)
	}
	all, _ := drain(ctx, t, other, 0, nil, 10)
	if diff := cmp.Diff(got, all); diff != "" {
		t.Errorf("ReadAll reads otherwise than Read:\n%s", diff)
	}
}

func denseVersions(ctx context.Context, t *testing.T, open Opener) {
	store := open(t, Registry(t))
	must(ctx, t, store, "thing-1", 0, notes(1, 3)...)
	must(ctx, t, store, "thing-2", 0, notes(1, 1)...)
	must(ctx, t, store, "thing-1", 3, notes(4, 4)...)
	must(ctx, t, store, "thing-1", 4, notes(5, 9)...)
	events := read(ctx, t, store, "thing-1")
	if len(events) != 9 {
		t.Fatalf("%d events, not 9", len(events))
	}
	for i, e := range events {
		if e.Version != event.Version(i+1) || e.Event != (noted{N: i + 1}) {
			t.Errorf("event %d is version %d, %v", i, e.Version, e.Event)
		}
	}
}

func readAfterVersion(ctx context.Context, t *testing.T, open Opener) {
	store := open(t, Registry(t))
	must(ctx, t, store, "thing-1", 0, notes(1, 5)...)
	for after := event.Version(0); after <= 7; after++ {
		events, err := store.Read(ctx, "thing-1", after)
		if err != nil {
			t.Fatal(err)
		}
		if want := max(0, 5-int(after)); len(events) != want {
			t.Fatalf("after version %d: %d events, not %d", after, len(events), want)
		}
		for i, e := range events {
			if e.Version != after+event.Version(i)+1 {
				t.Errorf("after version %d: event %d is version %d", after, i, e.Version)
			}
		}
	}
}

func missingStream(ctx context.Context, t *testing.T, open Opener) {
	store := open(t, Registry(t))
	must(ctx, t, store, "thing-1", 0, noted{})
	for _, stream := range []event.Stream{"thing-2", "thing-", "other-1", "thing-11"} {
		events, err := store.Read(ctx, stream, 0)
		if err != nil || len(events) != 0 {
			t.Errorf("%s: %d events, %v", stream, len(events), err)
		}
	}
}

func conflicts(ctx context.Context, t *testing.T, open Opener) {
	store, other := open(t, Registry(t)), open(t, Registry(t))
	must(ctx, t, store, "thing-1", 0, notes(1, 3)...)
	for _, c := range []struct {
		stream         event.Stream
		expect, actual event.Version
	}{{"thing-1", 0, 3}, {"thing-1", 2, 3}, {"thing-1", 4, 3}, {"thing-1", 900, 3}, {"thing-2", 1, 0}, {"thing-2", 7, 0}} {
		for _, s := range []event.Store{store, other} {
			for _, events := range [][]event.Event{notes(1, 1), notes(1, 5)} {
				_, err := s.Append(ctx, c.stream, c.expect, asked(), events...)
				wantConflict(t, err, event.ConflictError{Stream: c.stream, Expected: c.expect, Actual: c.actual})
			}
		}
	}
	if got := len(read(ctx, t, store, "thing-1")) + len(read(ctx, t, store, "thing-2")); got != 3 {
		t.Errorf("%d events after conflicts, not 3", got)
	}
}

func wantConflict(t failer, err error, want event.ConflictError) {
	t.Helper()
	var got *event.ConflictError
	if !errors.As(err, &got) {
		t.Errorf("expected %v; got %v", &want, err)
	} else if *got != want {
		t.Errorf("expected %v; got %v", &want, got)
	}
}
