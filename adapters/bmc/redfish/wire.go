package redfish

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

const (
	minTLS   = tls.VersionTLS12
	bodySize = 8 << 20 // the longest answer that is read
)

var errTooLarge = fmt.Errorf("an answer is longer than %d bytes", bodySize)

// errPin says that a certificate is not the pinned one.
var errPin = errors.New("the certificate's fingerprint is another than the pinned one")

// wire is the transport below gofish: headers that real services want, TLS as the node's policy says, bounded bodies.
type wire struct {
	base *http.Transport
	seen atomic.Pointer[string] // the fingerprint of the certificate that was accepted last
}

// note is the context key under which an exchange leaves the *answer to be filled in.
type note struct{}

// opening is the context key of gofish's own first request: see RoundTrip.
type opening struct{}

func newWire(o Options, policy node.TLSPolicy) (*wire, error) {
	w := &wire{}
	conf, err := w.trust(policy)
	if err != nil {
		return nil, err
	}
	conf.MinVersion = o.MinTLS
	w.base = &http.Transport{
		DialContext:         (&net.Dialer{Timeout: o.ConnectTimeout}).DialContext,
		TLSClientConfig:     conf,
		TLSHandshakeTimeout: o.ConnectTimeout,
		MaxIdleConnsPerHost: o.Concurrency,
		IdleConnTimeout:     o.SessionIdle,
		// Some services change the ETag of a compressed answer, so that it is never accepted again.
		DisableCompression: true,
		// A TLS configuration of one's own turns HTTP/2 off, and services that speak only that then answer garbage.
		ForceAttemptHTTP2: true,
	}
	return w, nil
}

// trust is the TLS configuration of a policy. Certificates are checked in the handshake, before any credential is sent.
func (w *wire) trust(p node.TLSPolicy) (*tls.Config, error) {
	pin := strings.ToLower(strings.ReplaceAll(p.Fingerprint, ":", ""))
	conf := &tls.Config{MinVersion: minTLS}
	switch p.Mode {
	case node.TLSSystemCA:
	case node.TLSCustomCA:
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM([]byte(p.CA)) {
			return nil, fault.Invalid(fault.Issue{Path: "tls.ca", Message: "holds no certificate in PEM"})
		}
	case node.TLSPinned, node.TLSPinOnFirstUse, "":
		if pin == "" && p.Mode == node.TLSPinned {
			return nil, fault.Invalid(fault.Issue{Path: "tls.fingerprint", Message: "is needed for a pinned certificate"})
		}
		conf.InsecureSkipVerify = true // VerifyConnection checks the pin instead of a chain
	case node.TLSInsecure:
		pin = ""
		conf.InsecureSkipVerify = true // as the operator asked, and is told on the node
	default:
		return nil, fault.Invalid(fault.Issue{Path: "tls.mode", Message: "is not a TLS mode"})
	}
	if conf.InsecureSkipVerify {
		conf.CipherSuites = oldSuites()
	}
	first := p.Mode == node.TLSPinOnFirstUse || p.Mode == ""
	conf.VerifyConnection = func(s tls.ConnectionState) error { return w.look(s, pin, first) }
	return conf, nil
}

// look compares the certificate with the pin, or with the one seen first, and remembers it.
func (w *wire) look(s tls.ConnectionState, pin string, first bool) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the controller shows no certificate")
	}
	sum := sha256.Sum256(s.PeerCertificates[0].Raw)
	got := hex.EncodeToString(sum[:])
	before := w.seen.Load()
	if pin == "" && first && before != nil {
		pin = *before
	}
	if pin != "" && pin != got {
		return &pinError{want: pin, got: got}
	}
	w.seen.Store(&got)
	return nil
}

// pinError carries both fingerprints to whoever holds the node.
type pinError struct{ want, got string }

func (e *pinError) Error() string { return errPin.Error() }
func (e *pinError) Unwrap() error { return errPin }

// oldSuites adds the key exchange of controllers from before 2015 to what Go offers by itself. It is for pinned and
// insecure policies only.
func oldSuites() []uint16 {
	var ids []uint16
	for _, s := range tls.CipherSuites() {
		ids = append(ids, s.ID)
	}
	return append(ids, tls.TLS_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_RSA_WITH_AES_128_CBC_SHA, tls.TLS_RSA_WITH_AES_256_CBC_SHA)
}

// RoundTrip sends one request and reads its whole answer, keeping it for the exchange: gofish forgets the headers of a
// refused request. The first request of a gofish client is for the service root, which it decodes strictly; it is given
// an empty one from here, as the real one is read leniently.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Context().Value(opening{}) != nil {
		return reply(r, http.StatusOK, nil, []byte(`{}`)), nil
	}
	r = r.Clone(r.Context())
	r.Header.Set("OData-Version", "4.0")
	r.Header.Set("User-Agent", "metal")
	r.Header.Del("Connection") // keep-alive goes without saying
	resp, err := w.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, bodySize+1))
	if err != nil {
		return nil, err
	}
	if len(body) > bodySize {
		return nil, errTooLarge
	}
	if a, ok := r.Context().Value(note{}).(*answer); ok {
		a.status, a.header, a.body = resp.StatusCode, resp.Header, body
	}
	return reply(r, resp.StatusCode, resp.Header, body), nil
}

func reply(r *http.Request, status int, header http.Header, body []byte) *http.Response {
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}
}

// sameHost follows a redirect of a read within the controller, and nothing else: headers carry the session's token.
func sameHost(r *http.Request, via []*http.Request) error {
	first := via[0]
	if len(via) > 3 || r.URL.Host != first.URL.Host || r.URL.Scheme != first.URL.Scheme || first.Method != http.MethodGet {
		return http.ErrUseLastResponse
	}
	return nil
}

func opened(ctx context.Context) context.Context { return context.WithValue(ctx, opening{}, true) }
