package sim_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// plane is a control plane in small: it lets agents in, and gives each machine one order after the other. A join token is
// the machine's name.
type plane struct {
	url, ca string

	key    *ecdsa.PrivateKey
	issuer *x509.Certificate

	mu      sync.Mutex
	changed chan struct{}
	members map[string]*member // by the certificate's fingerprint
	nodes   map[string]*member // by the machine's name: who joined or came back last
	boots   map[string]string  // boot id of the machine's last session
	orders  map[string]protocol.Order
	results map[string]protocol.ResultRequest
	closed  map[string]string // boot ids that said good-bye, with the reason
	joins   int
}

// member is one agent that was let in.
type member struct {
	machine string
	role    agentcommand.Role
}

func newPlane(t testing.TB) *plane {
	t.Helper()
	p := &plane{
		changed: make(chan struct{}), members: map[string]*member{}, nodes: map[string]*member{}, boots: map[string]string{},
		orders: map[string]protocol.Order{}, results: map[string]protocol.ResultRequest{}, closed: map[string]string{},
	}
	var err error
	if p.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	ca := p.sign(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, p.key.Public())
	if p.issuer, err = x509.ParseCertificate(ca); err != nil {
		t.Fatal(err)
	}
	p.ca = sum(ca)
	own := p.sign(t, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, p.key.Public())
	pool := x509.NewCertPool()
	pool.AddCert(p.issuer)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{own, ca}, PrivateKey: p.key}}, ClientAuth: tls.VerifyClientCertIfGiven,
		ClientCAs: pool, MinVersion: tls.VersionTLS13,
	})
	if err != nil {
		t.Fatal(err)
	}
	p.url = "https://" + listener.Addr().String()
	server := &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return p
}

func sum(der []byte) string {
	s := sha256.Sum256(der)
	return hex.EncodeToString(s[:])
}

// sign issues a certificate; without an issuer yet it is the issuer's own.
func (p *plane) sign(t testing.TB, c *x509.Certificate, public any) []byte {
	t.Helper()
	der, err := p.issue(c, public)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func (p *plane) issue(c *x509.Certificate, public any) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	c.SerialNumber, c.Subject = serial, pkix.Name{CommonName: "plane"}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	issuer := p.issuer
	if issuer == nil {
		issuer = c
	}
	return x509.CreateCertificate(rand.Reader, c, issuer, public, p.key)
}

func (p *plane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var answer any
	if err == nil {
		answer, err = p.answer(r, body)
	}
	if err != nil {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(fault.Info(fault.CodeOf(err)).HTTP)
		answer = map[string]any{"code": fault.CodeOf(err), "detail": err.Error()}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (p *plane) answer(r *http.Request, body []byte) (any, error) {
	if r.URL.Path == protocol.PathJoin {
		return p.join(body)
	}
	if len(r.TLS.PeerCertificates) == 0 {
		return nil, fault.New(fault.Unauthenticated, "no certificate")
	}
	p.mu.Lock()
	m := p.members[sum(r.TLS.PeerCertificates[0].Raw)]
	p.mu.Unlock()
	if m == nil {
		return nil, fault.New(fault.Unauthenticated, "not a member")
	}
	switch r.URL.Path {
	case protocol.PathPoll:
		return p.poll(r.Context(), m)
	case protocol.PathSecret:
		return protocol.SecretAnswer{Value: []byte(p.userData(m.machine))}, nil
	case protocol.PathSession:
		var ask protocol.SessionRequest
		err := json.Unmarshal(body, &ask)
		p.change(func() { p.nodes[m.machine], p.boots[m.machine] = m, ask.BootID })
		return protocol.SessionAnswer{PollSeconds: 20, ServerTime: time.Now(), SignerVersion: 1}, err
	case protocol.PathResult:
		var result protocol.ResultRequest
		err := json.Unmarshal(body, &result)
		p.change(func() {
			p.results[result.ID] = result
			delete(p.orders, m.machine)
		})
		return struct{}{}, err
	case protocol.PathClose:
		var ask protocol.CloseRequest
		err := json.Unmarshal(body, &ask)
		p.change(func() { p.closed[ask.BootID] = ask.Reason })
		return struct{}{}, err
	}
	return struct{}{}, nil
}

// userData is what a deployment would render.
func (p *plane) userData(machine string) string {
	return fmt.Sprintf("#cloud-config\nwrite_files:\n- path: /etc/bcd/agent.json\n  content: '{\"gateway\": %q, \"caSha256\": %q, \"token\": %q}'\n",
		p.url, p.ca, machine)
}

func (p *plane) join(body []byte) (any, error) {
	var ask protocol.JoinRequest
	if err := json.Unmarshal(body, &ask); err != nil {
		return nil, fault.New(fault.InvalidInput, "not JSON")
	}
	csr, err := x509.ParseCertificateRequest(ask.CSR)
	if err != nil || !strings.HasPrefix(ask.Token, "machine-") || ask.Claims.ProductUUID == "" {
		return nil, fault.New(fault.Unauthenticated, "token %q, %v", ask.Token, err)
	}
	der, err := p.issue(&x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, csr.PublicKey)
	p.change(func() {
		p.members[sum(der)] = &member{ask.Token, ask.Role}
		p.joins++
	})
	return protocol.JoinAnswer{
		AgentID: "agt_" + ask.Token, SiteID: "site_1", NodeID: nodeOf(ask.Token),
		Certificate: protocol.Certificate{Certificate: der, CA: p.issuer.Raw, NotAfter: time.Now().Add(time.Hour), RenewAfter: time.Now().Add(time.Hour)},
	}, err
}

func nodeOf(machine string) string {
	return id.Of[id.Node](uuid.NewSHA1(uuid.NameSpaceOID, []byte(machine))).String()
}

// change changes something under the lock, and wakes who waits.
func (p *plane) change(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
	close(p.changed)
	p.changed = make(chan struct{})
}

// until waits for something that is looked at under the lock.
func (p *plane) until(ctx context.Context, is func() bool) error {
	for {
		p.mu.Lock()
		ok, changed := is(), p.changed
		p.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// poll hands the machine's order to the agent that it is for, until it is settled.
func (p *plane) poll(ctx context.Context, m *member) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	answer := protocol.PollAnswer{Orders: []protocol.Order{}}
	err := p.until(ctx, func() bool {
		o, ok := p.orders[m.machine]
		if ok {
			answer.Orders = []protocol.Order{o}
		}
		return ok
	})
	if err != nil {
		return answer, nil // nothing to do is no error
	}
	return answer, nil
}

// order gives a machine an order and waits for what comes of it.
func (p *plane) order(ctx context.Context, machine string, kind agentcommand.KindName, payload any) (protocol.ResultRequest, error) {
	text, err := json.Marshal(payload)
	if err != nil {
		return protocol.ResultRequest{}, err
	}
	o := protocol.Order{
		ID: id.Of[id.AgentCommand](uuid.Must(uuid.NewV7())).String(), Kind: kind, NodeID: nodeOf(machine), Attempt: 1,
		NotAfter: time.Now().Add(time.Minute), Payload: text,
	}
	p.change(func() { p.orders[machine] = o })
	var result protocol.ResultRequest
	if err := p.until(ctx, func() (ok bool) {
		result, ok = p.results[o.ID]
		return ok
	}); err != nil {
		return result, fmt.Errorf("%s: %w", kind, err)
	}
	if result.Status != agentcommand.Succeeded {
		return result, fmt.Errorf("%s: %s %s %s", kind, result.Status, result.Code, result.Reason)
	}
	return result, nil
}

// member waits for a machine's agent of a role, in a boot other than the last.
func (p *plane) member(ctx context.Context, machine string, role agentcommand.Role, last string) (boot string, err error) {
	err = p.until(ctx, func() bool {
		boot = p.boots[machine]
		return p.nodes[machine] != nil && p.nodes[machine].role == role && boot != last
	})
	if err != nil {
		err = fmt.Errorf("no %s agent of %s: %w", role, machine, err)
	}
	return boot, err
}
