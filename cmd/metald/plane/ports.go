package plane

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/jointoken"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/processmanagers/steps"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/agents"
)

// keyed derives an id from a step's key, so that a step that runs again finds what it made.
func keyed(what, key string) uuid.UUID { return uuid.NewSHA1(stepKeys, []byte(what+":"+key)) }

var stepKeys = uuid.MustParse("5b1d3a52-6a06-5c2c-a1ce-0e8f0f4b7f6d")

// system is a verb of the control plane's own.
func system(command uuid.UUID) commands.Call {
	return commands.Call{Actor: commands.Actor{System: true}, Command: command}
}

// stepTokens mints join tokens for steps.
type stepTokens struct {
	service *commands.Service
	clock   commands.Clock
}

// Mint implements steps.Tokens.
func (s stepTokens) Mint(ctx context.Context, t steps.JoinToken) (id.JoinToken, string, error) {
	minted, token, err := s.service.MintJoinToken(ctx, system(keyed("join-token", t.Key)), jointoken.Minted{
		Role: jointoken.Role(t.Role), Tenant: t.Node.Tenant, Site: t.Node.Site, Node: t.Node.ID, Workflow: t.Workflow,
		Expect:    jointoken.Expect{MACs: t.MACs, ProductUUID: t.UUID, Serial: t.Serial},
		ExpiresAt: s.clock().Add(t.TTL), MaxUses: 1,
	})
	return minted.State.Token, token, err
}

// stepSecrets keeps what steps hand out.
type stepSecrets struct{ store *postgres.Secrets }

// Put implements steps.Secrets.
func (s stepSecrets) Put(ctx context.Context, key string, value []byte, until time.Time) (node.SecretRef, error) {
	return s.store.PutUntil(ctx, keyed("secret", key), value, until)
}

// stepImages finds images for steps.
type stepImages struct{ service *commands.Service }

// Resolve implements steps.Images.
func (s stepImages) Resolve(ctx context.Context, tenant id.Tenant, ref string) (steps.Image, error) {
	found, err := s.service.ResolveImage(ctx, tenant, ref)
	if err != nil {
		return steps.Image{}, err
	}
	return steps.Image{
		ID: found.Image, Name: found.Ref().String(), URL: found.URL, Digest: found.Digest, Format: found.Format,
		Bytes: found.Bytes, Signature: found.Signature, Signer: found.SignerKey,
	}, nil
}

// stepAgents tells steps which agents there are.
type stepAgents struct {
	service  *commands.Service
	db       projections.DB
	presence *postgres.Presence
	clock    func() time.Time
}

// OfNode implements steps.Agents.
func (s stepAgents) OfNode(ctx context.Context, n id.Node) (steps.Session, error) {
	of := commands.AgentOf(n)
	now, err := s.service.Agent(ctx, of)
	if fault.CodeOf(err) == fault.NotFound {
		return steps.Session{}, nil
	}
	if err != nil {
		return steps.Session{}, err
	}
	session := steps.Session{Agent: of, Role: agentcommand.Role(now.Role), BootID: now.BootID, OpenedAt: now.SessionAt}
	seen, err := agents.SeenOf(ctx, s.db, of)
	if err != nil { // a database that is away fails no step
		return steps.Session{}, postgres.Fault(err)
	}
	if seen.BootID == now.BootID && seen.Role == now.Role {
		session.Connected, session.Silent = seen.Connected, seen.Silent
	} else { // signs of life are written now and then: of a session that has just been opened, its event is the first
		session.Connected = now.Revoked == "" && s.clock().Sub(now.SessionAt) < agents.Alive
	}
	return session, nil
}

// SiteAgents implements steps.Agents.
func (s stepAgents) SiteAgents(ctx context.Context, at id.Site) ([]id.Agent, error) {
	there, err := agents.SiteAgents(ctx, s.db, at)
	return there, postgres.Fault(err)
}

// SiteBoots implements steps.Agents.
func (s stepAgents) SiteBoots(ctx context.Context, at id.Site) (bool, error) {
	is, err := agents.Boots(ctx, s.db, at)
	return is, postgres.Fault(err)
}

// Down implements steps.Agents. A contact from before it does not undo it.
func (s stepAgents) Down(ctx context.Context, _ id.Node, ended steps.Session) error {
	return s.presence.Write(ctx, []agents.Contact{{
		Agent: ended.Agent, BootID: ended.BootID, Role: agent.Role(ended.Role), Closed: "taken down",
	}}, nil)
}

// Revoke implements steps.Agents.
func (s stepAgents) Revoke(ctx context.Context, n id.Node, _ string) error {
	return s.service.RevokeAgentsOf(ctx, system(uuid.Nil), n)
}
