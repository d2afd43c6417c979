package esdb

import (
	"context"
	"time"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"google.golang.org/grpc/metadata"
)

// answer is what a call gives, once.
type answer[T any] struct {
	value T
	fail  *failure
}

// call makes one request with the client that works, waiting for one if need be. It returns when ctx ends or the time
// for a request is over, whatever the client does.
func call[T any](
	ctx context.Context, m *manager, timeout time.Duration, request func(context.Context, *client.Client) (T, error),
) (T, *failure) {
	var none T
	s, err := m.acquire(ctx)
	if err != nil {
		return none, &failure{unreached, err}
	}
	timed, cancel := context.WithTimeoutCause(ctx, timeout, errNoAnswer)
	unhook := context.AfterFunc(m.ctx, cancel)
	got := make(chan answer[T], 1)
	go func() {
		defer cancel()
		defer unhook()
		value, err := guard(leaderOnly(timed), s, request)
		var f *failure
		if err != nil {
			f = fail(ctx, err)
		}
		m.release(s, f)
		got <- answer[T]{value, f}
	}()
	select {
	case a := <-got:
		return a.value, a.fail
	case <-timed.Done():
	}
	select {
	case a := <-got: // it had returned, which ends timed as well
		return a.value, a.fail
	default:
	}
	if ctx.Err() == nil && m.ctx.Err() == nil {
		m.abandon(s, errNoAnswer)
	}
	return none, fail(ctx, context.Cause(timed))
}

// guard makes a request in s, and turns a panic of the client into an error.
func guard[T any](
	ctx context.Context, s *session, request func(context.Context, *client.Client) (T, error),
) (value T, err error) {
	entry := s.enter(ctx)
	defer entry.entered()
	defer func() {
		if r := recover(); r != nil {
			err = &panicError{r}
		}
	}()
	return request(entry, s.client)
}

// leaderOnly asks for the leader. The client means to, but puts the header where only a server would look for it.
func leaderOnly(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "requires-leader", "true")
}

// persist repeats a reading request until it is answered, refused, or ctx ends.
func persist[T any](
	ctx context.Context, s *Store, request func(context.Context, *client.Client) (T, error),
) (T, *failure) {
	wait := pause()
	for {
		value, f := call(ctx, s.manager, s.options.CallTimeout, request)
		if f == nil || !f.kind.passing() {
			return value, f
		}
		select {
		case <-time.After(wait.NextBackOff()):
		case <-ctx.Done():
			return value, f
		}
	}
}
