package agentapi

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/pki"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// caller is an agent whose certificate is good.
type caller struct {
	agent.State
	certificate agent.Certificate
}

// mostAgents bounds what the cache holds; agentTrust is how long, whatever the log says.
const (
	mostAgents = 65_536
	agentTrust = 5 * time.Minute
)

// agentCache keeps agents by id, so that a call of a known one costs no query. Every event of an agent takes it out.
type agentCache struct {
	mu     sync.Mutex
	agents map[string]cachedAgent
	owners map[string]id.Agent // by fingerprint, of certificates that were checked
	turn   uint64              // counts what was taken out
}

type cachedAgent struct {
	state agent.State
	until time.Time
}

func newAgentCache() *agentCache {
	return &agentCache{agents: map[string]cachedAgent{}, owners: map[string]id.Agent{}}
}

func (c *agentCache) get(a id.Agent, now time.Time) (state agent.State, turn uint64, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept, found := c.agents[a.String()]
	return kept.state, c.turn, found && now.Before(kept.until)
}

// put keeps an agent as it was read at a turn, unless events came since.
func (c *agentCache) put(state agent.State, turn uint64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if turn != c.turn {
		return
	}
	if len(c.agents) >= mostAgents {
		clear(c.agents)
	}
	c.agents[state.ID.String()] = cachedAgent{state: state, until: now.Add(agentTrust)}
}

func (c *agentCache) forget(a string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn++
	delete(c.agents, a)
}

func (c *agentCache) owner(fingerprint string) (id.Agent, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, known := c.owners[fingerprint]
	return a, known
}

func (c *agentCache) own(fingerprint string, a id.Agent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.owners) >= mostAgents {
		clear(c.owners)
	}
	c.owners[fingerprint] = a
}

// agent reads an agent, from memory where it is known there.
func (g *Gateway) agent(ctx context.Context, a id.Agent, fresh bool) (agent.State, error) {
	state, turn, found := g.known.get(a, g.Clock())
	if found && !fresh {
		return state, nil
	}
	if !fresh {
		ctx = g.asOf(ctx)
	}
	state, err := g.Service.Agent(ctx, a)
	if err == nil {
		g.known.put(state, turn, g.Clock())
	}
	return state, err
}

// asOf has aggregates read that are as new as what this gateway knows of the log.
func (g *Gateway) asOf(ctx context.Context) context.Context {
	return commands.AsOf(ctx, event.Position(g.read.Load()))
}

// credential judges a certificate: agent.State's Authenticates or MayRenew.
type credential func(s agent.State, fingerprint string, now time.Time) (agent.Certificate, error)

// whois finds who calls, by the certificate of the connection. Errors: UNAUTHENTICATED.
func (g *Gateway) whois(r *http.Request, is credential) (caller, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return caller{}, fault.New(fault.Unauthenticated, "a client certificate is needed").WithRemedy("join first")
	}
	shown := r.TLS.PeerCertificates[0]
	fingerprint := pki.Fingerprint(shown.Raw)
	a, known := g.known.owner(fingerprint)
	if !known {
		var err error
		if a, err = g.CA.AgentIn(shown); err != nil {
			return caller{}, err
		}
		g.known.own(fingerprint, a)
	}
	return g.authenticate(r.Context(), a, fingerprint, is)
}

// authenticate checks that a certificate is one of the agent's present ones. The first use of a renewed one is recorded.
func (g *Gateway) authenticate(ctx context.Context, a id.Agent, fingerprint string, is credential) (caller, error) {
	state, err := g.agent(ctx, a, false)
	if err != nil {
		return caller{}, unknownAgent(err)
	}
	now := g.Clock()
	with, err := is(state, fingerprint, now)
	if err != nil { // what is remembered may be older than a join at another gateway
		if state, err = g.agent(ctx, a, true); err != nil {
			return caller{}, unknownAgent(err)
		}
		if with, err = is(state, fingerprint, now); err != nil {
			return caller{}, err
		}
	}
	if state.InUse(with.Role) != fingerprint && !now.After(with.NotAfter) {
		if state, err = g.Service.UseCertificate(ctx, g.call(a), a, fingerprint); err != nil {
			return caller{}, err
		}
		g.known.forget(a.String())
	}
	return caller{State: state, certificate: with}, nil
}

func unknownAgent(err error) error {
	if fault.CodeOf(err) == fault.NotFound {
		return fault.New(fault.Unauthenticated, "the agent is not known").WithRemedy("join again with a fresh token")
	}
	return err
}

// inSession refuses a boot that is not the one of the newest session.
func (c caller) inSession(bootID string) error {
	if c.BootID == "" || c.BootID != bootID {
		return fault.New(fault.Conflict, "this boot has no session, or another boot of the agent has opened one since").
			WithRemedy("open a session; drop the orders of earlier boots")
	}
	return nil
}

// inRole refuses a certificate of another role than that of the newest session.
func (c caller) inRole() error {
	if c.certificate.Role != c.Role {
		return fault.New(fault.Conflict, "the agent's session is of role %s, and the certificate of role %s", c.Role, c.certificate.Role).
			WithRemedy("open a session; drop the orders of earlier boots")
	}
	return nil
}

// call is the gateway asking for an agent.
func (g *Gateway) call(a id.Agent) commands.Call {
	return commands.Call{Actor: commands.Actor{System: true, Agent: a}, Command: uuid.Must(uuid.NewV7())}
}
