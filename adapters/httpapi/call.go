package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"go.jetify.com/typeid"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/projections/authz"
)

// Keyed is what every mutation takes. The key itself is read before the operation.
type Keyed struct {
	Key string `header:"Idempotency-Key" doc:"up to 255 visible ASCII characters: the same again gives the first outcome"`
}

// Matching is what a mutation of something that exists takes.
type Matching struct {
	Keyed
	IfMatch string `header:"If-Match" doc:"the version that the caller has seen; CONFLICT where it has moved on"`
}

// creation is the call that makes something new.
func creation(ctx context.Context) commands.Call {
	r := requestOf(ctx)
	return commands.Call{
		Actor: r.who.Actor, Command: r.command, RequestID: r.id, CorrelationID: r.correlation, CausationID: r.id,
		TraceParent: r.trace,
	}
}

// call is the call that changes something at the version that the caller has seen.
func (m Matching) call(ctx context.Context) (commands.Call, error) {
	c := creation(ctx)
	if m.IfMatch == "" {
		return c, nil
	}
	version, err := ifMatch(m.IfMatch)
	c.IfMatch = version
	return c, err
}

// ifMatch reads an If-Match header: "17", W/"17", 17, or * for whatever version there is.
func ifMatch(text string) (*event.Version, error) {
	text = strings.TrimSpace(text)
	if text == "*" {
		return nil, nil
	}
	digits := strings.TrimPrefix(text, "W/")
	if len(digits) >= 2 && digits[0] == '"' && digits[len(digits)-1] == '"' {
		digits = digits[1 : len(digits)-1]
	} else if digits != text {
		digits = ""
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || strings.HasPrefix(digits, "+") {
		return nil, fault.Invalid(fault.Issue{Path: "header.If-Match", Message: `one version, such as "17", or *`})
	}
	v := event.Version(n)
	return &v, nil
}

// settled waits for a read model to show what a verb did, and reports whether it does.
func (a *API) settled(ctx context.Context, projection string, p event.Position) bool {
	ctx, cancel := context.WithTimeout(ctx, a.waits.verb)
	defer cancel()
	return a.waiter.Wait(ctx, projection, p) == nil
}

// done is the answer to a mutation: its outcome, and 202 where the read model does not show it yet.
func (a *API) done(ctx context.Context, projection string, v event.Version, p event.Position, outcome any) (*answer, error) {
	body, err := encode(outcome)
	if err != nil {
		return nil, err
	}
	out := &answer{ETag: etag(v), Position: p.String(), Body: body}
	if !a.settled(ctx, projection, p) {
		out.Status = http.StatusAccepted
	}
	return out, nil
}

// located makes the answer one to a creation: where the new thing is.
func located(out *answer, path string, err error) (*answer, error) {
	if err == nil {
		out.Location = path
	}
	return out, err
}

// target is what a mutation is aimed at, and its call.
func target[T id.Kind, PT typeid.SubtypePtr[T]](ctx context.Context, text string, m Matching,
) (T, commands.Call, error) {
	var wrong issues
	v, err := pathID[T, PT](text)
	wrong.take(err)
	call, err := m.call(ctx)
	wrong.take(err)
	return v, call, wrong.err()
}

// principalChanged drops what is known of a principal, and later once more when the read model has the change too: what
// was looked up in between may be older than the change.
func (a *API) principalChanged(p id.Principal, at event.Position) (later func(context.Context)) {
	a.tokens.forget(p)
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, a.waits.read)
		defer cancel()
		_ = a.waiter.Wait(ctx, authz.Name, at) // forgotten all the same: what is known only gets newer
		a.tokens.forget(p)
	}
}
