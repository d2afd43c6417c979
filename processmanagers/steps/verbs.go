package steps

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/jointoken"
	"github.com/better-compute/metal/domain/node"
)

// Presence tells what is known of agents that no event says: whether they are there now.
type Presence interface {
	// Heard tells of an agent; a zero value where nothing was ever heard.
	Heard(ctx context.Context, a id.Agent) (Heard, error)
	// SiteConnected reports whether an agent of the site was heard of lately.
	SiteConnected(ctx context.Context, s id.Site) (bool, error)
}

// Heard is the newest session of an agent that presence knows.
type Heard struct {
	BootID    string
	OpenedAt  time.Time
	Connected bool // heard of lately
}

// PortsOver makes the ports of steps of the write side. What steps do there the control plane does.
func PortsOver(s *commands.Service, kept commands.Secrets, p Presence, clock commands.Clock, config Config) Ports {
	v := verbs{service: s, clock: clock}
	return Ports{
		Commands: v, Tokens: v, Images: v, Nodes: v, Secrets: keeper{kept}, Agents: agents{v, p}, Config: config,
	}
}

// verbs are the ports that the write side answers by itself.
type verbs struct {
	service *commands.Service
	clock   commands.Clock
}

// call is the control plane's own. A command makes what the verb does findable for whoever asks again under the same key.
func call(command uuid.UUID) commands.Call {
	return commands.Call{Actor: commands.Actor{System: true}, Command: command}
}

// fresh is a call of a verb that says by itself whether a repeat changes anything.
func fresh() commands.Call { return call(uuid.Must(uuid.NewV7())) }

var (
	tokenKeys  = uuid.MustParse("c1b1f1c4-6a1f-5d0b-8a43-0f6f0f2b9d31")
	secretKeys = uuid.MustParse("2f9b7a53-30d4-5b0e-9d2a-6d4a3c5b8e72")
)

// Find implements AgentCommands.
func (v verbs) Find(ctx context.Context, key string) (agentcommand.State, error) {
	s, _, err := v.service.AgentCommand(ctx, agentcommand.IDOf(key))
	if fault.CodeOf(err) == fault.NotFound {
		return agentcommand.State{}, nil
	}
	return s, err
}

// Request implements AgentCommands.
func (v verbs) Request(ctx context.Context, r agentcommand.Requested) (agentcommand.State, error) {
	done, err := v.service.RequestAgentCommand(ctx, fresh(), r)
	return done.State, err
}

// Mint implements Tokens: the command that makes a token is derived from its key.
func (v verbs) Mint(ctx context.Context, t JoinToken) (id.JoinToken, string, error) {
	minted, token, err := v.service.MintJoinToken(ctx, call(uuid.NewSHA1(tokenKeys, []byte(t.Key))), jointoken.Minted{
		Role: jointoken.Role(t.Role), Node: t.Node.ID, Workflow: t.Workflow, MaxUses: 1, ExpiresAt: v.clock().Add(t.TTL),
		Expect: jointoken.Expect{MACs: t.MACs, ProductUUID: t.UUID, Serial: t.Serial},
	})
	return minted.Token, token, err
}

// Resolve implements Images.
func (v verbs) Resolve(ctx context.Context, tenant id.Tenant, ref string) (Image, error) {
	found, err := v.service.ResolveImage(ctx, tenant, ref)
	if err != nil {
		return Image{}, err
	}
	return Image{
		ID: found.Image, Name: found.Ref().String(), URL: found.URL, Digest: found.Digest, Format: found.Format,
		Bytes: found.Bytes, Signature: found.Signature, Signer: found.SignerKey,
	}, nil
}

// RecordHardware implements Nodes.
func (v verbs) RecordHardware(ctx context.Context, n id.Node, from node.Source, h node.Hardware) error {
	_, err := v.service.RecordHardware(ctx, fresh(), n, from, h)
	return err
}

// AttestWipe implements Nodes.
func (v verbs) AttestWipe(ctx context.Context, n id.Node, w node.Wipe) error {
	_, err := v.service.AttestWipe(ctx, fresh(), n, w)
	return err
}

// ObservePower implements Nodes.
func (v verbs) ObservePower(ctx context.Context, n id.Node, p node.Power) error {
	_, err := v.service.ObservePower(ctx, fresh(), n, p)
	return err
}

// LearnBMC implements Nodes.
func (v verbs) LearnBMC(ctx context.Context, n id.Node, fingerprint string, quirks json.RawMessage, system string) error {
	_, err := v.service.LearnBMC(ctx, fresh(), n, node.BMCLearned{Fingerprint: fingerprint, Quirks: quirks, System: system})
	return err
}

// keeper is the store of secrets as steps see it.
type keeper struct{ store commands.Secrets }

// Put implements Secrets: the id of a value is derived from its key.
func (k keeper) Put(ctx context.Context, key string, value []byte) (node.SecretRef, error) {
	return k.store.Put(ctx, uuid.NewSHA1(secretKeys, []byte(key)), value)
}

// agents joins what the log says of agents with who is there now.
type agents struct {
	verbs
	Presence
}

// OfNode implements Agents. A session that presence does not know yet was opened this moment.
func (a agents) OfNode(ctx context.Context, n id.Node) (Session, error) {
	of := commands.AgentOf(n)
	known, err := a.service.Agent(ctx, of)
	switch {
	case fault.CodeOf(err) == fault.NotFound:
		return Session{}, nil
	case err != nil:
		return Session{}, err
	}
	s := Session{Agent: of, Role: agentcommand.Role(known.Role), BootID: known.BootID}
	if known.BootID == "" || known.Revoked != "" {
		return s, nil
	}
	heard, err := a.Heard(ctx, of)
	if err != nil {
		return s, err
	}
	if s.OpenedAt, s.Connected = heard.OpenedAt, heard.Connected; heard.BootID != known.BootID {
		s.OpenedAt, s.Connected = a.clock(), true
	}
	return s, nil
}

// Revoke implements Agents.
func (a agents) Revoke(ctx context.Context, n id.Node, _ string) error {
	return a.service.RevokeAgentsOf(ctx, fresh(), n)
}
