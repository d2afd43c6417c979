package commands

import (
	"context"

	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/principal"
)

// AgentOutcome is what a verb did to an agent.
type AgentOutcome = Outcome[agent.State]

// AgentOf is the agent of a node: in the ramdisk and in the installed OS it is the same.
func AgentOf(n id.Node) id.Agent { return agent.Of(n) }

// Agent is an agent as its stream has it, with every certificate it ever had. Errors: NOT_FOUND.
func (s *Service) Agent(ctx context.Context, a id.Agent) (agent.State, error) {
	now, err := load(ctx, s, agent.Decider, agent.StreamOf(a))
	if err == nil && !now.state.Exists() {
		err = noAgent(a)
	}
	return now.state, err
}

func noAgent(a id.Agent) error { return fault.New(fault.NotFound, "there is no agent %s", a) }

// OpenSession says that one boot of an agent runs. Errors: UNAUTHENTICATED for a certificate that is not, or no longer, the
// agent's; FORBIDDEN for another role than it was issued for, and for an installed OS that the node is being taken from.
func (s *Service) OpenSession(ctx context.Context, call Call, a id.Agent, fingerprint string, role agent.Role, bootID, version string,
) (agent.State, error) {
	if role == agent.RoleNode {
		who, err := s.Agent(ctx, a)
		if err == nil {
			err = s.osWelcome(ctx, who.Node)
		}
		if err != nil && fault.CodeOf(err) != fault.NotFound {
			return agent.State{}, err
		}
	}
	done, err := s.onAgent(ctx, call, a, agent.OpenSession{
		Fingerprint: fingerprint, Role: role, BootID: bootID, Version: version, Now: s.clock(),
	})
	return done.State, err
}

// osWelcome refuses an installed OS of a node that is being wiped or was given back: an old OS that boots once more must not
// be taken for the machine coming back.
func (s *Service) osWelcome(ctx context.Context, n id.Node) error {
	now, err := load(ctx, s, node.Decider, node.StreamOf(n))
	if err != nil {
		return err
	}
	if !runsOS(now.state.Provision) && !failedWithOS(now.state) {
		return turnedAway(now.state)
	}
	return nil
}

// runsOS tells whether an installed OS may run in a state.
func runsOS(in node.ProvisionState) bool {
	switch in {
	case node.Joined, node.Adopted, node.Deploying, node.Deployed, node.Rescue:
		return true
	default:
		return false
	}
}

func failedWithOS(state node.State) bool {
	return state.Provision == node.Failed && runsOS(state.FailedFrom)
}

func turnedAway(state node.State) error {
	return fault.New(fault.Forbidden, "no installed OS is expected on a node in %s", state.Provision).
		WithDetail("state", string(state.Provision)).WithRemedy("stay silent: the machine is being taken back")
}

// RenewCertificate records a certificate that an agent asked for with a present one, given by its fingerprint. The present
// one is good until the new one is used.
func (s *Service) RenewCertificate(ctx context.Context, call Call, a id.Agent, with string, issued agent.Certificate,
) (agent.State, error) {
	done, err := s.onAgent(ctx, call, a, agent.Renew{With: with, Certificate: issued, Now: s.clock()})
	return done.State, err
}

// UseCertificate says that an agent has used a certificate. Only the first use of a renewed one changes anything.
func (s *Service) UseCertificate(ctx context.Context, call Call, a id.Agent, fingerprint string) (agent.State, error) {
	done, err := s.onAgent(ctx, call, a, agent.Use{Fingerprint: fingerprint, Now: s.clock()})
	return done.State, err
}

// RevokeAgent takes an agent's certificates away. It can join again with a fresh token. Decided on the agent's site.
func (s *Service) RevokeAgent(ctx context.Context, call Call, a id.Agent, reason string) (AgentOutcome, error) {
	who, err := s.Agent(ctx, a)
	if err != nil {
		return AgentOutcome{}, err
	}
	if err := s.auth.Allow(call.Actor, principal.TokensWrite, Resource{Kind: OnSite, Tenant: who.Tenant, Site: who.Site}); err != nil {
		if fault.CodeOf(err) == fault.NotFound {
			err = noAgent(a) // whoever may not see it does not hear of its site
		}
		return AgentOutcome{}, err
	}
	return s.revoke(ctx, call, a, reason)
}

// RevokeAgentsOf takes the certificates of a node's agent away. A node that never had an agent changes nothing.
func (s *Service) RevokeAgentsOf(ctx context.Context, call Call, n id.Node) error {
	_, err := s.RevokeAgent(ctx, call, AgentOf(n), "the node is taken out")
	if fault.CodeOf(err) == fault.NotFound {
		return nil
	}
	return err
}

// revokeAgentsOf is RevokeAgentsOf where it was decided on the node.
func (s *Service) revokeAgentsOf(ctx context.Context, call Call, n id.Node) error {
	_, err := s.revoke(ctx, call, AgentOf(n), "the node is retired")
	return err
}

func (s *Service) revoke(ctx context.Context, call Call, a id.Agent, reason string) (AgentOutcome, error) {
	return s.onAgent(ctx, call, a, agent.Revoke{Reason: reason, Now: s.clock()})
}

// onAgent applies a verb to an agent under a command of its own: agents say by themselves whether a repeat changes anything.
func (s *Service) onAgent(ctx context.Context, call Call, a id.Agent, c agent.Command) (AgentOutcome, error) {
	call.IfMatch, call.Command = nil, freshCommand()
	return handle(ctx, s, call, request[agent.State, agent.Command, agent.Event]{
		decider:   agent.Decider,
		stream:    agent.StreamOf(a),
		authorize: func(agent.State) error { return nil }, // by its certificate or token, or decided on the site
		decide:    func(agent.State, event.Version) (agent.Command, error) { return c, nil },
		meta: func(state agent.State) event.Meta {
			return event.Meta{Tenant: state.Tenant.String(), Subject: "agent/" + state.ID.String()}
		},
	})
}
