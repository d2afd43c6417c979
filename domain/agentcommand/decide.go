package agentcommand

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// Decider is the aggregate.
var Decider = event.Decider[State, Command, Event]{Decide: Decide, Evolve: Evolve}

// The bounds of what a stream holds.
const (
	MaxPayload = 200 << 10 // bytes of a payload, and of a result with its details
	MaxReason  = 4 << 10   // bytes; a longer one is cut at a character and marked
	MaxFetches = 64        // of secrets; an agent that needs more is not well
)

// Decide applies one verb. No events and no error: there was nothing to change. Errors: NOT_FOUND, also for an agent that
// the order is not with; CONFLICT where another boot has it; INVALID_STATE where it is over; INVALID_INPUT.
func Decide(s State, c Command) ([]Event, error) {
	if c, ok := c.(Request); ok {
		return request(s, c.Facts)
	}
	if !s.Exists() {
		return nil, fault.New(fault.NotFound, "there is no such agent command")
	}
	switch c := c.(type) {
	case HandOut:
		return handOut(s, c)
	case Progress:
		return progress(s, c)
	case Settle:
		return settle(s, c)
	case Expire:
		return expire(s, c)
	case Cancel:
		return s.end(Cancelled, c.Reason), nil
	case FetchSecret:
		return fetch(s, c)
	default:
		return nil, fmt.Errorf("agentcommand.Decide does not know %T", c)
	}
}

func request(s State, facts Requested) ([]Event, error) {
	switch {
	case len(facts.Payload) > MaxPayload:
		return nil, fault.Invalid(fault.Issue{Path: "payload", Message: fmt.Sprintf("at most %d bytes", MaxPayload)})
	case facts.Key == "" || facts.AgentCommand != IDOf(facts.Key):
		return nil, fault.Invalid(fault.Issue{Path: "key", Message: "a key, from which the id is derived"})
	case facts.NotAfter.IsZero():
		return nil, fault.Invalid(fault.Issue{Path: "notAfter", Message: "needed"})
	case !s.Exists():
		return []Event{facts}, nil
	case !same(s.Requested, facts):
		return nil, fault.New(fault.Conflict, "another agent command was asked for under the key %s", facts.Key).
			WithDetail("agentCommandId", s.AgentCommand.String())
	}
	return nil, nil
}

// same tells whether b asks for what a asked for. The deadline does not count: whoever asks again after a crash takes the
// time anew.
func same(a, b Requested) bool {
	return a.Key == b.Key && a.Kind == b.Kind && a.Role == b.Role && a.Node == b.Node && a.Tenant == b.Tenant &&
		a.Site == b.Site && a.Workflow == b.Workflow && a.Step == b.Step && a.Attempt == b.Attempt &&
		bytes.Equal(a.Payload, b.Payload) && slices.Equal(a.Secrets, b.Secrets)
}

func handOut(s State, c HandOut) ([]Event, error) {
	switch {
	case s.Status.Settled():
		return nil, over(s)
	case c.Now.After(s.NotAfter):
		return s.end(Expired, deadlinePassed), nil
	case s.Status == Pending && (id.IsZero(c.Agent) || c.BootID == ""):
		return nil, fault.Invalid(fault.Issue{Path: "bootId", Message: "needed, of an agent"})
	case s.Status == Pending:
		return []Event{HandedOut{Ref: s.ref(), Agent: c.Agent, BootID: c.BootID}}, nil
	case s.Agent != c.Agent || s.BootID != c.BootID:
		return nil, fault.New(fault.Conflict, "agent command %s was handed out already", s.AgentCommand)
	case s.Status != Dispatched: // it arrived; a process that was started again within the boot would do it a second time
		return nil, fault.New(fault.Conflict, "agent command %s was acknowledged already", s.AgentCommand)
	}
	return nil, nil
}

// rank orders the statuses of an order that is not over.
var rank = map[Status]int{Pending: 0, Dispatched: 1, Acked: 2, Running: 3}

func progress(s State, c Progress) ([]Event, error) {
	if c.Status != Acked && c.Status != Running {
		return nil, fault.Invalid(fault.Issue{Path: "status", Message: "acked or running"})
	}
	if err := s.with(c.Agent, c.BootID); err != nil {
		return nil, err
	}
	switch {
	case s.Status.Settled():
		return nil, over(s)
	case rank[c.Status] <= rank[s.Status]:
		return nil, nil
	}
	return []Event{Progressed{Ref: s.ref(), Status: c.Status}}, nil
}

func settle(s State, c Settle) ([]Event, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if err := s.with(c.Agent, c.BootID); err != nil {
		return nil, err
	}
	reason := Bound(c.Reason)
	switch {
	case s.Status == c.Status && bytes.Equal(s.Result, c.Result) && s.Code == c.Code && s.Reason == reason:
		return nil, nil
	case s.Status.Settled():
		return nil, over(s)
	}
	return []Event{Settled{
		Ref: s.ref(), Status: c.Status, BootID: c.BootID, Result: c.Result, Code: c.Code, Reason: reason,
		Details: c.Details, Attestation: c.Attestation, Attested: c.Attested,
	}}, nil
}

func (c Settle) check() error {
	const maxCode = 64
	var p problems
	p.need(c.Status == Succeeded || c.Status == Failed || c.Status == Rejected, "status", "one of succeeded, failed, rejected")
	p.need(len(c.Result)+len(c.Details) <= MaxPayload, "result", fmt.Sprintf("with the details at most %d bytes", MaxPayload))
	p.need(len(c.Code) <= maxCode, "code", fmt.Sprintf("at most %d bytes", maxCode))
	if len(p) > 0 {
		return fault.Invalid(p...)
	}
	return nil
}

const deadlinePassed = "its deadline passed"

func expire(s State, c Expire) ([]Event, error) {
	switch {
	case c.Now.After(s.NotAfter):
		return s.end(Expired, deadlinePassed), nil
	case c.BootID != "" && s.BootID != "" && c.BootID != s.BootID:
		return s.end(Expired, c.Reason), nil
	}
	return nil, nil
}

// end settles an order from the control plane's side; one that is over stays what it is.
func (s State) end(as Status, reason string) []Event {
	if s.Status.Settled() {
		return nil
	}
	return []Event{Settled{Ref: s.ref(), Status: as, BootID: s.BootID, Reason: Bound(reason)}}
}

func fetch(s State, c FetchSecret) ([]Event, error) {
	if err := s.with(c.Agent, c.BootID); err != nil {
		return nil, err
	}
	switch {
	case s.Status.Settled():
		return nil, over(s)
	case !slices.Contains(s.Secrets, c.Ref):
		return nil, fault.New(fault.NotFound, "agent command %s does not refer to that secret", s.AgentCommand)
	case s.Fetches >= MaxFetches:
		return nil, fault.New(fault.Forbidden, "agent command %s has fetched secrets %d times", s.AgentCommand, s.Fetches)
	}
	return []Event{SecretFetched{Ref: s.ref(), Agent: c.Agent, Secret: c.Ref}}, nil
}

// with refuses everybody but the boot of the agent that the order is with.
func (s State) with(agent id.Agent, bootID string) error {
	switch {
	case s.Agent != agent || id.IsZero(agent):
		return fault.New(fault.NotFound, "agent command %s is not with this agent", s.AgentCommand)
	case s.BootID != bootID:
		return fault.New(fault.Conflict, "agent command %s was handed to another boot of this agent", s.AgentCommand).
			WithRemedy("drop it: what an earlier boot was given is never carried out by a later one")
	}
	return nil
}

func over(s State) error {
	return fault.New(fault.InvalidState, "agent command %s is %s", s.AgentCommand, s.Status).
		WithDetail("status", string(s.Status)).WithRemedy("drop it")
}

func (s State) ref() Ref { return Ref{Node: s.Node, Workflow: s.Workflow} }

// Bound cuts a text to MaxReason bytes at a character. Bytes that are not UTF-8 become the replacement character, control
// characters a space.
func Bound(text string) string {
	return fault.Bounded(strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			return ' '
		}
		return r
	}, text), MaxReason)
}
