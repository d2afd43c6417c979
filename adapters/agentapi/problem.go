package agentapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/better-compute/metal/domain/fault"
)

// problem is an error as RFC 9457 has it, with the fields of the API's errors.
type problem struct {
	Type    string         `json:"type"`
	Title   string         `json:"title"`
	Status  int            `json:"status"`
	Detail  string         `json:"detail"`
	Code    fault.Code     `json:"code"`
	Issues  []fault.Issue  `json:"issues,omitempty"`
	Details map[string]any `json:"details,omitempty"`
	Remedy  string         `json:"remedy,omitempty"`
}

var (
	errNoPath   = fault.New(fault.NotFound, "there is no such path").WithRemedy("see schema/agent-protocol.md")
	errPostOnly = fault.New(fault.InvalidInput, "only POST is understood here")
)

// writeProblem answers with err; zero status is its code's. An error without a code is INTERNAL, and its text stays in the
// log.
func writeProblem(w http.ResponseWriter, status int, err error) {
	var f *fault.Error
	if !errors.As(err, &f) {
		f = fault.New(fault.Internal, "something went wrong inside; nothing more is told here")
	}
	info := fault.Info(f.Code)
	p := problem{
		Type: "urn:metal:error:" + string(info.Code), Title: info.When, Status: info.HTTP, Detail: f.Message, Code: info.Code,
		Issues: f.Issues, Details: f.Details, Remedy: f.Remedy,
	}
	if p.Remedy == "" {
		p.Remedy = info.Remedy
	}
	if status != 0 {
		p.Status = status
	}
	if seconds, ok := f.Details[fault.RetryAfter].(int); ok {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	} else if f.Code == fault.Unavailable {
		w.Header().Set("Retry-After", "1")
	}
	write(w, "application/problem+json", p.Status, p)
}

// write answers with JSON. An agent that has gone is told nothing.
func write(w http.ResponseWriter, contentType string, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		http.Error(w, "", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}
