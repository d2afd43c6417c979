package commands

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// AgentCommandOutcome is what a verb did to an agent command.
type AgentCommandOutcome = Outcome[agentcommand.State]

// The verbs of this file are the process managers' and the agent gateway's: no HTTP route leads to them. Each gives its
// append a fresh command: agent commands say by themselves whether a repeat changes anything.

// RequestAgentCommand asks an agent for something, once: the id is derived from the key, and whoever asks for the same again
// finds what became of it. The payload is decoded into its kind's, unknown fields being refused; the secrets it refers to
// are noted. Errors: INVALID_CONFIG for a kind or role that is not known, INVALID_INPUT, CONFLICT for another request under
// the key.
func (s *Service) RequestAgentCommand(ctx context.Context, call Call, r agentcommand.Requested) (AgentCommandOutcome, error) {
	if !call.Actor.System {
		return AgentCommandOutcome{}, fault.New(fault.Forbidden, "only the control plane asks agents for something")
	}
	r, err := s.checkRequest(r)
	if err != nil {
		return AgentCommandOutcome{}, err
	}
	ask := s.agentCommandRequest(r.AgentCommand, func(agentcommand.State) (agentcommand.Command, error) {
		return agentcommand.Request{Facts: r}, nil
	})
	call.IfMatch, call.Command = nil, freshCommand()
	if _, known := cached[agentcommand.State](s.cache, ask.stream); !known { // most are new: append, and read only if not
		done, err := decideOnce(ctx, s, call, ask, loaded[agentcommand.State]{})
		if !lostRace(err) {
			return done, err
		}
	}
	return handle(ctx, s, call, ask)
}

func (s *Service) checkRequest(r agentcommand.Requested) (agentcommand.Requested, error) {
	kind, known := s.Kind(r.Kind)
	if !known {
		return r, fault.New(fault.InvalidConfig, "there is no kind of agent command named %q", string(r.Kind)).
			WithDetail("kind", string(r.Kind))
	}
	if !slices.Contains(kind.RunsOn, r.Role) {
		return r, fault.New(fault.InvalidConfig, "agent commands of kind %s do not run on role %q", r.Kind, string(r.Role)).
			WithDetail("kind", string(r.Kind))
	}
	if len(r.Payload) == 0 {
		r.Payload = json.RawMessage("{}")
	}
	payload := kind.Payload()
	if err := decodeStrictly(r.Payload, payload); err != nil {
		return r, fault.Invalid(fault.Issue{Path: "payload", Message: err.Error()})
	}
	if wrong := payload.Check(); len(wrong) > 0 {
		for i := range wrong {
			wrong[i].Path = "payload." + wrong[i].Path
		}
		return r, fault.Invalid(wrong...)
	}
	stored, err := canonical(r.Payload)
	if err != nil {
		return r, fault.Invalid(fault.Issue{Path: "payload", Message: "not JSON"})
	}
	r.Payload, r.Secrets = stored, secretRefs(stored)
	r.AgentCommand = agentcommand.IDOf(r.Key)
	r.NotAfter = r.NotAfter.UTC()
	return r, nil
}

// canonical gives JSON the form that the log keeps it in, so that what is signed is what is stored.
func canonical(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	return json.Marshal(raw)
}

func decodeStrictly(raw json.RawMessage, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.More() {
		return errTrailing
	}
	return nil
}

var errTrailing = errors.New("something follows the JSON")

// secretRefs lists the references to secrets anywhere in a payload, sorted.
func secretRefs(payload json.RawMessage) []string {
	var value any
	if json.Unmarshal(payload, &value) != nil {
		return nil
	}
	var refs []string
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			if strings.HasPrefix(v, "secret:") {
				refs = append(refs, v)
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(value)
	slices.Sort(refs)
	return slices.Compact(refs)
}

// AgentCommand is an agent command as its stream has it. Errors: NOT_FOUND.
func (s *Service) AgentCommand(ctx context.Context, c id.AgentCommand) (agentcommand.State, event.Version, error) {
	if seen, known := cached[agentcommand.State](s.cache, agentcommand.StreamOf(c)); known && seen.state.Status.Settled() {
		return seen.state, seen.version, nil // nothing follows
	}
	now, err := load(ctx, s, agentcommand.Decider, agentcommand.StreamOf(c))
	if err == nil && !now.state.Exists() {
		err = fault.New(fault.NotFound, "there is no agent command %s", c)
	}
	return now.state, now.version, err
}

// HandOutAgentCommand gives an agent command to one boot of an agent. Of two who try at once one wins, the other gets
// CONFLICT. One whose deadline has passed expires instead, which the outcome tells.
func (s *Service) HandOutAgentCommand(ctx context.Context, call Call, c id.AgentCommand, to id.Agent, bootID string,
) (AgentCommandOutcome, error) {
	return s.onAgentCommand(ctx, call, c, agentcommand.HandOut{Agent: to, BootID: bootID, Now: s.clock()})
}

// ProgressAgentCommand tells that an agent has the order in its journal (acked), or works on it (running).
func (s *Service) ProgressAgentCommand(ctx context.Context, call Call, c id.AgentCommand, by id.Agent, bootID string,
	status agentcommand.Status,
) (AgentCommandOutcome, error) {
	return s.onAgentCommand(ctx, call, c, agentcommand.Progress{Agent: by, BootID: bootID, Status: status})
}

// SettleAgentCommand takes an agent's result. A signature is checked against the certificates that the agent ever had: one
// that does not hold is INVALID_INPUT and settles nothing. The result of an attested kind without a signature settles, and
// proves nothing. The same result again changes nothing; one that comes too late is INVALID_STATE.
func (s *Service) SettleAgentCommand(ctx context.Context, call Call, c id.AgentCommand, with agentcommand.Settle,
) (AgentCommandOutcome, error) {
	var err error
	if with.Result, err = canonical(with.Result); err != nil {
		return AgentCommandOutcome{}, fault.Invalid(fault.Issue{Path: "result", Message: "not JSON"})
	}
	if with.Details, err = canonical(with.Details); err != nil {
		return AgentCommandOutcome{}, fault.Invalid(fault.Issue{Path: "details", Message: "not JSON"})
	}
	call.IfMatch, call.Command = nil, freshCommand()
	return handle(ctx, s, call, s.agentCommandRequest(c, func(now agentcommand.State) (agentcommand.Command, error) {
		with.Attested = false
		if with.Attestation == nil || !now.Exists() || now.Status.Settled() || now.Agent != with.Agent {
			return with, nil // settle decides
		}
		err := s.verify(ctx, now, with)
		with.Attested = err == nil
		return with, err
	}))
}

// verify checks the signature of a result. What decides a transition is checked with the certificates as the log has them now.
func (s *Service) verify(ctx context.Context, now agentcommand.State, with agentcommand.Settle) error {
	if kind, known := s.Kind(now.Kind); !known || kind.Attested {
		ctx = Fresh(ctx)
	}
	by, known := remembered[agent.State](ctx, s, agent.StreamOf(with.Agent))
	if known && s.signed(now, with, by.state) == nil {
		return nil
	}
	by, err := read(ctx, s, agent.Decider, agent.StreamOf(with.Agent))
	if err != nil {
		return err
	}
	return s.signed(now, with, by.state)
}

func (s *Service) signed(now agentcommand.State, with agentcommand.Settle, by agent.State) error {
	return s.attest.Verify(now, with.BootID, with.Result, *with.Attestation, by.Certificates, s.clock())
}

// ExpireAgentCommand ends an agent command whose deadline has passed, or which another boot than bootID of its agent was
// given. Where neither is so, or it is over, nothing changes.
func (s *Service) ExpireAgentCommand(ctx context.Context, call Call, c id.AgentCommand, bootID, reason string,
) (AgentCommandOutcome, error) {
	return s.onAgentCommand(ctx, call, c, agentcommand.Expire{Now: s.clock(), BootID: bootID, Reason: reason})
}

// CancelAgentCommand ends an agent command. One that is over stays what it is.
func (s *Service) CancelAgentCommand(ctx context.Context, call Call, c id.AgentCommand, reason string,
) (AgentCommandOutcome, error) {
	return s.onAgentCommand(ctx, call, c, agentcommand.Cancel{Reason: reason})
}

// FetchSecret records that an agent is given a value. Errors: NOT_FOUND unless the agent command is with that agent and
// refers to the value, CONFLICT for another boot, INVALID_STATE where it is over.
func (s *Service) FetchSecret(ctx context.Context, call Call, c id.AgentCommand, by id.Agent, bootID, ref string) error {
	_, err := s.onAgentCommand(ctx, call, c, agentcommand.FetchSecret{Agent: by, BootID: bootID, Ref: ref})
	return err
}

func (s *Service) onAgentCommand(ctx context.Context, call Call, c id.AgentCommand, do agentcommand.Command,
) (AgentCommandOutcome, error) {
	call.IfMatch, call.Command = nil, freshCommand()
	return handle(ctx, s, call, s.agentCommandRequest(c, func(agentcommand.State) (agentcommand.Command, error) { return do, nil }))
}

func (s *Service) agentCommandRequest(c id.AgentCommand, decide func(agentcommand.State) (agentcommand.Command, error),
) request[agentcommand.State, agentcommand.Command, agentcommand.Event] {
	return request[agentcommand.State, agentcommand.Command, agentcommand.Event]{
		decider:   agentcommand.Decider,
		stream:    agentcommand.StreamOf(c),
		authorize: func(agentcommand.State) error { return nil }, // the control plane's own
		decide:    func(now agentcommand.State, _ event.Version) (agentcommand.Command, error) { return decide(now) },
		meta: func(now agentcommand.State) event.Meta {
			return event.Meta{Tenant: now.Tenant.String(), Subject: "node/" + now.Node.String()}
		},
	}
}
