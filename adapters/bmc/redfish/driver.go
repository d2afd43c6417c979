package redfish

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"sync"
	"time"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/domain/claim"
	"github.com/better-compute/metal/domain/fault"
)

// Options tunes a driver; the zero value works.
type Options struct {
	ConnectTimeout time.Duration    // to connect and to agree on TLS; 10s
	RequestTimeout time.Duration    // to answer a read; a write may take twice as long, as BIOS settings do; 60s
	Concurrency    int              // requests at once to one controller; 4, of which one may change something
	Poll           time.Duration    // the longest pause between two looks at power, media or a task; 2s
	SessionIdle    time.Duration    // after which an unused session is logged out; 2m
	MinTLS         uint16           // as tls.VersionTLS12, the default
	Now            func() time.Time // time.Now
	Logger         *slog.Logger     // slog.Default()
}

func (o Options) withDefaults() Options {
	setDefault(&o.ConnectTimeout, 10*time.Second)
	setDefault(&o.RequestTimeout, time.Minute)
	setDefault(&o.Concurrency, 4)
	setDefault(&o.Poll, 2*time.Second)
	setDefault(&o.SessionIdle, 2*time.Minute)
	setDefault(&o.MinTLS, minTLS)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

func setDefault[T int | uint16 | time.Duration](v *T, otherwise T) {
	if *v == 0 {
		*v = otherwise
	}
}

// Driver opens machines behind Redfish services. One process needs one: sessions and the bound on concurrent requests are
// shared by everything that goes through it.
type Driver struct {
	o      Options
	ending context.Context // ends what still runs when Close has waited long enough
	end    context.CancelFunc
	busy   sync.WaitGroup // logins and logouts nobody waits for

	mu     sync.Mutex
	gates  map[string]*gate // by address
	conns  map[connKey]*conn
	live   map[*conn]bool // also those that no further Open takes, and that are still used
	closed bool
}

var _ bmc.Driver = (*Driver)(nil)

// connKey is what may share a session: another address, user, password, credential version or trust is another connection.
type connKey struct{ address, user, secret, version, trust string }

// New makes a driver.
func New(o Options) *Driver {
	d := &Driver{o: o.withDefaults(), gates: map[string]*gate{}, conns: map[connKey]*conn{}, live: map[*conn]bool{}}
	d.ending, d.end = context.WithCancel(context.Background())
	return d
}

// Open connects to the controller and finds the machine. Where an earlier Open has, no request is needed.
func (d *Driver) Open(ctx context.Context, t bmc.Target) (bmc.Machine, error) {
	address, err := claim.ParseAddress(t.Address)
	if err != nil {
		return nil, fault.Invalid(fault.Issue{Path: "address", Message: err.Error()})
	}
	c, err := d.connect(ctx, address.URL, t)
	if err != nil {
		return nil, err
	}
	m := &machine{c: c, wanted: t.System}
	if err := m.find(ctx, t.Quirks); err != nil {
		c.release()
		return nil, err
	}
	return m, nil
}

// connect gives the connection for t, retiring one of older credentials of the same user: its session is logged out.
func (d *Driver) connect(ctx context.Context, address string, t bmc.Target) (*conn, error) {
	secret := sha256.Sum256([]byte(t.Password))
	trust := sha256.Sum256([]byte(t.TLS.CA))
	key := connKey{
		address: address, user: t.Username, secret: hex.EncodeToString(secret[:]), version: t.CredentialVersion,
		trust: string(t.TLS.Mode) + " " + t.TLS.Fingerprint + " " + hex.EncodeToString(trust[:]),
	}
	c, old, err := d.take(ctx, key, t)
	for _, o := range old {
		o.logout(ctx)
	}
	return c, err
}

func (d *Driver) take(ctx context.Context, key connKey, t bmc.Target) (c *conn, old []*conn, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, nil, fault.New(fault.Unavailable, "the driver is closed")
	}
	for k, o := range d.conns {
		if k.address == key.address && k.user == key.user && k != key {
			delete(d.conns, k)
			if o.retire() {
				delete(d.live, o)
				old = append(old, o)
			}
		}
	}
	c = d.conns[key]
	if c == nil {
		g := d.gates[key.address]
		if g == nil {
			g = newGate(d.o.Concurrency)
			d.gates[key.address] = g
		}
		if c, err = newConn(ctx, d, g, key, t); err != nil {
			return nil, old, err
		}
		d.conns[key], d.live[c] = c, true
	}
	c.hold()
	return c, old, nil
}

// forget logs a connection out that nobody uses, and drops it; what it learned, its nodes know. Close waits for that.
func (d *Driver) forget(c *conn) {
	d.mu.Lock()
	if d.closed || !c.unused() { // Close ends all that it found
		d.mu.Unlock()
		return
	}
	delete(d.live, c)
	if d.conns[c.key] == c {
		delete(d.conns, c.key)
	}
	d.busy.Add(1)
	d.mu.Unlock()
	defer d.busy.Done()
	c.logout(d.ending)
}

// lastMoment is what logging out gets when the context of Close is over: a session that stays blocks others for long.
const lastMoment = 2 * time.Second

// Close logs every session out. It waits for what is still under way as long as ctx lasts, and a moment longer.
func (d *Driver) Close(ctx context.Context) error {
	d.mu.Lock()
	d.closed = true
	live := d.live
	d.live, d.conns = map[*conn]bool{}, map[connKey]*conn{}
	d.mu.Unlock()

	var all sync.WaitGroup
	for c := range live {
		all.Go(func() { c.shut(ctx) })
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		d.busy.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		late := time.AfterFunc(lastMoment, d.end)
		<-done
		late.Stop()
	}
	d.end()
	<-done
	return nil
}
