package redfish

import (
	"context"
	"net/http"
	"time"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/domain/fault"
)

// ticket is how requests show who they are: a session's token, or the credentials themselves.
type ticket struct {
	token, uri string
	basic      bool
	made       time.Time
}

// login is one that is under way; all wait for the same.
type login struct {
	done   chan struct{}
	ticket *ticket
	err    error
}

// authTries counts what one operation saw of 401 and 403.
type authTries struct{ same, forbidden int }

const (
	deniedLimit = 2                // refusals in a row that mean bad credentials; less where the account would be locked
	firstBar    = 5 * time.Minute  // how long refused credentials are held back, doubling
	longestBar  = time.Hour        //
	noSessions  = 5 * time.Minute  // how long a controller without a free session is spoken to by basic authentication
	freshTicket = 30 * time.Second // what is refused to a session that is younger is refused for other reasons
)

// authorize gives the ticket for r, logging in where there is none. A login goes on when its caller has gone: cut off, it
// would leave a session that nobody knows of.
func (c *conn) authorize(ctx context.Context, r request) (*ticket, error) {
	if r.open {
		return nil, nil
	}
	c.mu.Lock()
	now := c.d.o.Now()
	c.used = now
	if c.over {
		c.mu.Unlock()
		return nil, fault.New(fault.Unavailable, "the driver is closed")
	}
	if t := c.ticket; t != nil {
		c.mu.Unlock()
		return t, nil
	}
	if now.Before(c.barred) {
		c.mu.Unlock()
		return nil, rejected().WithDetail("retryAfter", int(c.barred.Sub(now).Seconds())+1)
	}
	p := c.pending
	if p == nil {
		p = &login{done: make(chan struct{})}
		c.pending = p
		c.d.busy.Go(func() { c.enter(ctx, p) })
	}
	c.mu.Unlock()
	select {
	case <-p.done:
		return p.ticket, p.err
	case <-ctx.Done():
		return nil, ended(ctx)
	}
}

func rejected() *fault.Error {
	return broken(bmc.CredentialsRejected, "the controller rejects the credentials")
}

// detached is a context that outlives its caller, but neither limit nor the driver.
func (c *conn) detached(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	stop := context.AfterFunc(c.d.ending, cancel)
	return ctx, func() { stop(); cancel() }
}

func (c *conn) enter(ctx context.Context, p *login) {
	ctx, cancel := c.detached(ctx, c.d.o.RequestTimeout+2*c.d.o.ConnectTimeout)
	defer cancel()
	t, err := c.logIn(ctx)
	c.mu.Lock()
	c.pending = nil
	p.ticket, p.err = t, err
	orphan := c.retired && c.users == 0
	if !orphan {
		c.ticket = t
		c.watch(c.d.o.SessionIdle)
	}
	c.mu.Unlock()
	if orphan {
		c.discard(ctx, t)
	}
	close(p.done)
}

// logIn makes a session, or settles on basic authentication where there are no sessions to have.
func (c *conn) logIn(ctx context.Context) (*ticket, error) {
	basic := &ticket{basic: true, made: c.d.o.Now()}
	c.mu.Lock()
	useBasic := c.service.Auth == authBasic || c.d.o.Now().Before(c.basicFor)
	c.mu.Unlock()
	if useBasic {
		return basic, nil
	}
	r := request{method: http.MethodPost, path: c.sessions(), body: map[string]string{"UserName": c.user, "Password": c.password}}
	p := c.d.pace()
	for tries := 0; ; tries++ {
		a, err := c.exchange(ctx, r, nil)
		var pause time.Duration
		switch {
		case err != nil && dropped(err) && ctx.Err() == nil && tries < 1:
		case err != nil:
			return nil, c.lost(ctx, r, err)
		case a.ok() && a.header.Get("X-Auth-Token") != "":
			return c.begun(a), nil
		case a.status == 401 || a.status == 403:
			if err := c.refused(ctx, a); err != nil {
				return nil, err
			}
		case a.ok() || a.status == 400 ||
			a.says("RAC0218", "maximum number of user sessions", "SessionLimitExceeded", "session limit"):
			c.mu.Lock()
			c.basicFor = c.d.o.Now().Add(noSessions)
			c.mu.Unlock()
			return basic, nil
		case (a.status == 503 || a.status == 504) && tries < busyTries && a.retryAfter(c.d.o.Now()) <= patience:
			pause = a.retryAfter(c.d.o.Now())
		case a.status == 404 || a.status == 405 || a.status == 501:
			c.learn(func(l *learned) { l.Auth = authBasic })
			return basic, nil
		default:
			return nil, c.refusal(r, a)
		}
		if p.wait(ctx, pause) != nil {
			return nil, ended(ctx)
		}
	}
}

// begun reads a session's token and where it is: Location may name another host, or be missing.
func (c *conn) begun(a *answer) *ticket {
	uri := localPath(a.header.Get("Location"))
	if uri == "" {
		uri = a.doc().link("@odata.id")
	}
	c.mu.Lock()
	c.denials, c.bar = 0, 0
	c.mu.Unlock()
	return &ticket{token: a.header.Get("X-Auth-Token"), uri: uri, made: c.d.o.Now()}
}

// refused counts a refusal of the credentials. Enough of them bar further attempts: most accounts lock after a few.
func (c *conn) refused(ctx context.Context, a *answer) error {
	threshold := c.lockout(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.denials++
	limit := deniedLimit
	if threshold > 0 {
		limit = max(1, min(limit, threshold-1))
	}
	if a.status == 401 && c.denials < limit {
		return nil
	}
	c.bar = min(max(2*c.bar, firstBar), longestBar)
	c.barred = c.d.o.Now().Add(c.bar)
	c.ticket = nil
	return rejected().WithDetail("status", a.status).WithDetail("attempts", c.denials)
}

// lockout is after how many failures an account is locked, as far as one may know; zero if not. Asking shows no credentials.
func (c *conn) lockout(ctx context.Context) int {
	c.mu.Lock()
	known, uri := c.service.Lockout, c.service.Accounts
	c.mu.Unlock()
	if known != 0 || uri == "" {
		return known
	}
	a, err := c.exchange(ctx, request{method: http.MethodGet, path: uri}, nil)
	if err != nil || !a.ok() {
		return 0
	}
	n := threshold(a.doc())
	c.learn(func(l *learned) { l.Lockout = n })
	return n
}

// denied decides what follows a 401 or 403 to a request with ticket t: some controllers answer 401 now and then, so the
// same is asked once more; then the session is taken for dead.
func (c *conn) denied(ctx context.Context, t *ticket, r request, a *answer, n *authTries) (again bool, err error) {
	if a.status == 403 {
		old := c.d.o.Now().Sub(t.made) > freshTicket
		if t.basic || n.forbidden > 0 || !old || a.says("InsufficientPrivilege") {
			return false, nil
		}
		n.forbidden++
		c.drop(ctx, t)
		return true, nil
	}
	if t.basic {
		return true, c.refused(ctx, a)
	}
	if n.same++; n.same%2 == 1 {
		return true, nil
	}
	if !c.mayRenew(t, r) {
		return false, rejected().WithDetail("status", a.status)
	}
	c.drop(ctx, t)
	return true, nil
}

// mayRenew allows one new session in a while for what is then answered 401 all the same: it will be to the next one, too.
// Where another caller has made one already, that is used.
func (c *conn) mayRenew(t *ticket, r request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ticket != t {
		return true
	}
	now := c.d.o.Now()
	if now.Sub(c.renewed) < freshTicket {
		return false
	}
	c.renewed, c.cause = now, r.path
	return true
}

// accepted notes that the credentials were good for r.
func (c *conn) accepted(t *ticket, r request) {
	if t == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.basic {
		c.denials, c.bar = 0, 0
	}
	if r.path == c.cause && c.ticket == t {
		c.renewed, c.cause = time.Time{}, "" // the old session was dead, and this one is not
	}
}

// drop forgets t, if it is still the current one, and tells the controller.
func (c *conn) drop(ctx context.Context, t *ticket) {
	c.mu.Lock()
	current := c.ticket == t
	if current {
		c.ticket = nil
	}
	c.mu.Unlock()
	if current {
		c.discard(ctx, t)
	}
}

// discard ends a session. What the controller answers changes nothing: a session that it does not know is over.
func (c *conn) discard(ctx context.Context, t *ticket) {
	if t == nil || t.basic || t.uri == "" {
		return
	}
	ctx, cancel := c.detached(ctx, c.d.o.ConnectTimeout)
	defer cancel()
	r := request{method: http.MethodDelete, path: t.uri}
	for tries := 0; tries < 2; tries++ {
		a, err := c.exchange(ctx, r, t)
		if err == nil && a.status < 500 {
			return
		}
		if err != nil && !dropped(err) {
			break
		}
	}
	c.d.o.Logger.WarnContext(ctx, "a BMC session could not be ended", "uri", t.uri)
}

// logout ends the session, if there is one.
func (c *conn) logout(ctx context.Context) {
	c.mu.Lock()
	t := c.ticket
	c.ticket = nil
	c.mu.Unlock()
	c.discard(ctx, t)
	c.wire.base.CloseIdleConnections()
}

// watch logs out and forgets the connection after it was not used for a while. The lock is held.
func (c *conn) watch(after time.Duration) {
	if c.idle != nil {
		c.idle.Stop()
	}
	c.idle = time.AfterFunc(after, func() { c.d.forget(c) })
}

// unused reports whether the connection has been idle for long enough and is not needed to hold refused credentials back;
// if not, it is looked at again later.
func (c *conn) unused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.d.o.Now()
	rest := max(c.d.o.SessionIdle-now.Sub(c.used), c.barred.Sub(now))
	switch {
	case c.over:
		return false
	case c.users > 0 || (!c.retired && rest > 0):
		c.watch(max(rest, c.d.o.SessionIdle/4, time.Millisecond))
		return false
	}
	c.idle, c.retired = nil, true
	return true
}

// hold and release count the machines that use the connection.
func (c *conn) hold() {
	c.mu.Lock()
	c.users++
	c.mu.Unlock()
}

func (c *conn) release() {
	c.mu.Lock()
	c.users--
	c.used = c.d.o.Now()
	last := c.retired && c.users == 0
	if !c.retired && c.idle == nil {
		c.watch(c.d.o.SessionIdle) // one that never came to log in is forgotten, too
	}
	c.mu.Unlock()
	if last {
		c.d.forget(c)
	}
}

// retire keeps the connection from further Opens and reports whether it can be logged out at once.
func (c *conn) retire() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired = true
	return c.users == 0
}

// shut logs out for good, also from a login that is still under way.
func (c *conn) shut(ctx context.Context) {
	c.mu.Lock()
	c.over, c.retired, c.users = true, true, 0
	if c.idle != nil {
		c.idle.Stop()
		c.idle = nil
	}
	p := c.pending
	c.mu.Unlock()
	if p != nil {
		select {
		case <-p.done:
		case <-ctx.Done():
		}
	}
	c.logout(ctx)
}

// secrets is what no message may hold.
func (c *conn) secrets() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []string{c.password}
	if c.ticket != nil {
		out = append(out, c.ticket.token)
	}
	for s := range c.hidden {
		out = append(out, s)
	}
	return out
}

// hide keeps parts of an image's address out of messages until shown is called.
func (c *conn) hide(parts ...string) (shown func()) {
	count := func(by int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range parts {
			if c.hidden[s] += by; c.hidden[s] == 0 {
				delete(c.hidden, s)
			}
		}
	}
	count(1)
	return func() { count(-1) }
}
