package redfish

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/stmcginnis/gofish"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

// conn is one controller under one set of credentials. Machines share it.
type conn struct {
	d              *Driver
	key            connKey
	gate           *gate
	wire           *wire
	fish           *gofish.APIClient
	prefix         string // a path before /redfish, of a controller behind a proxy
	user, password string

	mu       sync.Mutex
	ticket   *ticket
	pending  *login
	denials  int       // consecutive refusals of the credentials themselves
	barred   time.Time // until then they are not tried again
	bar      time.Duration
	basicFor time.Time // until then sessions are not tried: the controller has none left
	renewed  time.Time // when a session was last taken for dead, as long as what was asked then was not answered since
	cause    string    // what was asked then
	users    int
	retired  bool // no further Open takes it
	over     bool // its driver is closed
	idle     *time.Timer
	used     time.Time
	hidden   map[string]int   // what no message may hold beside the credentials
	service  learned          // what is known of the service
	systems  map[string]facts // and of its systems, by Target.System
}

// request is one request; the path is local to the controller.
type request struct {
	method, path string
	body         any
	tag          string // If-Match
	open         bool   // needs no credentials
	once         bool   // in a large crawl: no patience with a controller that is not ready
}

func (r request) writes() bool { return r.method != http.MethodGet && r.method != http.MethodHead }

func newConn(ctx context.Context, d *Driver, g *gate, key connKey, t bmc.Target) (*conn, error) {
	base, err := url.Parse(key.address)
	if err != nil {
		return nil, fault.Invalid(fault.Issue{Path: "address", Message: "is not a URL"})
	}
	w, err := newWire(d.o, t.TLS)
	if err != nil {
		return nil, err
	}
	c := &conn{
		d: d, key: key, gate: g, wire: w, prefix: strings.TrimRight(base.EscapedPath(), "/"), user: t.Username, password: t.Password,
		systems: map[string]facts{}, hidden: map[string]int{}, used: d.o.Now(),
	}
	if t.TLS.Mode == node.TLSInsecure || base.Scheme == "http" {
		d.o.Logger.WarnContext(ctx, "a BMC is spoken to without knowing that it is the one", "address", key.address)
	}
	base.Path, base.RawPath = "", ""
	c.fish, err = gofish.ConnectContext(opened(ctx), gofish.ClientConfig{
		Endpoint: base.String(), HTTPClient: &http.Client{Transport: w, CheckRedirect: sameHost}, NoModifyTransport: true,
		ReuseConnections: true, MaxConcurrentRequests: int64(d.o.Concurrency) + 1,
	})
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "the client can't be made")
	}
	return c, nil
}

// full adds the proxy's prefix to a path that lacks it.
func (c *conn) full(path string) string {
	if c.prefix != "" && !strings.HasPrefix(path, c.prefix+"/") {
		return c.prefix + path
	}
	return path
}

// exchange sends one request once. An answer of any status is no error; whoever needs success asks for it.
func (c *conn) exchange(ctx context.Context, r request, t *ticket) (*answer, error) {
	leave, err := c.gate.enter(ctx, r.writes())
	if err != nil {
		return nil, err
	}
	defer leave()
	limit := c.d.o.RequestTimeout
	if r.writes() {
		limit *= 2
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	var body io.ReadSeeker
	var kind string
	if r.body != nil {
		raw, err := json.Marshal(r.body)
		if err != nil {
			return nil, fault.Wrap(err, fault.Internal, "a request can't be written")
		}
		body, kind = bytes.NewReader(raw), "application/json"
	}
	headers := map[string]string{}
	if r.tag != "" {
		headers["If-Match"] = r.tag
	}
	switch {
	case t != nil && t.basic:
		headers["Authorization"] = "Basic " + base64.StdEncoding.EncodeToString([]byte(c.user+":"+c.password))
	case t != nil:
		headers["X-Auth-Token"] = t.token
	}
	got, began := &answer{}, time.Now()
	fish := c.fish.WithContext(context.WithValue(ctx, note{}, got))
	resp, err := fish.RunRawRequestWithHeaders(r.method, c.full(r.path), body, kind, headers)
	if resp != nil {
		_ = resp.Body.Close()
	}
	c.d.o.Logger.DebugContext(ctx, "redfish request", "host", c.key.address, "method", r.method, "path", r.path,
		"status", got.status, "took", time.Since(began))
	if got.status == 0 {
		return nil, err
	}
	return got, nil
}

const (
	patience   = 5 * time.Second // what is waited here; longer waits are the caller's
	busyTries  = 6
	brokenness = 2 // how often a dropped connection is made anew
)

// do sends a request with credentials, made anew where the controller has forgotten them. Reads are repeated where the
// connection broke or the controller is not ready; writes are not: whoever sends one reads back first.
func (c *conn) do(ctx context.Context, r request) (*answer, error) {
	p, auth := c.d.pace(), &authTries{}
	drops, busy := 0, 0
	for {
		t, err := c.authorize(ctx, r)
		if err != nil {
			return nil, err
		}
		a, err := c.exchange(ctx, r, t)
		var pause time.Duration
		switch {
		case err != nil && !r.writes() && dropped(err) && ctx.Err() == nil && drops < brokenness:
			drops++
			c.wire.base.CloseIdleConnections()
		case err != nil:
			return nil, c.lost(ctx, r, err)
		case t != nil && (a.status == 401 || a.status == 403):
			if again, err := c.denied(ctx, t, r, a, auth); err != nil || !again {
				return a, err
			}
		case !r.writes() && (a.status == 503 || a.status == 504 || a.status == 429):
			pause = a.retryAfter(c.d.o.Now())
			if busy++; pause > patience || busy > busyTries || (r.once && busy > 1) || !leaves(ctx, pause) {
				return a, nil
			}
		default:
			c.accepted(t, r)
			return a, nil
		}
		if p.wait(ctx, pause) != nil {
			return nil, ended(ctx)
		}
	}
}

// leaves reports whether ctx lasts longer than the pause.
func leaves(ctx context.Context, pause time.Duration) bool {
	end, bounded := ctx.Deadline()
	return !bounded || time.Until(end) > pause
}

// get reads a document; any status but success is a fault.
func (c *conn) get(ctx context.Context, path string) (document, *answer, error) {
	return c.read(ctx, request{method: http.MethodGet, path: path})
}

func (c *conn) read(ctx context.Context, r request) (document, *answer, error) {
	a, err := c.do(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	if !a.ok() {
		return nil, a, c.refusal(r, a)
	}
	doc, err := parse(a.body)
	if err != nil {
		e := broken(bmc.BadAnswer, "the answer to %s %s is not a JSON object", r.method, r.path)
		return nil, a, e.WithDetail("status", a.status)
	}
	return doc, a, nil
}
