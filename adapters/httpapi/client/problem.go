package client

import (
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/fault"
)

// Problem is an error that the control plane answered with.
type Problem struct {
	contract.Problem
	RetryAfter time.Duration // zero: the answer does not say
}

// Unwrap is the same as a fault, so that fault.CodeOf and errors.As find its code.
func (p *Problem) Unwrap() error {
	f := &fault.Error{Code: fault.Code(p.Code), Message: p.Detail, Remedy: p.Remedy, Details: p.Details}
	for _, i := range p.Issues {
		f.Issues = append(f.Issues, fault.Issue{Path: i.Path, Message: i.Message})
	}
	return f
}

const maxProblem = 1 << 20

// problemOf reads the error of an answer. One that is not a problem comes from something between here and the control
// plane, such as a proxy: its text is not shown.
func problemOf(res *http.Response) *Problem {
	p := &Problem{RetryAfter: retryAfter(res.Header)}
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")) // what cannot be parsed is not a problem
	if media == contract.ProblemType {
		err := json.NewDecoder(io.LimitReader(res.Body, maxProblem)).Decode(&p.Problem)
		if err == nil && p.Code != "" {
			return p
		}
	}
	p.Problem = contract.Problem{
		Status: res.StatusCode, Code: string(codeOf(res.StatusCode)), RequestID: res.Header.Get(contract.HeaderRequestID),
		Detail: "the answer was " + strconv.Itoa(res.StatusCode) + " and not one of the control plane's",
		Remedy: "check that the address is the control plane's, and what lies between",
	}
	return p
}

// codeOf is the nearest code of a status.
func codeOf(status int) fault.Code {
	switch status {
	case http.StatusUnauthorized:
		return fault.Unauthenticated
	case http.StatusForbidden:
		return fault.Forbidden
	case http.StatusNotFound:
		return fault.NotFound
	case http.StatusTooManyRequests:
		return fault.RateLimited
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fault.Unavailable
	}
	if status >= 400 && status < 500 {
		return fault.InvalidInput
	}
	return fault.Internal
}

// retryAfter reads both forms of RFC 9110 §10.2.3: seconds and a date.
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err == nil && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}
