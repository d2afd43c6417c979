package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/fault"
)

// problem is an error on its way out.
type problem struct {
	contract.Problem
	headers http.Header
}

// GetStatus is the HTTP status.
func (p *problem) GetStatus() int { return p.Status }

// GetHeaders are what the answer needs beside the body, such as Retry-After.
func (p *problem) GetHeaders() http.Header { return p.headers }

// ContentType is that of RFC 9457, whatever the caller accepts.
func (p *problem) ContentType(string) string { return contract.ProblemType }

// problemType names a code for good.
func problemType(c fault.Code) string { return "urn:metal:error:" + string(c) }

// problemOf is what a caller is told of err. An error without a code is INTERNAL, and its text stays in the log.
func problemOf(ctx context.Context, err error) *problem {
	var known *problem
	if errors.As(err, &known) {
		return known
	}
	var f *fault.Error
	if !errors.As(err, &f) {
		f = fault.Wrap(err, fault.Internal, "something went wrong inside; nothing more is told here")
	}
	info := fault.Info(f.Code)
	p := &problem{Problem: contract.Problem{
		Type: problemType(info.Code), Title: info.When, Status: info.HTTP, Detail: f.Message, Code: string(info.Code),
		Details: f.Details, Remedy: f.Remedy,
	}}
	for _, i := range f.Issues {
		p.Issues = append(p.Issues, contract.Issue{Path: i.Path, Message: i.Message})
	}
	if p.Remedy == "" {
		p.Remedy = info.Remedy
	}
	p.addHeaders(f)
	if r := requestOf(ctx); r != nil {
		p.RequestID = r.id
		r.failed(p.Code, err)
	}
	return p
}

func (p *problem) addHeaders(f *fault.Error) {
	p.headers = http.Header{}
	if seconds, ok := f.Details[fault.RetryAfter].(int); ok {
		p.headers.Set("Retry-After", strconv.Itoa(seconds))
	}
	switch {
	case f.Code == fault.Unauthenticated:
		p.headers.Set("WWW-Authenticate", `Bearer realm="metal"`)
	case f.Code == fault.Unavailable && p.headers.Get("Retry-After") == "":
		p.headers.Set("Retry-After", "1")
	}
}

// withStatus gives a problem a status other than its code's, for what HTTP tells apart and the codes do not.
func (p *problem) withStatus(status int) *problem {
	p.Status = status
	return p
}

// write sends the problem.
func (p *problem) write(w http.ResponseWriter) {
	header := w.Header()
	for k, values := range p.headers {
		header[k] = values
	}
	header.Set("Content-Type", contract.ProblemType)
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	body, err := json.Marshal(p.Problem)
	if err == nil {
		_, _ = w.Write(append(body, '\n')) // a caller that has gone is told nothing
	}
}

// refuse answers a request with err.
func refuse(w http.ResponseWriter, r *http.Request, err error) { problemOf(r.Context(), err).write(w) }

// fromHuma makes the problem of what huma finds wrong with a request. The values that it would echo are dropped: they may
// be secrets.
func fromHuma(ctx context.Context, status int, message string, errs ...error) *problem {
	var issues []fault.Issue
	for _, err := range errs {
		if err == nil {
			continue
		}
		var d huma.ErrorDetailer
		if errors.As(err, &d) {
			issues = append(issues, issueOf(d.ErrorDetail()))
		}
	}
	switch {
	case status >= http.StatusInternalServerError:
		return problemOf(ctx, errors.Join(append([]error{errors.New(message)}, errs...)...))
	case len(issues) > 0:
		if r := requestOf(ctx); r != nil {
			issues = append(issues, r.unknown...)
		}
		return problemOf(ctx, fault.Invalid(issues...))
	case status == http.StatusBadRequest && strings.Contains(message, "body"):
		return problemOf(ctx, fault.Invalid(fault.Issue{Path: "body", Message: "a JSON object is needed"}))
	}
	return problemOf(ctx, fault.New(fault.InvalidInput, "%s", message)).withStatus(status)
}

const requiredPrefix, requiredSuffix = "expected required property ", " to be present"

// issueOf puts a missing property at its own path, where huma puts it at the object that lacks it.
func issueOf(d *huma.ErrorDetail) fault.Issue {
	i := fault.Issue{Path: d.Location, Message: d.Message}
	if name, ok := strings.CutPrefix(i.Message, requiredPrefix); ok {
		if name, ok := strings.CutSuffix(name, requiredSuffix); ok {
			return fault.Issue{Path: strings.TrimPrefix(i.Path+"."+name, "."), Message: "needed"}
		}
	}
	i.Message = strings.Replace(i.Message, "unexpected property", "there is no such field", 1)
	return i
}
