package steps

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
)

// CommandPause is how soon a step looks again at an agent command that has not settled.
const CommandPause = 2 * time.Second

// Order is an agent command that a relaying step sends.
type Order struct {
	Kind agentcommand.KindName
	Role agentcommand.Role // which agent carries it out
	// Name tells it from the step's other agent commands; the step's only one needs none.
	Name string
	// Payload is what it carries; nil: an empty one. The references to secrets in it are what the agent may fetch.
	Payload any
	// Make gives the payload instead, where making it costs something: only an agent command that does not exist yet needs it.
	Make func() (any, error)
	// Timeout is from now until the agent may not begin any more; zero: the step's deadline, which also bounds it.
	Timeout time.Duration
}

// AwaitCommand sends an agent command once per name and attempt, and finds it on every re-run. NotReady while it is under
// way. Errors: DRIVER_ERROR where it failed, was rejected, expired or was cancelled, with the agent's reason, code and
// details, or where the machine whose agent has it lost its power; INVALID_CONFIG for a kind that the step does not declare.
func (c *Context) AwaitCommand(ctx context.Context, o Order) (Awaited, error) {
	s, err := c.await(ctx, o)
	if err != nil {
		return Awaited{}, err
	}
	return Awaited{
		AgentCommand: s.AgentCommand, Result: s.Result, Attested: s.Attested, BootID: s.BootID, Attestation: s.Attestation,
	}, nil
}

// await gives the settled, succeeded agent command; with a refusal, the one that was refused.
func (c *Context) await(ctx context.Context, o Order) (agentcommand.State, error) {
	s, err := c.askAgain(ctx, o)
	switch {
	case err != nil:
		return agentcommand.State{}, err
	case !s.Status.Settled():
		if err := c.gone(ctx, s); err != nil {
			return agentcommand.State{}, err
		}
		if err := c.left(ctx, s); err != nil {
			return agentcommand.State{}, err
		}
		return agentcommand.State{}, NotReady(CommandPause)
	case s.Status != agentcommand.Succeeded:
		return s, Refusal(s)
	}
	return s, nil
}

// ask finds the agent command or sends it.
func (c *Context) ask(ctx context.Context, o Order) (agentcommand.State, error) {
	if !slices.Contains(c.Step.Sends, string(o.Kind)) {
		return agentcommand.State{}, fault.New(fault.InvalidConfig, "step %s sends %s, which its definition does not declare",
			c.Step.Action, o.Kind).WithDetail("path", "sends").WithDetail("kind", string(o.Kind))
	}
	if c.Ports.Commands == nil {
		return agentcommand.State{}, c.lacks("commands")
	}
	key := c.CommandKey(o.Name)
	if s, err := c.Ports.Commands.Find(ctx, key); err != nil || s.Exists() {
		return s, err
	}
	if err := c.reachable(ctx, o); err != nil {
		return agentcommand.State{}, err
	}
	r, err := c.requested(key, o)
	if err != nil {
		return agentcommand.State{}, err
	}
	s, err := c.Ports.Commands.Request(ctx, r)
	if fault.CodeOf(err) != fault.Conflict {
		return s, err
	}
	// Another worker asked for it meanwhile, having learned something else of the machine: its order is the one.
	found, findErr := c.Ports.Commands.Find(ctx, key)
	if findErr != nil || !found.Exists() || found.Kind != o.Kind {
		return s, err
	}
	return found, nil
}

// reachable waits for an agent of the site before anything is sent to it, so that an agent command is not begun long after
// it was asked for; and for one that serves network boot, where that is what it is about.
func (c *Context) reachable(ctx context.Context, o Order) error {
	switch {
	case o.Role != agentcommand.RoleSite:
		return nil
	case c.Ports.Agents == nil:
		return c.lacks("agents")
	case o.Kind.Boots():
		return c.boots(ctx)
	}
	there, err := c.Ports.Agents.SiteAgents(ctx, c.Node.Site)
	if err == nil && len(there) == 0 {
		return NotReady(0)
	}
	return err
}

func (c *Context) requested(key string, o Order) (agentcommand.Requested, error) {
	payload := o.Payload
	if o.Make != nil {
		made, err := o.Make()
		if err != nil {
			return agentcommand.Requested{}, err
		}
		payload = made
	}
	if payload == nil {
		payload = struct{}{}
	}
	text, err := json.Marshal(payload)
	if err != nil {
		return agentcommand.Requested{}, err
	}
	notAfter := c.Deadline
	if end := c.Now.Add(o.Timeout); o.Timeout > 0 && end.Before(notAfter) {
		notAfter = end
	}
	return agentcommand.Requested{
		AgentCommand: agentcommand.IDOf(key), Key: key, Kind: o.Kind, Role: o.Role,
		Node: c.Node.ID, Tenant: c.Node.Tenant, Site: c.Node.Site,
		Workflow: c.Workflow.Workflow, Step: c.Step.ID, Attempt: c.Step.Attempt,
		NotAfter: notAfter, Payload: text,
	}, nil
}

// Refusal is the error of an agent command that settled without success: DRIVER_ERROR, or UNVERIFIED_WIPE.
func Refusal(s agentcommand.State) *fault.Error {
	reason := s.Reason
	if reason == "" {
		reason = "no reason was given"
	}
	code := fault.DriverError
	if s.Kind == agentcommand.DiskWipe && s.Status == agentcommand.Failed && len(s.Result) > 0 {
		code = fault.UnverifiedWipe // it was tried, and a disk is not proven empty
	}
	e := fault.New(code, "%s %s: %s", s.Kind, s.Status, reason).
		WithDetail("agentCommandId", s.AgentCommand.String()).WithDetail("state", string(s.Status)).WithDetail("reason", reason)
	if s.Code != "" {
		e.WithDetail("code", s.Code)
	}
	if len(s.Details) > 0 {
		e.WithDetail("details", s.Details)
	}
	return e.WithRemedy(advice(s.Details))
}

// advice is what to do next, as an agent tells it in the details of a failure; empty: it tells nothing.
func advice(details json.RawMessage) string {
	const most = 512
	var told struct {
		Remedy string `json:"remedy"`
	}
	if json.Unmarshal(details, &told) != nil {
		return ""
	}
	return fault.Bounded(agentcommand.Bound(told.Remedy), most)
}

func (c *Context) lacks(port string) error {
	return fault.New(fault.InvalidConfig, "step %s needs %s, which this program does not provide", c.Step.Action, port).
		WithDetail("path", "ports."+port)
}

// session is the newest session of the machine's agent.
func (c *Context) session(ctx context.Context) (Session, error) {
	if c.Ports.Agents == nil {
		return Session{}, c.lacks("agents")
	}
	return c.Ports.Agents.OfNode(ctx, c.Node.ID)
}

// earlier decodes the result of the newest succeeded step with the action; false: there is none.
func earlier[T any](c *Context, action string) (result T, found bool, err error) {
	raw, found := c.Result(action)
	if !found {
		return result, false, nil
	}
	result, err = decodeResult[T](action, raw)
	return result, err == nil, err
}

func decodeResult[T any](action string, raw json.RawMessage) (result T, err error) {
	if len(raw) == 0 {
		return result, nil
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return result, fault.Wrap(err, fault.InvalidConfig, "the result of %s is not of the form that is read from it", action).
			WithDetail("path", "result")
	}
	return result, nil
}
