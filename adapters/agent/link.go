package agent

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/better-compute/metal/domain/fault"
)

const (
	callWithin  = 20 * time.Second // for everything but a poll
	answerMost  = 16 << 20
	problemType = "application/problem+json"
)

// link is the connection to the gateway, and who the agent is there.
type link struct {
	Options

	mu       sync.Mutex
	client   *http.Client
	identity Identity
	key      crypto.Signer // of the identity
	renew    time.Time
	dropped  string // fingerprint of a certificate that the gateway does not accept
}

func newLink(o Options) *link {
	l := &link{Options: o}
	l.client = l.newClient(nil)
	return l
}

// newClient makes an HTTP client that presents a certificate, or none. It costs little while nothing happens: the agents of
// many machines may live in one process. Each identity has a client of its own, so that no connection outlives the
// certificate that it was made with.
func (l *link) newClient(presents *tls.Certificate) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:     l.tlsConfig(presents),
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout: 10 * time.Second,
			MaxIdleConnsPerHost: 2 + l.Room/8,
			MaxConnsPerHost:     4 + l.Room/4,
			IdleConnTimeout:     20 * time.Second,
			ReadBufferSize:      2 << 10,
			WriteBufferSize:     2 << 10,
			DisableCompression:  true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.client.CloseIdleConnections()
}

// become presents an identity from now on; the zero one is nobody.
func (l *link) become(i Identity) error {
	var presents *tls.Certificate
	var signer crypto.Signer
	if i.AgentID != "" {
		key, err := x509.ParsePKCS8PrivateKey(i.Key)
		if err != nil {
			return fault.Wrap(err, fault.InvalidConfig, "the agent's key can't be read").
				WithRemedy("take the agent's state away, and give it a fresh join token")
		}
		presents = &tls.Certificate{Certificate: [][]byte{i.Certificate}, PrivateKey: key}
		signer, _ = key.(crypto.Signer)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.client.CloseIdleConnections()
	l.client = l.newClient(presents)
	l.identity, l.renew, l.key = i, i.RenewAfter, signer
	return nil
}

// who is the agent's identity; its AgentID is empty before it joined.
func (l *link) who() Identity {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.identity
}

// call asks the gateway one thing and decodes its answer into out, unless that is nil. Every error is a *fault.Error.
func (l *link) call(ctx context.Context, path string, in, out any, within time.Duration) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fault.Wrap(err, fault.Internal, "the request can't be written as JSON")
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(l.Gateway, "/")+path, bytes.NewReader(body))
	if err != nil {
		return fault.Wrap(err, fault.InvalidConfig, "the gateway's URL is not valid")
	}
	req.Header.Set("Content-Type", "application/json")
	l.mu.Lock()
	client := l.client
	l.mu.Unlock()
	answer, err := client.Do(req)
	if err != nil {
		return unreachable(err)
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(io.LimitReader(answer.Body, answerMost))
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the gateway's answer broke off")
	}
	if answer.StatusCode != http.StatusOK {
		return problemOf(answer, text)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fault.Wrap(err, fault.Unavailable, "the gateway's answer is not what the protocol says")
	}
	return nil
}

// unreachable says why there was no answer. A gateway that refuses the certificate during the handshake is one that says
// UNAUTHENTICATED.
func unreachable(err error) error {
	var remote *net.OpError
	if errors.As(err, &remote) && remote.Op == "remote error" && strings.Contains(remote.Err.Error(), "certificate") {
		return fault.Wrap(err, fault.Unauthenticated, "the gateway does not accept the certificate: %v", remote.Err)
	}
	if errors.Is(err, errUntrusted) {
		return fault.Wrap(err, fault.Unavailable, "the server is not the gateway: %v", errors.Unwrap(err))
	}
	return fault.Wrap(err, fault.Unavailable, "the gateway can't be reached")
}

// problemOf reads a problem document. What is none did not come from the gateway, but from something before it.
func problemOf(answer *http.Response, text []byte) error {
	var p struct {
		Code    string         `json:"code"`
		Detail  string         `json:"detail"`
		Remedy  string         `json:"remedy"`
		Details map[string]any `json:"details"`
		Issues  []fault.Issue  `json:"issues"`
	}
	media, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if media != problemType || json.Unmarshal(text, &p) != nil || fault.Info(fault.Code(p.Code)).Code != fault.Code(p.Code) {
		return fault.New(fault.Unavailable, "something before the gateway answered %s", answer.Status)
	}
	out := &fault.Error{Code: fault.Code(p.Code), Message: p.Detail, Remedy: p.Remedy, Issues: p.Issues, Details: p.Details}
	if seconds, err := strconv.ParseFloat(answer.Header.Get("Retry-After"), 64); err == nil {
		_ = out.WithDetail(fault.RetryAfter, seconds)
	}
	return out
}

// transient tells whether the same request may succeed later.
func transient(err error) bool {
	switch fault.CodeOf(err) {
	case fault.Unavailable, fault.RateLimited, fault.Timeout, fault.Internal, fault.Unauthenticated:
		return true
	}
	return false
}
