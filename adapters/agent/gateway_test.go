package agent

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// gateway is a small control plane over real TLS, with an in-memory queue. What it is asked for it notes; refuse decides
// what fails.
type gateway struct {
	t        *testing.T
	caKey    *ecdsa.PrivateKey
	ca       *x509.Certificate
	server   tls.Certificate
	address  string
	http     *http.Server
	listener net.Listener

	mu       sync.Mutex
	changed  chan struct{} // closed at each change
	calls    []call
	orders   []protocol.Order // to hand out, until a result or an ack
	cancel   []string
	acked    map[string]bool
	results  map[string]protocol.ResultRequest
	secrets  map[string]string
	lifetime time.Duration
	renew    time.Duration
	agents   map[string]bool // fingerprints that are accepted
	refuse   func(path string, body []byte) error
	joins    int
}

type call struct {
	path string
	body []byte
	cert string
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	g := &gateway{
		t: t, changed: make(chan struct{}), acked: map[string]bool{}, results: map[string]protocol.ResultRequest{},
		secrets: map[string]string{}, agents: map[string]bool{}, lifetime: time.Hour, renew: time.Hour,
	}
	g.caKey, g.ca = newCA(t)
	g.server = g.issueServer("127.0.0.1")
	g.start("127.0.0.1:0")
	return g
}

func newCA(t *testing.T) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	check(t, err)
	ca, err := x509.ParseCertificate(der)
	check(t, err)
	return key, ca
}

func (g *gateway) issueServer(ip string) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(g.t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.ParseIP(ip)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, g.ca, key.Public(), g.caKey)
	check(g.t, err)
	return tls.Certificate{Certificate: [][]byte{der, g.ca.Raw}, PrivateKey: key}
}

func (g *gateway) start(address string) {
	listener, err := net.Listen("tcp", address)
	check(g.t, err)
	g.address, g.listener = listener.Addr().String(), listener
	g.http = &http.Server{Handler: g, ErrorLog: log.New(io.Discard, "", 0), TLSConfig: &tls.Config{
		Certificates: []tls.Certificate{g.server}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS13,
	}}
	server := g.http
	done := make(chan struct{})
	g.t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	go func() {
		defer close(done)
		_ = server.ServeTLS(listener, "", "")
	}()
}

// stop goes away at once, in the middle of whatever it answers.
func (g *gateway) stop() {
	_ = g.listener.Close() // which Close knows of only once Serve runs
	_ = g.http.Close()
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	certificate := ""
	expired := false
	if len(r.TLS.PeerCertificates) > 0 {
		shown := r.TLS.PeerCertificates[0]
		certificate, expired = fingerprint(shown.Raw), time.Now().After(shown.NotAfter)
	}
	answer, err := g.answer(r, body, certificate)
	if expired && r.URL.Path != protocol.PathRenew {
		err = fault.New(fault.Unauthenticated, "the certificate has expired")
	}
	if err != nil {
		var f *fault.Error
		if !errors.As(err, &f) {
			f = fault.New(fault.Internal, "%v", err)
		}
		w.Header().Set("Content-Type", problemType)
		w.WriteHeader(fault.Info(f.Code).HTTP)
		_ = json.NewEncoder(w).Encode(map[string]any{"code": f.Code, "detail": f.Message, "details": f.Details})
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (g *gateway) answer(r *http.Request, body []byte, certificate string) (any, error) {
	g.mu.Lock()
	g.calls = append(g.calls, call{r.URL.Path, body, certificate})
	g.wake()
	refuse, accepted := g.refuse, g.agents[certificate]
	g.mu.Unlock()
	if refuse != nil {
		if err := refuse(r.URL.Path, body); err != nil {
			return nil, err
		}
	}
	if r.URL.Path == protocol.PathJoin {
		return g.join(decoded[protocol.JoinRequest](g.t, body))
	}
	if !accepted {
		return nil, fault.New(fault.Unauthenticated, "this certificate is nobody's")
	}
	switch r.URL.Path {
	case protocol.PathSession:
		return protocol.SessionAnswer{PollSeconds: 3, ServerTime: time.Now(), SignerVersion: 1}, nil
	case protocol.PathPoll:
		return g.poll(r.Context(), decoded[protocol.PollRequest](g.t, body))
	case protocol.PathAck:
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, id := range decoded[protocol.AckRequest](g.t, body).IDs {
			g.acked[id] = true
		}
		g.wake()
	case protocol.PathResult:
		g.mu.Lock()
		defer g.mu.Unlock()
		result := decoded[protocol.ResultRequest](g.t, body)
		if _, again := g.results[result.ID]; !again {
			g.results[result.ID] = result
		}
		g.wake()
	case protocol.PathSecret:
		g.mu.Lock()
		defer g.mu.Unlock()
		value, ok := g.secrets[decoded[protocol.SecretRequest](g.t, body).Ref]
		if !ok {
			return nil, fault.New(fault.NotFound, "there is no such secret")
		}
		return protocol.SecretAnswer{Value: []byte(value)}, nil
	case protocol.PathRenew:
		return g.issue(decoded[protocol.RenewRequest](g.t, body).CSR)
	}
	return struct{}{}, nil
}

func (g *gateway) join(r protocol.JoinRequest) (any, error) {
	if r.Token != "good" && r.Token != "fresh" {
		return nil, fault.New(fault.Unauthenticated, "there is no such join token")
	}
	c, err := g.issue(r.CSR)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.joins++
	return protocol.JoinAnswer{AgentID: "agt_1", SiteID: "site_1", NodeID: theNode.String(), Certificate: c}, err
}

func (g *gateway) issue(csr []byte) (protocol.Certificate, error) {
	request, err := x509.ParseCertificateRequest(csr)
	if err != nil || request.CheckSignature() != nil {
		return protocol.Certificate{}, fault.New(fault.InvalidInput, "no certificate request")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	until := time.Now().Add(g.lifetime)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, NotBefore: time.Now().Add(-time.Minute), NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, g.ca, request.PublicKey, g.caKey)
	g.agents[fingerprint(der)] = true
	return protocol.Certificate{Certificate: der, CA: g.ca.Raw, NotAfter: until, RenewAfter: time.Now().Add(g.renew)}, err
}

// poll hands out what is neither acked nor settled, and waits where there is nothing.
func (g *gateway) poll(ctx context.Context, r protocol.PollRequest) (any, error) {
	deadline := time.After(time.Duration(r.WaitSeconds * float64(time.Second)))
	for {
		g.mu.Lock()
		var answer protocol.PollAnswer
		for _, o := range g.orders {
			_, settled := g.results[o.ID]
			if len(answer.Orders) < r.Room && !settled && !g.acked[o.ID] && !slices.Contains(r.Doing, o.ID) {
				answer.Orders = append(answer.Orders, o)
			}
		}
		answer.Cancel, g.cancel = g.cancel, nil
		changed := g.changed
		g.mu.Unlock()
		if len(answer.Orders)+len(answer.Cancel) > 0 {
			return answer, nil
		}
		select {
		case <-changed:
		case <-deadline:
			return answer, nil
		case <-ctx.Done():
			return answer, nil
		}
	}
}

// wake tells whoever waits; the lock is held.
func (g *gateway) wake() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// do changes something under the lock.
func (g *gateway) do(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
	g.wake()
}

// soon is how long a test waits for what should be there soon, on a busy computer.
const soon = time.Minute

// until waits for something that is looked at under the lock.
func (g *gateway) until(what string, is func() bool) {
	g.t.Helper()
	deadline := time.After(soon)
	for {
		g.mu.Lock()
		ok, changed := is(), g.changed
		g.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			g.t.Fatalf("%s: it did not happen", what)
		}
	}
}

// count is how many calls of a path there were; the lock is held.
func (g *gateway) count(path string) (n int) {
	for _, c := range g.calls {
		if c.path == path {
			n++
		}
	}
	return n
}

var theNode = id.Of[id.Node](uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057"))

// order makes one to hand out.
func (g *gateway) order(kind agentcommand.KindName, payload any) protocol.Order {
	text, err := json.Marshal(payload)
	check(g.t, err)
	o := protocol.Order{
		ID: id.Of[id.AgentCommand](uuid.Must(uuid.NewV7())).String(), Kind: kind, NodeID: theNode.String(), Attempt: 1,
		NotAfter: time.Now().Add(time.Minute), Payload: text,
	}
	g.do(func() { g.orders = append(g.orders, o) })
	return o
}

// result waits for an order's result.
func (g *gateway) result(o protocol.Order) (r protocol.ResultRequest) {
	g.t.Helper()
	g.until("result of "+string(o.Kind), func() (ok bool) {
		r, ok = g.results[o.ID]
		return ok
	})
	return r
}

// verify checks a result's signature as a control plane does.
func (g *gateway) verify(o protocol.Order, r protocol.ResultRequest, certificate *x509.Certificate) bool {
	command, err := id.Parse[id.AgentCommand](o.ID)
	check(g.t, err)
	if r.Attestation == nil || r.Attestation.Certificate != fingerprint(certificate.Raw) {
		return false
	}
	input := agentcommand.SigningInput(command, o.Kind, theNode, o.Attempt, r.BootID, o.Payload, r.Result, r.Attestation.At)
	return ed25519.Verify(certificate.PublicKey.(ed25519.PublicKey), input, r.Attestation.Signature)
}

// options are those of a site agent that can do the kinds.
func (g *gateway) options(kinds map[agentcommand.KindName]Handler) Options {
	return Options{
		Gateway: "https://" + g.address, CA: fingerprint(g.ca.Raw), Role: agentcommand.RoleSite, Token: "good", BootID: "boot-1",
		Kinds: kinds, Room: 4, State: MemoryState(), Backoff: Backoff{First: time.Millisecond, Most: 20 * time.Millisecond},
		Grace: 5 * time.Second, Logger: slog.New(slog.NewTextHandler(g.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

// run starts an agent; stop ends it with a cause and gives Run's error.
func run(t *testing.T, o Options) (stop func(cause error) error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, o) }()
	var once sync.Once
	var err error
	stop = func(cause error) error {
		once.Do(func() {
			cancel(cause)
			select {
			case err = <-done:
			case <-time.After(soon):
				t.Error("the agent does not end")
			}
		})
		return err
	}
	t.Cleanup(func() { _ = stop(nil) })
	return stop
}

func decoded[T any](t *testing.T, body []byte) (out T) {
	if err := json.Unmarshal(body, &out); err != nil {
		t.Errorf("%s: %v", body, err)
	}
	return out
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
