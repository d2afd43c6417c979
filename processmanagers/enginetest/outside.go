package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/processmanagers/steps"
)

// Answer is what an agent makes of an agent command.
type Answer struct {
	Silent bool                // it does not answer, now or later, until it is asked again by another command
	Status agentcommand.Status // empty: succeeded
	Result any
	Code   string
	Reason string
	// Details are JSON, of a failure.
	Details json.RawMessage
	Signed  bool // the result is attested
	// Boot is the boot that the machine's agent is in afterwards; empty: as before. The agent command is then left unanswered
	// where it was the machine's own agent that had it.
	Boot string
	Role agentcommand.Role
}

// answer has an agent answer one agent command, the oldest first.
func (w *World) answer() bool {
	for len(w.orders) > 0 {
		c := w.orders[0]
		w.orders = w.orders[1:]
		state, _, err := w.Outside.AgentCommand(context.Background(), c)
		w.must(err)
		if state.Status.Settled() {
			continue
		}
		a := Answer{Result: map[string]any{}}
		if w.Options.Answer != nil {
			a = w.Options.Answer(w, state)
		}
		if a.Silent {
			continue
		}
		w.carryOut(state, a)
		return true
	}
	return false
}

func (w *World) carryOut(c agentcommand.State, a Answer) { w.must(CarryOut(w.Outside, w.Agents, c, a)) }

// CarryOut has an agent take an agent command and give its answer.
func CarryOut(service *commands.Service, agents *Agents, c agentcommand.State, a Answer) error {
	who, boot := agents.SiteAgent, "site-boot"
	own := c.Role != agentcommand.RoleSite
	if own {
		session, err := agents.OfNode(context.Background(), c.Node)
		if err != nil {
			return err
		}
		who, boot = agent.Of(c.Node), session.BootID
	}
	ctx := context.Background()
	if _, err := service.HandOutAgentCommand(ctx, Operator(), c.AgentCommand, who, boot); err != nil {
		return fmt.Errorf("%s is not handed out: %w", c.Kind, err)
	}
	if a.Boot == "" || !own {
		if err := settle(ctx, service, c, a, who, boot); err != nil {
			return err
		}
	}
	if a.Boot != "" {
		return agents.open(c.Node, a.Role, a.Boot)
	}
	return nil
}

func settle(ctx context.Context, service *commands.Service, c agentcommand.State, a Answer, who id.Agent, boot string) error {
	s := agentcommand.Settle{Agent: who, BootID: boot, Status: a.Status, Code: a.Code, Reason: a.Reason, Details: a.Details}
	if s.Status == "" {
		s.Status = agentcommand.Succeeded
	}
	if a.Result != nil {
		raw, err := json.Marshal(a.Result)
		if err != nil {
			return err
		}
		s.Result = raw
	}
	if a.Signed {
		s.Attestation = &agentcommand.Attestation{Certificate: strings.Repeat("ab", 32), Signature: []byte("signed"), At: Began}
	}
	_, err := service.SettleAgentCommand(ctx, Operator(), c.AgentCommand, s)
	return err
}

// Agents is which agents there are.
type Agents struct {
	Site      bool // an agent of the site is connected
	SiteAgent id.Agent
	Revoked   int

	log      event.Store
	now      func() time.Time
	mu       sync.Mutex
	sessions map[id.Node]steps.Session
	gone     map[id.Node]time.Time // since when it is not heard of
}

// NewAgents makes a site with an agent, and machines without.
func NewAgents(log event.Store, now func() time.Time) *Agents {
	one := id.Of[id.Agent](uuid.NewSHA1(uuid.Nil, []byte("site agent")))
	return &Agents{Site: true, SiteAgent: one, log: log, now: now, sessions: map[id.Node]steps.Session{}, gone: map[id.Node]time.Time{}}
}

// Open says that a machine's agent runs in another boot or role.
func (a *Agents) Open(n id.Node, as agentcommand.Role, boot string) {
	if err := a.open(n, as, boot); err != nil {
		panic(err)
	}
}

func (a *Agents) open(n id.Node, as agentcommand.Role, boot string) error {
	a.mu.Lock()
	a.sessions[n] = steps.Session{Agent: agent.Of(n), Role: as, BootID: boot, OpenedAt: a.now(), Connected: true}
	delete(a.gone, n)
	a.mu.Unlock()
	stream := agent.StreamOf(agent.Of(n))
	before, err := a.log.Read(context.Background(), stream, 0)
	if err != nil {
		return err
	}
	_, err = a.log.Append(context.Background(), stream, event.Version(len(before)), event.Meta{Tenant: Tenant.String()},
		agent.SessionOpened{Agent: agent.Of(n), Node: n, Role: agent.Role(as), BootID: boot})
	return err
}

// Gone says that a machine's agent is not heard of any more.
func (a *Agents) Gone(n id.Node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessions[n]
	s.Connected = false
	a.sessions[n], a.gone[n] = s, a.now()
}

// OfNode implements steps.Agents.
func (a *Agents) OfNode(_ context.Context, n id.Node) (steps.Session, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessions[n]
	if since, gone := a.gone[n]; gone {
		s.Silent = a.now().Sub(since)
	}
	return s, nil
}

// SiteAgents implements steps.Agents.
func (a *Agents) SiteAgents(context.Context, id.Site) ([]id.Agent, error) {
	if a.Site {
		return []id.Agent{a.SiteAgent}, nil
	}
	return nil, nil
}

// SiteBoots implements steps.Agents.
func (a *Agents) SiteBoots(context.Context, id.Site) (bool, error) { return a.Site, nil }

// Down implements steps.Agents.
func (a *Agents) Down(_ context.Context, n id.Node, ended steps.Session) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.sessions[n]; s.BootID == ended.BootID {
		s.Connected = false
		a.sessions[n] = s
	}
	return nil
}

// Revoke implements steps.Agents.
func (a *Agents) Revoke(_ context.Context, n id.Node, _ string) error {
	a.Gone(n)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.Revoked++
	return nil
}

// Secrets keeps what steps put away and mints tokens, the same for the same key.
type Secrets struct {
	mu     sync.Mutex
	Values map[string]string // by reference
	Minted map[string]string // by key
}

// Put implements steps.Secrets.
func (s *Secrets) Put(_ context.Context, key string, value []byte, _ time.Time) (node.SecretRef, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Values == nil {
		s.Values = map[string]string{}
	}
	ref := node.SecretRef("secret:" + uuid.NewSHA1(uuid.Nil, []byte(key)).String())
	s.Values[string(ref)] = string(value)
	return ref, nil
}

// Mint implements steps.Tokens.
func (s *Secrets) Mint(_ context.Context, t steps.JoinToken) (id.JoinToken, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Minted == nil {
		s.Minted = map[string]string{}
	}
	s.Minted[t.Key] = "metaljoin-" + uuid.NewSHA1(uuid.Nil, []byte("token "+t.Key)).String()
	return id.Of[id.JoinToken](uuid.NewSHA1(uuid.Nil, []byte(t.Key))), s.Minted[t.Key], nil
}

// vault is the write side's store of secrets; a world has none to keep.
type vault struct{}

func (vault) Put(_ context.Context, of uuid.UUID, _ []byte) (node.SecretRef, error) {
	return node.SecretRef("secret:" + of.String()), nil
}

func (vault) Delete(context.Context, node.SecretRef) error { return nil }

func (vault) Mint(command uuid.UUID) string { return command.String() }

// Images has every image.
type Images struct{}

// Resolve implements steps.Images.
func (Images) Resolve(_ context.Context, _ id.Tenant, ref string) (steps.Image, error) {
	return steps.Image{
		ID: id.Of[id.Image](uuid.NewSHA1(uuid.Nil, []byte(ref))), Name: ref, URL: "https://images.example/" + ref,
		Digest: "sha256:" + strings.Repeat("5e", 32), Format: "raw", Bytes: 1 << 20,
	}, nil
}

// anyone may do anything.
type anyone struct{}

func (anyone) Allow(commands.Actor, principal.Action, commands.Resource) error { return nil }

// believer takes every signature.
type believer struct{}

func (believer) Verify(agentcommand.State, string, []byte, agentcommand.Attestation, []agent.Certificate, time.Time) error {
	return nil
}

// Mortal is the log of one process, which may die at one of its appends.
type Mortal struct {
	event.Store
	Appends int  // so far
	DieAt   int  // the append at which it dies; zero: it does not
	After   bool // the append is in the log, but nobody hears of it
	// Before is called before each append, with its number: another worker may act just then.
	Before func(n int)
	dead   bool
}

// Dead reports whether the process died.
func (m *Mortal) Dead() bool { return m.dead }

// Append implements event.Store.
func (m *Mortal) Append(ctx context.Context, s event.Stream, expect event.Version, meta event.Meta, events ...event.Event,
) (event.Position, error) {
	if m.dead {
		return 0, errDead
	}
	m.Appends++
	if m.Before != nil {
		m.Before(m.Appends)
	}
	if m.Appends != m.DieAt {
		return m.Store.Append(ctx, s, expect, meta, events...)
	}
	m.dead = true
	if m.After {
		if _, err := m.Store.Append(ctx, s, expect, meta, events...); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("%w: %w", event.ErrUnknownOutcome, errDead)
}

// Read implements event.Store.
func (m *Mortal) Read(ctx context.Context, s event.Stream, after event.Version) ([]event.Recorded, error) {
	if m.dead {
		return nil, errDead
	}
	return m.Store.Read(ctx, s, after)
}

// errDead is what a dead process hears of everything.
var errDead = errors.New("the process is dead")
