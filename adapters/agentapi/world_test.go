package agentapi_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/better-compute/metal/adapters/agentapi"
	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/adapters/authz"
	eventlog "github.com/better-compute/metal/adapters/eventstore/postgres"
	"github.com/better-compute/metal/adapters/pki"
	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/jointoken"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/tenant"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/agentqueue"
	"github.com/better-compute/metal/projections/agents"
	"github.com/better-compute/metal/test/pgtest"
)

// world is a control plane without its API: a log on PostgreSQL, the verbs, the authority, and gateways.
type world struct {
	*commands.Service
	t       *testing.T
	pool    *pgxpool.Pool
	log     event.Store
	secrets *postgres.Secrets
	ca      *pki.CA
	runner  *projections.Runner
	clock   *clock
	logged  *syncBuffer
	site    id.Site
	into    id.Pool
	nodes   int
}

// patience is how long a test waits for what should be there soon, on a busy computer.
const patience = 45 * time.Second

// clock is the real one, moved by the test, until the test stops it.
type clock struct {
	mu   sync.Mutex
	off  time.Duration
	from time.Time // it stands there, but for off; zero: it goes
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.from.IsZero() {
		return c.from.Add(c.off)
	}
	return time.Now().Add(c.off)
}

// stop lets no time pass but what the test moves the clock by: how long anything takes then changes nothing.
func (c *clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.from = time.Now()
}

// start lets it go on, from what the real one says.
func (c *clock) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.from = time.Time{}
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off += d
}

// syncBuffer is a log that tests look into.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, pool: pgtest.New(t), clock: &clock{}, logged: &syncBuffer{}}
	registry, err := commands.Registry()
	fatal(t, err)
	log, err := eventlog.New(t.Context(), w.pool, registry, eventlog.Options{})
	fatal(t, err)
	t.Cleanup(log.Close)
	w.log = log
	master, err := postgres.ParseMasterKey([]byte("a master key that is 32 bytes ..."[:32]))
	fatal(t, err)
	w.secrets, err = postgres.NewSecrets(t.Context(), w.pool, master)
	fatal(t, err)
	w.ca, err = pki.Open(t.Context(), w.secrets, w.clock.now)
	fatal(t, err)
	w.Service = w.service()
	w.runner, err = projections.NewRunner(w.pool, log, agentqueue.New(), agents.New())
	fatal(t, err)
	_, err = w.Bootstrap(t.Context())
	fatal(t, err)
	at, err := w.CreateSite(t.Context(), system(), commands.NewSite{Tenant: tenant.Root, Name: "fra"})
	fatal(t, err)
	p, err := w.CreatePool(t.Context(), system(), commands.NewPool{Tenant: tenant.Root, Site: at.State.ID, Name: "gpu", Policy: pool.Policy{}})
	fatal(t, err)
	w.site, w.into = at.State.ID, p.State.ID
	return w
}

func (w *world) service() *commands.Service {
	authorizer, err := authz.New()
	fatal(w.t, err)
	return commands.New(w.log, authorizer, w.secrets, w.clock.now)
}

// gateway is a gateway behind a real TLS server.
type gateway struct {
	*agentapi.Gateway
	server *http.Server
	url    string
	ended  chan struct{}
	once   sync.Once
}

func (w *world) gateway(change ...func(*agentapi.Config)) *gateway {
	w.t.Helper()
	return w.serve(w.config(change...), "127.0.0.1:0")
}

func (w *world) config(change ...func(*agentapi.Config)) agentapi.Config {
	c := agentapi.Config{
		Service: w.service(), Log: w.log, DB: w.pool, Presence: postgres.NewPresence(w.pool), CA: w.ca, Secrets: w.secrets,
		Clock: w.clock.now, Logger: slog.New(slog.NewTextHandler(w.logged, nil)), PollMax: pollWait,
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

// serve serves a gateway at an address.
func (w *world) serve(c agentapi.Config, address string) *gateway {
	w.t.Helper()
	g, err := agentapi.New(c)
	fatal(w.t, err)
	listener, err := (&net.ListenConfig{}).Listen(w.t.Context(), "tcp", address)
	fatal(w.t, err)
	running := &gateway{Gateway: g, url: "https://" + listener.Addr().String(), ended: make(chan struct{})}
	running.server = &http.Server{
		Handler: g.Handler(), ReadHeaderTimeout: time.Second,
		ErrorLog:  slog.NewLogLogger(slog.NewTextHandler(w.logged, nil), slog.LevelDebug),
		TLSConfig: g.TLSConfig("127.0.0.1", "gateway.example"),
	}
	go func() {
		defer close(running.ended)
		_ = running.server.ServeTLS(listener, "", "")
	}()
	w.t.Cleanup(func() { running.stop(w.t) })
	return running
}

func (g *gateway) stop(t *testing.T) {
	g.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		g.Drain()
		if err := g.server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		<-g.ended
		if err := g.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}

// machine enrolls a node.
func (w *world) machine() id.Node {
	w.t.Helper()
	w.nodes++
	done, err := w.Enroll(w.t.Context(), system(), commands.Enrollment{Pool: w.into, BMC: commands.BMCAccess{
		Address: fmt.Sprintf("10.0.%d.%d", w.nodes/200, 1+w.nodes%200), Username: "root", Password: fmt.Sprintf("calvin-%d", w.nodes),
	}})
	fatal(w.t, err)
	return done.State.ID
}

func (w *world) token(facts jointoken.Minted) string {
	w.t.Helper()
	facts.ExpiresAt = w.clock.now().Add(time.Hour)
	_, token, err := w.MintJoinToken(w.t.Context(), system(), facts)
	fatal(w.t, err)
	return token
}

// ask asks for something, until in an hour.
func (w *world) ask(n id.Node, key string, change ...func(*agentcommand.Requested)) agentcommand.State {
	w.t.Helper()
	r := agentcommand.Requested{
		Key: key, Kind: agentcommand.DiskWipe, Role: agentcommand.RoleRamdisk, Node: n, Tenant: tenant.Root, Site: w.site, Attempt: 1,
		NotAfter: w.clock.now().Add(time.Hour), Payload: json.RawMessage(`{"method":"quick"}`),
	}
	for _, f := range change {
		f(&r)
	}
	done, err := w.RequestAgentCommand(w.t.Context(), system(), r)
	fatal(w.t, err)
	return done.State
}

func (w *world) status(c id.AgentCommand) agentcommand.Status {
	w.t.Helper()
	s, _, err := w.AgentCommand(w.t.Context(), c)
	fatal(w.t, err)
	return s.Status
}

// until waits for something that another goroutine does.
func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); !is(); {
		if time.Now().After(deadline) {
			w.t.Fatalf("it never came to: %s", what)
		}
		timer := time.NewTimer(2 * time.Millisecond)
		<-timer.C
	}
}

func system() commands.Call {
	return commands.Call{Actor: commands.Actor{System: true}, Command: uuid.Must(uuid.NewV7())}
}

func fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// agent speaks the protocol with nothing but HTTP.
type agent struct {
	t       *testing.T
	w       *world
	g       *gateway
	key     ed25519.PrivateKey
	boot    string
	role    agentcommand.Role
	answer  protocol.JoinAnswer
	client  *http.Client
	current tls.Certificate
}

func (w *world) agent(g *gateway, role agentcommand.Role) *agent {
	w.t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	fatal(w.t, err)
	a := &agent{t: w.t, w: w, g: g, key: key, boot: uuid.New().String(), role: role}
	a.reconnect()
	w.t.Cleanup(func() { a.client.CloseIdleConnections() })
	return a
}

// reconnect makes fresh connections, with the certificate that the agent has. It knows the authority by its fingerprint.
func (a *agent) reconnect() {
	if a.client != nil {
		a.client.CloseIdleConnections()
	}
	roots := x509.NewCertPool()
	authority, err := x509.ParseCertificate(a.w.ca.Certificate())
	fatal(a.t, err)
	roots.AddCert(authority)
	a.client = &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
		RootCAs: roots, MinVersion: tls.VersionTLS13,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &a.current, nil },
	}}}
}

func (a *agent) csr(key ed25519.PrivateKey) []byte {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	fatal(a.t, err)
	return der
}

// call sends one request; the code is that of the problem, empty for none.
func (a *agent) call(path string, in, out any) fault.Code {
	a.t.Helper()
	code, err := a.try(a.t.Context(), path, in, out)
	fatal(a.t, err)
	return code
}

func (a *agent) try(ctx context.Context, path string, in, out any) (fault.Code, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.g.url+path, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	response, err := a.client.Do(r)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		var p struct{ Code fault.Code }
		err := json.Unmarshal(text, &p)
		return p.Code, err
	}
	return "", json.Unmarshal(text, out)
}

func (a *agent) tryJoin(token string, claims protocol.Claims) fault.Code {
	a.t.Helper()
	code := a.call(protocol.PathJoin, protocol.JoinRequest{
		Token: token, Role: a.role, Claims: claims, CSR: a.csr(a.key), BootID: a.boot, Version: "1", Name: "host",
	}, &a.answer)
	if code == "" {
		a.current = tls.Certificate{Certificate: [][]byte{a.answer.Certificate.Certificate}, PrivateKey: a.key}
		a.reconnect()
	}
	return code
}

func (a *agent) trySession() fault.Code {
	a.t.Helper()
	var answer protocol.SessionAnswer
	return a.call(protocol.PathSession, protocol.SessionRequest{BootID: a.boot, Role: a.role, Version: "1"}, &answer)
}

func (a *agent) poll(wait time.Duration, doing ...string) protocol.PollAnswer {
	a.t.Helper()
	var answer protocol.PollAnswer
	if code := a.call(protocol.PathPoll, protocol.PollRequest{BootID: a.boot, WaitSeconds: wait.Seconds(), Room: 4, Doing: doing}, &answer); code != "" {
		a.t.Fatalf("poll: %s", code)
	}
	return answer
}

// one polls for exactly one order.
func (a *agent) one() protocol.Order {
	a.t.Helper()
	answer := a.poll(patience)
	if len(answer.Orders) != 1 {
		a.t.Fatalf("%d orders", len(answer.Orders))
	}
	return answer.Orders[0]
}

// signed is the result of an order, signed.
func (a *agent) signed(o protocol.Order, result string) protocol.ResultRequest {
	a.t.Helper()
	c, err := id.Parse[id.AgentCommand](o.ID)
	fatal(a.t, err)
	n, err := id.Parse[id.Node](o.NodeID)
	fatal(a.t, err)
	now := a.w.clock.now()
	input := agentcommand.SigningInput(c, o.Kind, n, o.Attempt, a.boot, o.Payload, []byte(result), now)
	sum := sha256.Sum256(a.current.Certificate[0])
	return protocol.ResultRequest{
		BootID: a.boot, ID: o.ID, Status: agentcommand.Succeeded, Result: json.RawMessage(result),
		Attestation: &agentcommand.Attestation{Certificate: hex.EncodeToString(sum[:]), Signature: ed25519.Sign(a.key, input), At: now},
	}
}

func (a *agent) settle(r protocol.ResultRequest) fault.Code {
	a.t.Helper()
	return a.call(protocol.PathResult, r, &struct{}{})
}

// ramdisk is an agent in a session, of a machine that was just enrolled.
func (w *world) ramdisk(g *gateway) (*agent, id.Node) {
	w.t.Helper()
	n := w.machine()
	a := w.agent(g, agentcommand.RoleRamdisk)
	if code := a.tryJoin(w.token(jointoken.Minted{Role: jointoken.RoleDiscovery, Node: n}), protocol.Claims{}); code != "" {
		w.t.Fatalf("join: %s", code)
	}
	if code := a.trySession(); code != "" {
		w.t.Fatalf("session: %s", code)
	}
	return a, n
}

// siteAgent is an agent of the site, in a session.
func (w *world) siteAgent(g *gateway) *agent {
	w.t.Helper()
	a := w.agent(g, agentcommand.RoleSite)
	if code := a.tryJoin(w.token(jointoken.Minted{Role: jointoken.RoleSite, Site: w.site}), protocol.Claims{}); code != "" {
		w.t.Fatalf("join: %s", code)
	}
	if code := a.trySession(); code != "" {
		w.t.Fatalf("session: %s", code)
	}
	return a
}
