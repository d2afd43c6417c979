package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/fault"
)

// request is what is known of a request on its way through.
type request struct {
	id, correlation, trace string
	who                    *Identity // nil until authenticated
	unknown                issues    // parameters of the query that the operation does not have
	command                uuid.UUID // of a mutation
	head                   bool      // only the headers are asked for: nothing is streamed
	code                   string    // of the problem it ended with
	cause                  error     // behind an INTERNAL or UNAVAILABLE
}

type requestKey struct{}

func requestOf(ctx context.Context) *request {
	r, _ := ctx.Value(requestKey{}).(*request)
	return r
}

func (r *request) failed(code string, err error) {
	r.code = code
	if code == string(fault.Internal) || code == string(fault.Unavailable) {
		r.cause = err
	}
}

var (
	saneID    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`)
	saneTrace = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`) // W3C Trace Context, version 00
)

func newRequest(h http.Header) *request {
	r := &request{id: h.Get(contract.HeaderRequestID)}
	if !saneID.MatchString(r.id) {
		r.id = uuid.Must(uuid.NewV7()).String()
	}
	if r.correlation = h.Get(contract.HeaderCorrelationID); !saneID.MatchString(r.correlation) {
		r.correlation = r.id
	}
	if trace := h.Get(contract.HeaderTraceParent); saneTrace.MatchString(trace) {
		r.trace = trace
	}
	return r
}

// enter is the outermost layer: it names the request, answers a panic, and tells the log and the observer.
func (a *API) enter(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		req := newRequest(r.Header)
		req.head = r.Method == http.MethodHead
		out := watch(w, a.writing)
		out.Header().Set(contract.HeaderRequestID, req.id)
		r = r.WithContext(context.WithValue(r.Context(), requestKey{}, req))
		defer func() {
			abort := a.panicked(out, r, recover())
			a.served(r, req, out, time.Since(began))
			if abort {
				panic(http.ErrAbortHandler)
			}
		}()
		boundBody(w, r, a.sending)
		if err := plainURL(r.URL); err != nil {
			refuse(out, r, err)
			return
		}
		next.ServeHTTP(out, r)
	})
}

// panicked answers INTERNAL. The value of a panic may hold what a caller sent; only a runtime error's text is logged. abort
// says that the answer had begun, so that only breaking the connection tells the caller that it is not whole.
func (a *API) panicked(w *watched, r *http.Request, caught any) (abort bool) {
	switch caught {
	case nil:
		return false
	case http.ErrAbortHandler:
		return true
	}
	what := fmt.Sprintf("%T", caught)
	var known runtime.Error
	if err, ok := caught.(error); ok && errors.As(err, &known) {
		what = known.Error()
	}
	a.log.ErrorContext(r.Context(), "a handler panicked",
		"panic", what, "requestId", requestOf(r.Context()).id, "stack", string(debug.Stack()))
	if w.status != 0 {
		return true
	}
	refuse(w, r, fault.New(fault.Internal, "something went wrong inside; nothing more is told here"))
	return false
}

// served tells of an answer. Neither the path's values nor the query are logged: a caller may have put a secret there.
func (a *API) served(r *http.Request, req *request, w *watched, took time.Duration) {
	route := chi.RouteContext(r.Context()).RoutePattern()
	a.observer.Served(r.Method, route, w.status, took)
	level, attrs := slog.LevelInfo, []slog.Attr{
		slog.String("method", r.Method), slog.String("route", route), slog.Int("status", w.status),
		slog.Duration("took", took), slog.String("requestId", req.id),
	}
	if req.who != nil {
		attrs = append(attrs, slog.String("principal", req.who.Actor.Principal.String()))
	}
	if req.code != "" {
		attrs = append(attrs, slog.String("code", req.code))
	}
	if req.cause != nil {
		level = slog.LevelError
		attrs = append(attrs, slog.String("error", causes(req.cause)))
	}
	a.log.LogAttrs(r.Context(), level, "request", attrs...)
}

// causes joins an error with what a fault keeps from its caller.
func causes(err error) string {
	text := err.Error()
	for err = errors.Unwrap(err); err != nil; err = errors.Unwrap(err) {
		if cause := err.Error(); !strings.Contains(text, cause) {
			text += ": " + cause
		}
	}
	return text
}

// plainURL refuses what no store could hold: text that is not UTF-8, NUL characters, broken escapes.
func plainURL(u *url.URL) error {
	if !plain(u.Path) {
		return fault.Invalid(fault.Issue{Path: "path", Message: "UTF-8 without control characters"})
	}
	if u.RawQuery == "" {
		return nil
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return fault.Invalid(fault.Issue{Path: "query", Message: "a percent escape is broken, or a semicolon separates"})
	}
	var issues []fault.Issue
	for key, values := range query {
		for _, v := range append(values, key) {
			if !plain(v) {
				issues = append(issues, fault.Issue{
					Path: "query." + strings.ToValidUTF8(key, "\uFFFD"), Message: "UTF-8 without control characters",
				})
				break
			}
		}
	}
	if len(issues) > 0 {
		return fault.Invalid(issues...)
	}
	return nil
}

func plain(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// watched remembers the status of an answer, and has a caller take it in time: one that takes nothing, which anybody may be, keeps
// neither connection nor goroutine. Only a server whose answers all end could have one deadline for each.
type watched struct {
	http.ResponseWriter
	control *http.ResponseController
	within  time.Duration // bounds each write
	status  int
}

// watch begins an answer. The deadline of the one before on the same connection is not its own.
func watch(w http.ResponseWriter, within time.Duration) *watched {
	out := &watched{ResponseWriter: w, control: http.NewResponseController(w), within: within}
	_ = out.control.SetWriteDeadline(time.Time{}) // not every server has deadlines
	return out
}

func (w *watched) await() { _ = w.control.SetWriteDeadline(time.Now().Add(w.within)) }

// WriteHeader notes the first final status.
func (w *watched) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.await()
	w.ResponseWriter.WriteHeader(status)
}

// mostWritten is what a caller is to take within one deadline.
const mostWritten = 64 << 10

// Write notes that nothing else was said.
func (w *watched) Write(b []byte) (written int, err error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	for err == nil && written < len(b) {
		w.await()
		var n int
		n, err = w.ResponseWriter.Write(b[written:min(len(b), written+mostWritten)])
		written += n
	}
	return written, err
}

// Unwrap lets http.ResponseController through.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }
