package memory_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/better-compute/metal/adapters/eventstore/memory"
	"github.com/better-compute/metal/adapters/eventstore/storetest"
	"github.com/better-compute/metal/domain/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Opener {
		log := memory.NewLog(time.Now)
		return func(_ *testing.T, r *event.Registry) event.Store { return log.Open(r) }
	})
}

type happened struct{ N int }

func (happened) EventType() string { return "memory.happened" }

// An event id stands once in the log: a command that appended once cannot append at another version.
func TestIDStandsOnce(t *testing.T) {
	r, err := event.NewRegistry(event.Table(event.Of[happened](1, "memory.happened")))
	if err != nil {
		t.Fatal(err)
	}
	s, meta := memory.New(r), event.Meta{Command: uuid.New()}
	if _, err := s.Append(t.Context(), "thing-1", 0, meta, happened{1}); err != nil {
		t.Fatal(err)
	}
	_, err = s.Append(t.Context(), "thing-1", 1, meta, happened{1})
	var conflict *event.ConflictError
	if !errors.As(err, &conflict) || conflict.Actual != 1 {
		t.Errorf("the same id at another version: %v", err)
	}
}

// Callers own what they read.
func TestReadsAreCopies(t *testing.T) {
	r, err := event.NewRegistry(event.Table(event.Of[happened](1, "memory.happened")))
	if err != nil {
		t.Fatal(err)
	}
	s := memory.New(r)
	if _, err := s.Append(t.Context(), "thing-1", 0, event.Meta{}, happened{1}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		events, err := s.Read(t.Context(), "thing-1", 0)
		if err != nil || string(events[0].Data) != `{"N":1}` {
			t.Fatalf("read %s, %v", events[0].Data, err)
		}
		events[0].Data[0] = '!'
	}
}
