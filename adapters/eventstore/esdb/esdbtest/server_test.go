package esdbtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/better-compute/metal/adapters/eventstore/esdb/esdbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dial gives the bare protocol, and a context under which nothing hangs.
func dial(t *testing.T, s *esdbtest.Server) (context.Context, streams.StreamsClient) {
	t.Helper()
	conn, err := grpc.NewClient(s.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(func() {
		cancel()
		_ = conn.Close()
	})
	return ctx, streams.NewStreamsClient(conn)
}

func all() *streams.ReadReq_Options_All {
	return &streams.ReadReq_Options_All{All: &streams.ReadReq_Options_AllOptions{
		AllOption: &streams.ReadReq_Options_AllOptions_End{End: &shared.Empty{}}}}
}

// TestSubscriptionToNothing begins at the end: the confirmation comes first, and that it has caught up next.
func TestSubscriptionToNothing(t *testing.T) {
	server := esdbtest.Start(t)
	ctx, client := dial(t, server)
	call, err := client.Read(ctx, &streams.ReadReq{Options: &streams.ReadReq_Options{
		StreamOption: all(), CountOption: &streams.ReadReq_Options_Subscription{},
	}})
	if err != nil {
		t.Fatal(err)
	}
	first, err := call.Recv()
	if err != nil || first.GetConfirmation().GetSubscriptionId() == "" {
		t.Fatalf("first %v, %v", first, err)
	}
	if second, err := call.Recv(); err != nil || second.GetCaughtUp() == nil {
		t.Fatalf("then %v, %v", second, err)
	}
	server.SystemEvent()
	third, err := call.Recv()
	if err != nil || third.GetEvent().GetEvent().GetMetadata()["created"] == "" {
		t.Fatalf("then %v, %v", third, err)
	}
	server.DropSubscriptions()
	if m, err := call.Recv(); err == nil {
		t.Errorf("after the drop: %v", m)
	}
}

// TestNotLeader reads where no leader is: the trailers say where it is, unless no leader was asked for.
func TestNotLeader(t *testing.T) {
	first := esdbtest.Start(t)
	first.Peer().Lead()
	ctx, client := dial(t, first)
	read := &streams.ReadReq{Options: &streams.ReadReq_Options{
		StreamOption: all(), ReadDirection: streams.ReadReq_Options_Backwards,
		CountOption: &streams.ReadReq_Options_Count{Count: 1},
	}}
	call, err := client.Read(metadata.AppendToOutgoingContext(ctx, "requires-leader", "true"), read)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := call.Recv(); status.Code(err) != codes.NotFound {
		t.Fatal(err)
	}
	trailer := call.Trailer()
	if trailer.Get("exception")[0] != "not-leader" || trailer.Get("leader-endpoint-host")[0] != "127.0.0.1" {
		t.Errorf("trailers %v", trailer)
	}
	call, err = client.Read(ctx, read)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := call.Recv(); err != nil || m.GetEvent() == nil {
		t.Errorf("without asking for the leader: %v, %v", m, err)
	}
}

// TestTooLarge appends more than the server takes.
func TestTooLarge(t *testing.T) {
	ctx, client := dial(t, esdbtest.Start(t))
	call, err := client.Append(ctx)
	if err != nil {
		t.Fatal(err)
	}
	messages := []*streams.AppendReq{
		{Content: &streams.AppendReq_Options_{Options: &streams.AppendReq_Options{
			StreamIdentifier:       &shared.StreamIdentifier{StreamName: []byte("thing-1")},
			ExpectedStreamRevision: &streams.AppendReq_Options_NoStream{},
		}}},
		{Content: &streams.AppendReq_ProposedMessage_{ProposedMessage: &streams.AppendReq_ProposedMessage{
			Metadata: map[string]string{"type": "large", "content-type": "application/octet-stream"},
			Data:     make([]byte, 1<<20),
		}}},
	}
	for _, m := range messages {
		if err := call.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	_, err = call.CloseAndRecv()
	if status.Code(err) != codes.InvalidArgument ||
		call.Trailer().Get("exception")[0] != "maximum-append-size-exceeded" {
		t.Errorf("%v, trailers %v", err, call.Trailer())
	}
}
