// Package client speaks the HTTP API of package contract: one method per operation.
//
// A mutation carries an Idempotency-Key of its own, so that it can be sent again safely: after a broken connection, a
// 503 or a 429 the client does so, with the same key, with growing pauses, and never applies anything twice. A read
// waits for what the same client has written before. An error of the API is a *Problem; fault.CodeOf tells its code,
// also where the control plane could not be reached (UNAVAILABLE). No error holds the token.
package client

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/better-compute/metal/domain/fault"
)

// Options say which control plane to speak to, and how.
type Options struct {
	URL       string // http or https, host, and a path if a proxy adds one; no credentials and no query
	Token     string // bearer token; empty: none is sent
	TLS       TLS
	UserAgent string
	Attempts  int           // the most times that one call is sent; zero is 5
	Timeout   time.Duration // of one attempt of a call that is not a stream; zero is a minute
}

// Client is safe for concurrent use.
type Client struct {
	base      *url.URL
	token     string
	userAgent string
	http      *http.Client
	attempts  int
	timeout   time.Duration
	silence   time.Duration // after which a stream of events counts as dead
	pause     func(attempt int, asked time.Duration) time.Duration
	seen      atomic.Uint64 // the highest position of anything that this client wrote
}

// The bounds of a client whose Options leave them out.
const (
	defaultAttempts = 5
	defaultTimeout  = time.Minute
	defaultSilence  = 45 * time.Second // three heartbeats
)

// New makes a client. It connects to nothing yet. Errors: INVALID_INPUT.
func New(o Options) (*Client, error) {
	base, err := parseBase(o.URL)
	if err != nil {
		return nil, err
	}
	transport, err := o.TLS.transport()
	if err != nil {
		return nil, err
	}
	if strings.ContainsFunc(o.Token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, fault.New(fault.InvalidInput, "the token holds characters that no token has, such as spaces")
	}
	c := &Client{
		base: base, token: o.Token, userAgent: o.UserAgent, attempts: o.Attempts, timeout: o.Timeout,
		silence: defaultSilence, pause: pause,
		http: &http.Client{
			Transport: transport,
			// The API redirects nowhere, and a token must not follow to where something else would send it.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	if c.attempts == 0 {
		c.attempts = defaultAttempts
	}
	if c.timeout == 0 {
		c.timeout = defaultTimeout
	}
	return c, nil
}

// Close lets go of idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func parseBase(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fault.New(fault.InvalidInput, "the address of the control plane is not a URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, fault.New(fault.InvalidInput,
			"the address of the control plane is a URL such as https://metal.example:8443")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fault.New(fault.InvalidInput, "the address of the control plane holds no credentials, query or fragment")
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	return u, nil
}

func (c *Client) unreachable(err error) error {
	if certificate(err) {
		return fault.Wrap(err, fault.Unavailable, "the control plane at %s is not trusted: %s", c.base, plainCause(err)).
			WithRemedy("name the PEM certificates of the authority that signed its own: --ca-file or METAL_CA_FILE")
	}
	return fault.Wrap(err, fault.Unavailable, "the control plane at %s cannot be reached: %s", c.base, plainCause(err)).
		WithRemedy("check the address and the network, then run the same again")
}

// plainCause leaves out what net/http puts around an error: the method and the URL.
func plainCause(err error) string {
	var around *url.Error
	if asURLError(err, &around) {
		return around.Err.Error()
	}
	return fmt.Sprint(err)
}
