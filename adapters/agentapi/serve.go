package agentapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
)

// The most bytes of a body.
const (
	smallBody  = 64 << 10
	listBody   = 256 << 10
	resultBody = 2*agentcommand.MaxPayload + 64<<10
)

// handle makes a handler of a function from a request's body to an answer.
func handle[In, Out any](g *Gateway, most int64, do func(*http.Request, In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in In
		if status, err := read(w, r, most, &in); err != nil {
			writeProblem(w, status, err)
			return
		}
		out, err := do(r, in)
		if err != nil {
			g.refuse(w, r, err)
			return
		}
		write(w, "application/json", http.StatusOK, out)
	}
}

// authenticated is handle for callers with a certificate that is good.
func authenticated[In, Out any](g *Gateway, most int64, do func(context.Context, caller, In) (Out, error)) http.HandlerFunc {
	return by(g, agent.State.Authenticates, most, do)
}

// working is authenticated for what belongs to a session: its agent has to be the one that opened it. While a machine is in rescue
// its installed OS, which is its tenant's, has a certificate of the same agent as the ramdisk that works there.
func working[In, Out any](g *Gateway, most int64, do func(context.Context, caller, In) (Out, error)) http.HandlerFunc {
	return authenticated(g, most, func(ctx context.Context, who caller, in In) (Out, error) {
		if err := who.inRole(); err != nil {
			var none Out
			return none, err
		}
		return do(ctx, who, in)
	})
}

func by[In, Out any](g *Gateway, is credential, most int64, do func(context.Context, caller, In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, err := g.whois(r, is)
		if err != nil {
			g.refuse(w, r, err)
			return
		}
		handle(g, most, func(r *http.Request, in In) (Out, error) { return do(r.Context(), who, in) })(w, r)
	}
}

// refuse answers with an error. What is the gateway's own fault is logged.
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the agent has gone
	}
	switch fault.CodeOf(err) {
	case fault.Internal:
		g.Logger.Error("a request of an agent failed", "path", r.URL.Path, "error", err)
	case fault.Unavailable:
		g.Logger.Warn("a request of an agent can't be served", "path", r.URL.Path, "error", err)
	}
	writeProblem(w, 0, err)
}

// read decodes a body: one JSON object. Fields that are not known are passed over, for agents of newer versions.
func read(w http.ResponseWriter, r *http.Request, most int64, into any) (status int, err error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge, fault.New(fault.InvalidInput, "the body holds more than %d bytes", most)
	case err != nil:
		return http.StatusBadRequest, fault.New(fault.InvalidInput, "the body could not be read")
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // it is there: a poll may take its time
	if err := json.Unmarshal(body, into); err != nil {
		return http.StatusBadRequest, fault.Invalid(fault.Issue{Path: "body", Message: malformed(err)})
	}
	return 0, nil
}

// malformed tells what is wrong with a body without repeating any of it: it may hold a token.
func malformed(err error) string {
	var mistyped *json.UnmarshalTypeError
	if errors.As(err, &mistyped) {
		return "field " + mistyped.Field + " is of another type than " + mistyped.Type.String()
	}
	return "not the JSON that is expected here"
}

// boundBody has a body come in time or not at all. That holds also where nobody looks at it: the server itself reads what is left
// of a body before it answers, and would wait for a stranger as long as that likes.
func (g *Gateway) boundBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(g.Sending)) // a test's server may have no deadlines
	}
}

// observe tells the observer of every request, and makes a panic an answer.
func (g *Gateway) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		select {
		case <-g.closing: // the agent is to go to another gateway
			w.Header().Set("Connection", "close")
		default:
		}
		seen := &statusWriter{ResponseWriter: w}
		g.boundBody(w, r)
		defer func() {
			if what := recover(); what != nil {
				if what == http.ErrAbortHandler { //nolint:errorlint // the value that net/http looks for
					panic(what)
				}
				g.Logger.Error("a request of an agent panicked", "path", r.URL.Path, "panic", what)
				if seen.status == 0 {
					writeProblem(seen, 0, fault.New(fault.Internal, "something went wrong inside; nothing more is told here"))
				}
			}
			route := "other"
			if c := chi.RouteContext(r.Context()); c != nil && c.RoutePattern() != "" {
				route = c.RoutePattern()
			}
			g.Observer.Served(route, seen.status, time.Since(began))
		}()
		next.ServeHTTP(seen, r)
	})
}

// statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
