package agentapi

import (
	"context"
	"slices"

	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/adapters/pki"
	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/projections/agents"
)

// signerVersion is that of agentcommand.SigningInput.
const signerVersion = 1

// empty is the answer where there is nothing to say.
type empty struct{}

// session makes one boot of an agent the one that gets orders. What another boot of it was given is over.
func (g *Gateway) session(ctx context.Context, who caller, in protocol.SessionRequest) (protocol.SessionAnswer, error) {
	if who.BootID != in.BootID || who.Role != agent.Role(in.Role) {
		if err := g.change(who.ID); err != nil {
			return protocol.SessionAnswer{}, err
		}
	}
	state, err := g.Service.OpenSession(ctx, g.call(who.ID), who.ID, who.certificate.Fingerprint, agent.Role(in.Role), in.BootID, in.Version)
	if err != nil {
		return protocol.SessionAnswer{}, err
	}
	g.known.forget(who.ID.String())
	g.fence(ctx, state)
	g.presence.touch(agents.Contact{Agent: state.ID, BootID: state.BootID, Role: state.Role}, g.Clock())
	return protocol.SessionAnswer{
		PollSeconds: g.PollMax.Seconds(), ServerTime: g.Clock().UTC(), RenewAfter: pki.RenewAfter(who.certificate), SignerVersion: signerVersion,
	}, nil
}

// fence ends what another boot of the agent was given: it is never carried out by this one.
func (g *Gateway) fence(ctx context.Context, state agent.State) {
	if old := g.queue.ofOtherBoots(state.ID.String(), state.BootID); len(old) > 0 {
		g.expire(context.WithoutCancel(ctx), old, state.BootID, "the boot of the agent that had it is over")
	}
}

// closeSession notes that the agent leaves on purpose. Its orders stay: it may come back in the same boot.
func (g *Gateway) closeSession(ctx context.Context, who caller, in protocol.CloseRequest) (empty, error) {
	if err := who.inSession(in.BootID); err != nil {
		return empty{}, err
	}
	reason := in.Reason
	if !slices.Contains([]string{"shutdown", "kexec", "reboot", "upgrade"}, reason) {
		reason = "closed"
	}
	g.presence.touch(agents.Contact{Agent: who.ID, BootID: in.BootID, Role: who.Role, Closed: reason}, g.Clock())
	if who.Role == agent.RoleSite {
		g.leases.note(who, in.BootID, "", g.Clock())
		g.release(ctx, who, reason)
	}
	return empty{}, nil
}
