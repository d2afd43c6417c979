package plane

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/fault"
)

// Somebody takes the connection and never answers: the log says what is waited for, and the wait ends.
func TestSilentEventStore(t *testing.T) {
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	registry, err := commands.Registry()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), eventStoreSilence+time.Second)
	defer cancel()
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	_, err = openEventStore(ctx, "esdb://"+silent.Addr().String()+"?tls=false", registry, logger)
	if fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("error: %v", err)
	}
	if !strings.Contains(log.String(), "waiting for the event store") {
		t.Errorf("it does not say what it waits for:\n%s", log.String())
	}
}
