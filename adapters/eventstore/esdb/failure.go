package esdb

import (
	"context"
	"errors"
	"fmt"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/better-compute/metal/domain/event"
)

// Neither is context.DeadlineExceeded: the caller's own context has not ended.
var (
	errPatience = errors.New("no answer within the store's patience")
	errNoAnswer = errors.New("the server did not answer the request in time")
)

// kind is what a failed request means to its caller.
type kind int

const (
	unreached kind = iota // there was no client to send it with: nothing was sent
	broken                // the connection or the client failed: the outcome is unknown and the client is replaced
	moved                 // the node is not the leader; the client has been told to go there: nothing was done
	unclear               // the server failed, or closed the stream without saying why: the outcome is unknown
	outdated              // the stream is not at the expected version
	absent                // the stream does not exist
	refused               // the server will not do it, however often it is asked: nothing was done
	ended                 // the caller's context ended: the outcome is unknown
)

// failure is why a request gave no answer.
type failure struct {
	kind  kind
	cause error
}

// Error is the cause's text. The client's errors never hold credentials.
func (f *failure) Error() string { return f.cause.Error() }

// Unwrap is the cause.
func (f *failure) Unwrap() error { return f.cause }

// fail judges the error of a request that was sent under caller, the context of the one who asked.
func fail(caller context.Context, err error) *failure {
	if caller.Err() != nil {
		return &failure{ended, context.Cause(caller)}
	}
	return &failure{judge(err), err}
}

// judge reads codes only, never texts: the client's own where it has one, else those of gRPC.
func judge(err error) kind {
	var judged *failure
	if errors.As(err, &judged) {
		return judged.kind
	}
	var own *client.Error
	if errors.As(err, &own) {
		switch own.Code() {
		case client.ErrorCodeNotLeader:
			return moved
		case client.ErrorCodeWrongExpectedVersion:
			return outdated
		case client.ErrorCodeConnectionClosed, client.ErrorUnavailable, client.ErrorCodeDeadlineExceeded:
			return broken
		case client.ErrorCodeAccessDenied, client.ErrorCodeUnauthenticated, client.ErrorCodeStreamDeleted,
			client.ErrorCodeUnsupportedFeature:
			return refused
		case client.ErrorCodeResourceNotFound:
			return absent
		}
	}
	return judgeStatus(err)
}

func judgeStatus(err error) kind {
	var panicked *panicError
	if errors.As(err, &panicked) || errors.Is(err, errNoAnswer) {
		return broken
	}
	var s interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &s) {
		return unclear
	}
	switch s.GRPCStatus().Code() {
	case codes.Unavailable, codes.DeadlineExceeded:
		return broken
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.Unimplemented,
		codes.ResourceExhausted:
		return refused
	default: // among them FailedPrecondition, by which some servers tell a wrong version, and Canceled
		return unclear
	}
}

// nothingWritten says whether a request that failed so left no trace.
func (k kind) nothingWritten() bool {
	return k == unreached || k == moved || k == outdated || k == absent || k == refused
}

// passing says whether the same request may do better a little later.
func (k kind) passing() bool { return k == broken || k == moved || k == unclear }

// unavailable is what a reader is told, and a writer whose request was never sent.
func unavailable(err error) error { return fmt.Errorf("%w: %w", event.ErrUnavailable, err) }

// unknownOutcome is what a writer is told whose request was sent.
func unknownOutcome(err error) error { return fmt.Errorf("%w: %w", event.ErrUnknownOutcome, err) }

// panicError is a panic inside the client.
type panicError struct{ value any }

// Error tells the panic's value.
func (p *panicError) Error() string { return fmt.Sprintf("the client panicked: %v", p.value) }
