// Package agentapi is the gateway that agents talk to: they join, open a session, wait for orders and report what came of
// them. The words are those of adapters/agentapi/protocol; schema/agent-protocol.md is the contract.
//
// Any number of gateways may run over one log. Each follows it and holds what is not over in memory, so that a poll costs no
// query and is answered within milliseconds of a new agent command. Who gets an order, the append decides.
package agentapi

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/adapters/pki"
	"github.com/better-compute/metal/adapters/ratelimit"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/bootlease"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/agents"
)

// Secrets opens what orders refer to.
type Secrets interface {
	Get(ctx context.Context, ref node.SecretRef) ([]byte, error)
}

// Presence keeps signs of life, which are no events.
type Presence interface {
	Write(ctx context.Context, contacts []agents.Contact, progress []agents.Progress) error
	// SwapBootLeases writes each lease if nobody has written it since it was read, by its revision, and tells how they and those
	// of the sites in look stand.
	SwapBootLeases(ctx context.Context, next []bootlease.Lease, look []id.Site) ([]bootlease.Standing, error)
}

// Observer is told what the gateway does, for meters. Its methods return at once.
type Observer interface {
	Served(route string, status int, took time.Duration)
	Refused(code string)                           // a join, by its error code
	HandedOut(kind string)                         // an order, also one that is given again
	Settled(kind string, status string, err error) // a result; err is why it was refused
	BootLease(change string)                       // taken or released
}

// Config is what a gateway needs.
type Config struct {
	Service  *commands.Service
	Log      event.Store
	DB       projections.DB // of the read model agentqueue
	Presence Presence
	CA       *pki.CA
	Secrets  Secrets
	Clock    func() time.Time // nil: time.Now
	Logger   *slog.Logger     // nil: slog.Default
	Observer Observer         // nil: nobody is told

	PollMax     time.Duration // how long a poll stays open, a minute at most; zero: 50 s
	Sending     time.Duration // how long a caller may take to send a body; zero: a minute
	Redeliver   time.Duration // when an order that was neither acked nor settled is given again; zero: 3 s
	AgentLife   time.Duration // of certificates; zero: pki.AgentLife
	FailedJoins int           // that an address may make at once, then one a second; zero: 20
}

// maxPoll keeps a poll well within agents.Alive: its beginning and its end are the signs of life.
const maxPoll = time.Minute

// How often an agent may join, renew and boot.
const (
	changeBurst  = 20
	changeRefill = 30 * time.Second
	mostLimited  = 8192 // addresses, and agents, that are remembered: a limit only keeps the log and the processors free
)

func (c Config) complete() Config {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Observer == nil {
		c.Observer = nobody{}
	}
	if c.PollMax <= 0 {
		c.PollMax = 50 * time.Second
	}
	c.PollMax = min(c.PollMax, maxPoll)
	if c.Sending <= 0 {
		c.Sending = time.Minute
	}
	if c.Redeliver <= 0 {
		c.Redeliver = 3 * time.Second
	}
	if c.AgentLife <= 0 {
		c.AgentLife = pki.AgentLife
	}
	if c.FailedJoins <= 0 {
		c.FailedJoins = 20
	}
	return c
}

type nobody struct{}

func (nobody) Served(string, int, time.Duration) {}
func (nobody) Refused(string)                    {}
func (nobody) HandedOut(string)                  {}
func (nobody) Settled(string, string, error)     {}
func (nobody) BootLease(string)                  {}

// Gateway answers agents. It is made by New and ended by Close.
type Gateway struct {
	Config
	queue    *queue
	known    *agentCache
	presence *presence
	leases   *leases
	attempts *ratelimit.Limiter[netip.Prefix] // joins that failed
	changes  *ratelimit.Limiter[id.Agent]     // what makes events of an agent's stream
	router   http.Handler

	read    atomic.Uint64 // position up to which the log was taken in
	loaded  chan struct{} // closed when the queue is as the log has it
	closing chan struct{} // closed by Close: polls are answered
	end     context.CancelFunc
	parts   sync.WaitGroup
	once    sync.Once
}

// New starts a gateway: it begins to follow the log. It answers nothing until its Handler is served.
func New(c Config) (*Gateway, error) {
	if c.Service == nil || c.Log == nil || c.DB == nil || c.Presence == nil || c.CA == nil || c.Secrets == nil {
		return nil, errors.New("a gateway needs a service, a log, a database, presence, an authority and secrets")
	}
	c = c.complete()
	ctx, end := context.WithCancel(context.Background())
	g := &Gateway{
		Config: c, queue: newQueue(), known: newAgentCache(), presence: newPresence(), leases: newLeases(),
		attempts: ratelimit.New[netip.Prefix](c.FailedJoins, time.Second, mostLimited),
		changes:  ratelimit.New[id.Agent](changeBurst, changeRefill, mostLimited),
		loaded:   make(chan struct{}), closing: make(chan struct{}), end: end,
	}
	g.router = g.routes()
	g.parts.Go(func() { g.follow(ctx) })
	g.parts.Go(func() { g.sweep(ctx) })
	g.parts.Go(func() { g.flush(ctx) })
	g.parts.Go(func() { g.keepLeases(ctx) })
	return g, nil
}

// Handler answers the paths of protocol.
func (g *Gateway) Handler() http.Handler { return g.router }

func (g *Gateway) routes() http.Handler {
	r := chi.NewRouter()
	r.Use(g.observe)
	r.Post(protocol.PathJoin, handle(g, smallBody, g.join))
	r.Post(protocol.PathSession, authenticated(g, smallBody, g.session))
	r.Post(protocol.PathPoll, working(g, listBody, g.poll))
	r.Post(protocol.PathAck, working(g, listBody, g.ack))
	r.Post(protocol.PathProgress, working(g, smallBody, g.progress))
	r.Post(protocol.PathResult, working(g, resultBody, g.result))
	r.Post(protocol.PathSecret, working(g, smallBody, g.secret))
	r.Post(protocol.PathRenew, by(g, agent.State.MayRenew, smallBody, g.renew))
	r.Post(protocol.PathClose, working(g, smallBody, g.closeSession))
	r.NotFound(func(w http.ResponseWriter, _ *http.Request) { writeProblem(w, http.StatusNotFound, errNoPath) })
	r.MethodNotAllowed(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allow", http.MethodPost)
		writeProblem(w, http.StatusMethodNotAllowed, errPostOnly)
	})
	return r
}

// TLSConfig is for a server that agents reach under names: DNS names and IP addresses. Agents show their certificates, which
// the gateway checks itself, so that one that has expired is told so.
func (g *Gateway) TLSConfig(names ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, GetCertificate: g.CA.ServerCertificate(names...),
		ClientAuth: tls.RequestClientCert, ClientCAs: g.CA.Pool(), NextProtos: []string{"h2", "http/1.1"},
	}
}

// Waiting is how many polls wait, for meters.
func (g *Gateway) Waiting() int { return g.queue.waiting() }

// Boots is at how many sites an agent that polls here serves network boot, for meters.
func (g *Gateway) Boots() int { return g.leases.holding(g.Clock()) }

// Drain answers every poll that waits and every later one at once, so that the server can shut down.
func (g *Gateway) Drain() { g.once.Do(func() { close(g.closing) }) }

// Close drains the polls, ends what runs and writes the last signs of life. It returns when that is done, or with the error
// of a context that ends before.
func (g *Gateway) Close(ctx context.Context) error {
	g.Drain()
	g.end()
	done := make(chan struct{})
	go func() {
		g.parts.Wait()
		close(done)
	}()
	select {
	case <-done:
		return g.writePresence(ctx, true)
	case <-ctx.Done():
		return ctx.Err()
	}
}
