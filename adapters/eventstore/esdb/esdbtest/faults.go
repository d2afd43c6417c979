package esdbtest

import (
	"context"
	"strconv"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Faults are what a test can have a node do wrong. The counts are of what is still to come: each is used up.
type Faults struct {
	mu       sync.Mutex
	hanging  chan struct{} // closed when calls may go on; nil: nothing hangs
	drop     chan struct{} // closed to end the subscriptions that run
	silent   bool
	denied   bool
	strict   bool
	vague    bool
	refuse   int
	lose     int
	chatter  int
	busy     int
	appends  int
	tailings int
	from     uint64
}

func (f *Faults) init() { f.drop = make(chan struct{}) }

// Hang leaves every call without an answer, also those of discovery, until on is false or the node stops.
func (f *Faults) Hang(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case on && f.hanging == nil:
		f.hanging = make(chan struct{})
	case !on && f.hanging != nil:
		close(f.hanging)
		f.hanging = nil
	}
}

// release lets go what hangs, so that the node can stop.
func (f *Faults) release() { f.Hang(false) }

// DropSubscriptions ends the subscriptions that run now. Nothing tells the client why.
func (f *Faults) DropSubscriptions() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.drop)
	f.drop = make(chan struct{})
}

// Silence has subscriptions that are open now or later tell nothing but their confirmation, while on.
func (f *Faults) Silence(on bool) { f.set(func() { f.silent = on }) }

// Deny refuses every read and append for lack of rights, while on.
func (f *Faults) Deny(on bool) { f.set(func() { f.denied = on }) }

// StrictRetries answers a repeated append with a wrong expected version as soon as others followed, while on.
func (f *Faults) StrictRetries(on bool) { f.set(func() { f.strict = on }) }

// VagueRetries answers a repeated append without a position, while on.
func (f *Faults) VagueRetries(on bool) { f.set(func() { f.vague = on }) }

// RefuseAppends closes the stream of the next n appends of several events after their first message, writing nothing.
func (f *Faults) RefuseAppends(n int) { f.set(func() { f.refuse = n }) }

// LoseAnswers writes the next n appends and then fails instead of answering.
func (f *Faults) LoseAnswers(n int) { f.set(func() { f.lose = n }) }

// Chatter begins the next n reads with a message that was not asked for.
func (f *Faults) Chatter(n int) { f.set(func() { f.chatter = n }) }

// Busy fails the next n reads, as a server that is not ready does.
func (f *Faults) Busy(n int) { f.set(func() { f.busy = n }) }

// Appends is how many append requests have come in.
func (f *Faults) Appends() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.appends
}

// Subscriptions is how many subscriptions have been confirmed so far.
func (f *Faults) Subscriptions() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tailings
}

// SubscribedFrom is the position after which the newest subscription began.
func (f *Faults) SubscribedFrom() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.from
}

func (f *Faults) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// is reads one of the switches.
func (f *Faults) is(on *bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *on
}

// take uses up one of n.
func (f *Faults) take(n *int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if *n == 0 {
		return false
	}
	*n--
	return true
}

func (f *Faults) count(n *int) { f.set(func() { *n++ }) }

// dropped is closed when the subscriptions that run now shall end.
func (f *Faults) dropped() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.drop
}

// wait holds a call up while the node hangs.
func (f *Faults) wait(ctx context.Context) error {
	f.mu.Lock()
	hanging := f.hanging
	f.mu.Unlock()
	if hanging == nil {
		return nil
	}
	select {
	case <-hanging:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func (s *Server) interceptUnary(
	ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return handle(ctx, req)
}

// interceptStream guards the calls of the streams service.
func (s *Server) interceptStream(
	srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler,
) error {
	if err := s.wait(stream.Context()); err != nil {
		return err
	}
	if leader := s.cluster.leads(); leader != s && needsLeader(stream.Context()) {
		return notLeader(stream, leader)
	}
	if s.is(&s.denied) {
		stream.SetTrailer(metadata.Pairs("exception", "access-denied"))
		return status.Error(codes.PermissionDenied, "Access Denied")
	}
	return handle(srv, stream)
}

func needsLeader(ctx context.Context) bool {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get("requires-leader")
	wants := false
	if len(values) > 0 {
		wants, _ = strconv.ParseBool(values[0])
	}
	return wants
}
