package agentapi

import (
	"context"
	"net/http"

	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/adapters/pki"
	"github.com/better-compute/metal/adapters/ratelimit"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// join lets an agent in by a token. Attempts that fail are counted by address.
func (g *Gateway) join(r *http.Request, in protocol.JoinRequest) (protocol.JoinAnswer, error) {
	address := ratelimit.Address(r.RemoteAddr)
	if err := g.attempts.Check(address, g.Clock(), "too many joins from this address have failed"); err != nil {
		return protocol.JoinAnswer{}, err
	}
	answer, err := g.joined(r.Context(), in)
	switch fault.CodeOf(err) {
	case fault.Unauthenticated, fault.Forbidden, fault.InvalidInput:
		g.attempts.Spend(address, g.Clock())
	}
	if err != nil {
		g.Observer.Refused(string(fault.CodeOf(err)))
	}
	return answer, err
}

func (g *Gateway) joined(ctx context.Context, in protocol.JoinRequest) (protocol.JoinAnswer, error) {
	key, err := pki.RequestKey(in.CSR)
	if err != nil {
		return protocol.JoinAnswer{}, err
	}
	if err := checkClaims(in.Claims); err != nil {
		return protocol.JoinAnswer{}, err
	}
	var issued pki.Issued
	who, err := g.Service.Join(ctx, g.call(id.Agent{}), commands.JoinFacts{
		Token: in.Token, Role: agent.Role(in.Role), Claims: agent.Claims(in.Claims), Name: in.Name, Version: in.Version, PublicKey: key,
		Issue: func(a id.Agent, n id.Node, role agent.Role) (agent.Certificate, error) {
			if err := g.change(a); err != nil {
				return agent.Certificate{}, err
			}
			issued, err = g.CA.IssueAgent(key, a, n, role, g.AgentLife)
			return issued.Certificate, err
		},
	})
	if err != nil {
		return protocol.JoinAnswer{}, err
	}
	answer := protocol.JoinAnswer{AgentID: who.ID.String(), SiteID: who.Site.String(), Certificate: g.answer(issued)}
	if !id.IsZero(who.Node) {
		answer.NodeID = who.Node.String()
	}
	return answer, nil
}

// checkClaims bounds what goes into the log.
func checkClaims(c protocol.Claims) error {
	const most, longest = 128, 128
	issue := func(path string) error {
		return fault.Invalid(fault.Issue{Path: "claims." + path, Message: "at most 128, of at most 128 bytes each"})
	}
	for path, list := range map[string][]string{"macs": c.MACs, "gpuUuids": c.GPUUUIDs, "serial": {c.Serial}, "productUuid": {c.ProductUUID}} {
		if len(list) > most {
			return issue(path)
		}
		for _, text := range list {
			if len(text) > longest {
				return issue(path)
			}
		}
	}
	return nil
}

func (g *Gateway) answer(i pki.Issued) protocol.Certificate {
	return protocol.Certificate{
		Certificate: i.DER, CA: g.CA.Certificate(), NotAfter: i.Certificate.NotAfter, RenewAfter: i.RenewAfter,
	}
}

// change counts what makes an event of an agent's stream, and refuses an agent that does so without end.
func (g *Gateway) change(a id.Agent) error {
	now := g.Clock()
	if err := g.changes.Check(a, now, "the agent joins, renews or boots too often"); err != nil {
		return err
	}
	g.changes.Spend(a, now)
	return nil
}

// renew gives an agent a certificate of a fresh key. The one it has is good until the new one is used.
func (g *Gateway) renew(ctx context.Context, who caller, in protocol.RenewRequest) (protocol.Certificate, error) {
	key, err := pki.RequestKey(in.CSR)
	if err != nil {
		return protocol.Certificate{}, err
	}
	if err := g.change(who.ID); err != nil {
		return protocol.Certificate{}, err
	}
	issued, err := g.CA.IssueAgent(key, who.ID, who.Node, who.certificate.Role, g.AgentLife)
	if err != nil {
		return protocol.Certificate{}, err
	}
	_, err = g.Service.RenewCertificate(ctx, g.call(who.ID), who.ID, who.certificate.Fingerprint, issued.Certificate)
	g.known.forget(who.ID.String())
	return g.answer(issued), err
}
