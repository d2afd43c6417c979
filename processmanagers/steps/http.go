package steps

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/profile"
)

// ViaSite is the input of http.viaSite.
type ViaSite struct {
	Method  string            `json:"method,omitempty" enum:"GET,HEAD,POST,PUT,PATCH,DELETE" doc:"left out: GET"`
	URL     string            `json:"url" doc:"at the machine's own address; no other is reached"`
	Header  map[string]string `json:"header,omitempty"`
	Body    string            `json:"body,omitempty"`
	Expect  []int             `json:"expect,omitempty" doc:"the statuses that are success; left out: 200 to 299"`
	Poll    bool              `json:"poll,omitempty" doc:"ask again until the answer is a success, or the step's time is over"`
	Timeout profile.Duration  `json:"timeout,omitempty" doc:"of one request"`
}

// Check wants an absolute URL.
func (v *ViaSite) Check() (wrong []fault.Issue) {
	if !isHTTP(v.URL) {
		wrong = append(wrong, fault.Issue{Path: "url", Message: "is not an absolute http or https URL"})
	}
	if v.Timeout < 0 {
		wrong = append(wrong, fault.Issue{Path: "timeout", Message: "is negative"})
	}
	return wrong
}

func (v ViaSite) success(status int) bool {
	if len(v.Expect) > 0 {
		return slices.Contains(v.Expect, status)
	}
	return status >= 200 && status < 300
}

func httpSteps() []Step {
	return []Step{Define(profile.Spec{
		ID: "http.viaSite", Timeout: 10 * time.Minute,
		Relays: []profile.Where{profile.OnSite}, Sends: []string{string(agentcommand.SiteHTTPProxy)},
		Summary: "Sends one HTTP request from the site to the machine's own address.",
	}, func(ctx context.Context, c *Context, in ViaSite) (any, error) { return c.HTTPViaSite(ctx, in, "") })}
}

// HTTPViaSite sends one HTTP request from the site agent to the machine's own address, for steps that declare
// site.httpProxy; name tells it from the step's others. An answer that is no success is DRIVER_ERROR with the status, or,
// with Poll, NotReady: the request is sent again.
func (c *Context) HTTPViaSite(ctx context.Context, in ViaSite, name string) (agentcommand.HTTPProxied, error) {
	var answer agentcommand.HTTPProxied
	next := time.Duration(0)
	if in.Poll {
		var look string
		if look, next = c.look(); name != "" {
			name += "-"
		}
		name += look
	}
	if in.Method == "" {
		in.Method = "GET"
	}
	s, err := c.ask(ctx, Order{
		Kind: agentcommand.SiteHTTPProxy, Role: agentcommand.RoleSite, Name: name,
		Payload: agentcommand.HTTPProxy{
			Method: in.Method, URL: in.URL, Header: in.Header, Body: []byte(in.Body),
			Timeout: agentcommand.Seconds(time.Duration(in.Timeout).Seconds()),
		},
	})
	switch {
	case err != nil:
		return answer, err
	case !s.Status.Settled():
		return answer, NotReady(CommandPause)
	case s.Status != agentcommand.Succeeded && in.Poll:
		return answer, NotReady(next)
	case s.Status != agentcommand.Succeeded:
		return answer, Refusal(s)
	}
	if err := json.Unmarshal(s.Result, &answer); err != nil {
		return answer, badAnswer(err, "http.viaSite")
	}
	switch {
	case in.success(answer.Status):
		return answer, nil
	case in.Poll:
		return answer, NotReady(next)
	}
	return answer, fault.New(fault.DriverError, "the machine answered with status %d", answer.Status).
		WithDetail("reason", "http-status").WithDetail("status", answer.Status)
}
