package contract

import "fmt"

// ProblemType is the media type of every error (RFC 9457).
const ProblemType = "application/problem+json"

// Problem is an error: an RFC 9457 problem with a code of the closed list, and every issue of the request at its path.
type Problem struct {
	Type      string         `json:"type" format:"uri-reference" doc:"identifies the code: urn:metal:error:<CODE>"`
	Title     string         `json:"title" doc:"what the code means"`
	Status    int            `json:"status" doc:"the HTTP status"`
	Detail    string         `json:"detail,omitempty" doc:"what happened, in one sentence"`
	Code      string         `json:"code" doc:"one of the closed list: INVALID_INPUT, NOT_FOUND, CONFLICT, …"`
	Details   map[string]any `json:"details,omitempty" doc:"facts that a program can use, such as the current state"`
	Issues    []Issue        `json:"issues,omitempty" doc:"everything that is wrong with the request"`
	Remedy    string         `json:"remedy,omitempty" doc:"what to do next"`
	RequestID string         `json:"requestId,omitempty" doc:"to find the request in the log"`
}

// Issue is one thing wrong at one place of the request.
type Issue struct {
	Path    string `json:"path" doc:"such as body.macs[1], query.limit, path.id, header.If-Match"`
	Message string `json:"message" doc:"what is wrong there"`
}

// Error is the code, what happened and every issue.
func (p *Problem) Error() string {
	s := p.Code
	if p.Detail != "" {
		s += ": " + p.Detail
	}
	for _, i := range p.Issues {
		s += fmt.Sprintf("; %s: %s", i.Path, i.Message)
	}
	return s
}
