// Package fault holds the closed list of error codes and the error that carries one.
//
// Every error that a person or a program may see is an *Error: a code, what happened, where (paths), and what to do
// next. It never carries a secret.
package fault

import (
	"errors"
	"fmt"
)

// Code is one of the closed list in Codes.
type Code string

// The codes. Codes has the HTTP status and the meaning of each.
const (
	InvalidInput    Code = "INVALID_INPUT"
	Unauthenticated Code = "UNAUTHENTICATED"
	Forbidden       Code = "FORBIDDEN"
	NotFound        Code = "NOT_FOUND"
	Conflict        Code = "CONFLICT"
	InvalidState    Code = "INVALID_STATE"
	UnverifiedWipe  Code = "UNVERIFIED_WIPE"
	InvalidConfig   Code = "INVALID_CONFIG"
	RateLimited     Code = "RATE_LIMITED"
	DriverError     Code = "DRIVER_ERROR"
	Unavailable     Code = "UNAVAILABLE"
	Timeout         Code = "TIMEOUT"
	RejoinTimeout   Code = "REJOIN_TIMEOUT"
	Internal        Code = "INTERNAL"
)

// CodeInfo says what a code means to a caller.
type CodeInfo struct {
	Code   Code
	HTTP   int    // the status of an answer with this code
	When   string // when it is returned
	Remedy string // what a caller does next
}

// Codes is the closed list, in the order in which people read it.
var Codes = []CodeInfo{
	{InvalidInput, 400, "the request is malformed; every issue is listed with its path", "correct the listed fields and send it again"},
	{Unauthenticated, 401, "there is no credential, or it is not known, expired or revoked", "send a valid bearer token"},
	{Forbidden, 403, "the credential may see the resource but not do this", "ask an administrator for a binding with the action named in the details"},
	{NotFound, 404, "the resource does not exist, or not for this credential", "check the id and the credential"},
	{Conflict, 409, "the aggregate changed meanwhile, or another workflow is active, or a unique value is taken", "read the current state and decide again"},
	{InvalidState, 409, "the state table refuses the verb", "see the legal verbs in the details, or `metalctl explain states`"},
	{UnverifiedWipe, 409, "a wipe is not proven on every disk of the latest inventory", "wipe again, or retire the machine"},
	{InvalidConfig, 422, "a step, profile, kind or module is defined or wired wrongly", "correct the definition at the path in the details"},
	{RateLimited, 429, "too many requests or failed attempts", "wait for the time in Retry-After"},
	{DriverError, 502, "an agent command failed, was rejected, expired or was cancelled", "read the agent's reason in the details"},
	{Unavailable, 503, "a store or an agent is away", "retry with back-off; nothing was lost"},
	{Timeout, 504, "a step passed its deadline", "see the step's progress, then retry the workflow"},
	{RejoinTimeout, 504, "a machine did not come back in time", "look at its console, then retry the workflow"},
	{Internal, 500, "a bug; the message never tells internals", "report it with the request id"},
}

// Info gives the row of c; an unknown code reads as INTERNAL.
func Info(c Code) CodeInfo {
	internal := CodeInfo{}
	for _, row := range Codes {
		if row.Code == c {
			return row
		}
		if row.Code == Internal {
			internal = row
		}
	}
	return internal
}

// Issue is one thing wrong at one place of the input.
type Issue struct {
	Path    string `json:"path"`    // as body.macs[1], query.limit, header.If-Match
	Message string `json:"message"` // what is wrong there
}

// Error is what a caller is told.
type Error struct {
	Code    Code
	Message string         // one sentence, no secret
	Remedy  string         // what to do next; empty: the code's own
	Issues  []Issue        // every issue with its path
	Details map[string]any // facts a program can use, such as the current state
	cause   error
}

// Advised is a text about the error, followed by what to do next where the error says so: for what is kept of it, such as why a
// machine failed.
func (e *Error) Advised(text string) string {
	if e.Remedy == "" {
		return text
	}
	return text + "; what to do: " + e.Remedy
}

// Error is the code and the message.
func (e *Error) Error() string {
	s := string(e.Code) + ": " + e.Message
	for _, i := range e.Issues {
		s += fmt.Sprintf("; %s: %s", i.Path, i.Message)
	}
	return s
}

// Unwrap is the cause, for the log; it is never shown to a caller.
func (e *Error) Unwrap() error { return e.cause }

// Is matches another *Error by code, so that errors.Is(err, fault.New(fault.Conflict, "")) works.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Message == ""
}

// New makes an error of a code with a formatted message.
func New(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Message: fmt.Sprintf(format, args...)}
}

// Invalid is INVALID_INPUT with its issues.
func Invalid(issues ...Issue) *Error {
	return &Error{Code: InvalidInput, Message: "the request is not valid", Issues: issues}
}

// Wrap keeps cause for the log behind a message for the caller.
func Wrap(cause error, c Code, format string, args ...any) *Error {
	e := New(c, format, args...)
	e.cause = cause
	return e
}

// RetryAfter is the detail that says in how many seconds, a number, it may be tried again.
const RetryAfter = "retryAfterSeconds"

// WithDetail adds one fact for programs and gives e back.
func (e *Error) WithDetail(key string, value any) *Error {
	if e.Details == nil {
		e.Details = map[string]any{}
	}
	e.Details[key] = value
	return e
}

// WithRemedy sets what to do next and gives e back.
func (e *Error) WithRemedy(remedy string) *Error {
	e.Remedy = remedy
	return e
}

// CodeOf is the code that err carries; any other error is INTERNAL, nil is the empty code.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Internal
}
