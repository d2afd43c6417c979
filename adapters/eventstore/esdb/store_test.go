package esdb_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/better-compute/metal/adapters/eventstore/esdb"
	"github.com/better-compute/metal/adapters/eventstore/esdb/esdbtest"
	"github.com/better-compute/metal/adapters/eventstore/storetest"
	"github.com/better-compute/metal/domain/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestConformance runs the suite over the wire, with a server of its own for each case: a plain one, and one that
// answers retries as some versions do, is shared with another installation and holds more events of its own than a read
// asks for at a time. With METAL_TEST_ESDB=esdb://… it runs on that cluster as well, which should be one for tests: its
// user must be allowed to read $all, and each case writes under a prefix of its own.
func TestConformance(t *testing.T) {
	t.Run("plain", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) storetest.Opener {
			return opener(esdbtest.Start(t).URL(), esdb.Options{})
		})
	})
	t.Run("awkward", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) storetest.Opener {
			server := esdbtest.Start(t)
			server.StrictRetries(true)
			server.VagueRetries(true)
			systemEvents(server, 2500)
			add(t, open(t, server.URL(), registry(t), esdb.Options{StreamPrefix: "elsewhere:"}), "thing-1", 0, dones(20)...)
			return opener(server.URL(), esdb.Options{StreamPrefix: "here:"})
		})
	})
	if url := os.Getenv("METAL_TEST_ESDB"); url != "" {
		t.Run("cluster", func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) storetest.Opener {
				return opener(url, esdb.Options{StreamPrefix: uuid.NewString() + ":", ScanLimit: 10_000_000})
			})
		})
	}
}

func opener(url string, o esdb.Options) storetest.Opener {
	return func(t *testing.T, r *event.Registry) event.Store { return open(t, url, r, o) }
}

// open gives a store that ends with the test.
func open(t *testing.T, url string, r *event.Registry, o esdb.Options) *esdb.Store {
	t.Helper()
	s, err := esdb.New(t.Context(), url, r, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func systemEvents(s *esdbtest.Server, n int) {
	for range n {
		s.SystemEvent()
	}
}

// done is the event of these tests.
type done struct {
	Writer int    `json:"writer"`
	N      int    `json:"n"`
	Pad    string `json:"pad,omitempty"`
}

// EventType is the public name.
func (done) EventType() string { return "esdbtest.done" }

func registry(t *testing.T) *event.Registry {
	t.Helper()
	r, err := event.NewRegistry(event.Table(event.Of[done](1, "esdbtest.done")))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// brisk are options under which a test need not wait long for what goes wrong.
func brisk() esdb.Options {
	return esdb.Options{Patience: 8 * time.Second, CallTimeout: 3 * time.Second, Watch: 200 * time.Millisecond}
}

// start gives a server and a store on it.
func start(t *testing.T) (*esdbtest.Server, *esdb.Store) {
	t.Helper()
	server := esdbtest.Start(t)
	return server, open(t, server.URL(), registry(t), brisk())
}

// startPatient is start with a store that repeats what fails for ever: a call that ends has not waited for the end of that.
func startPatient(t *testing.T) (*esdbtest.Server, *esdb.Store, esdb.Options) {
	t.Helper()
	server, o := esdbtest.Start(t), brisk()
	o.Patience = time.Hour
	return server, open(t, server.URL(), registry(t), o), o
}

// patience is how long a test waits for what should be there soon, on a busy computer.
const patience = 2 * time.Minute

func dones(n int) []event.Event {
	events := make([]event.Event, n)
	for i := range events {
		events[i] = done{N: i}
	}
	return events
}

// command is the metadata of a new command.
func command() event.Meta { return event.Meta{Command: uuid.New(), At: time.Now()} }

// add appends and fails the test where that fails.
func add(t *testing.T, s event.Store, stream event.Stream, expect event.Version, events ...event.Event) event.Position {
	t.Helper()
	p, err := s.Append(t.Context(), stream, expect, command(), events...)
	if err != nil {
		t.Fatalf("append to %s at version %d: %v", stream, expect, err)
	}
	return p
}

// count wants stream to hold n events in an unbroken chain.
func count(t *testing.T, s event.Store, stream event.Stream, n int) {
	t.Helper()
	events, err := s.Read(t.Context(), stream, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := event.VerifyChain(stream, events); err != nil || len(events) != n {
		t.Errorf("%s holds %d events, not %d; %v", stream, len(events), n, err)
	}
}

// insist appends once and for all, as a caller does that must get through: with the same command until it is told yes.
func insist(ctx context.Context, s event.Store, stream event.Stream, expect event.Version, e ...event.Event) error {
	meta := command()
	for {
		_, err := s.Append(ctx, stream, expect, meta, e...)
		if !errors.Is(err, event.ErrUnavailable) && !errors.Is(err, event.ErrUnknownOutcome) || ctx.Err() != nil {
			return err
		}
	}
}

// eventually waits until what holds is true.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("not in %s: %s", patience, what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
