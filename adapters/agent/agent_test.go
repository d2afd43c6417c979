package agent

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

const (
	quick       = agentcommand.DriverInvoke // neither destructive nor attested
	destructive = agentcommand.DiskWipe     // both
	last        = agentcommand.NodeReboot   // destructive and self-terminating
)

type answered struct{ Value string }

// gives is a handler with one answer, which counts how often it runs.
func gives(value any, err error) (Handler, *atomic.Int32) {
	var ran atomic.Int32
	return func(context.Context, Order) (any, func(context.Context) error, error) {
		ran.Add(1)
		return value, nil, err
	}, &ran
}

func TestAnOrderIsDoneAndSigned(t *testing.T) {
	g := newGateway(t)
	wipe, _ := gives(answered{"x"}, nil)
	invoke, _ := gives(answered{"y"}, nil)
	o := g.options(map[agentcommand.KindName]Handler{destructive: wipe, quick: invoke})
	stop := run(t, o)
	plain, signed := g.order(quick, struct{}{}), g.order(destructive, struct{}{})
	r := g.result(signed)
	identity, _, _ := o.State.Load()
	certificate, err := x509.ParseCertificate(identity.Certificate)
	check(t, err)
	if r.Status != agentcommand.Succeeded || string(r.Result) != `{"Value":"x"}` || !g.verify(signed, r, certificate) {
		t.Errorf("got %+v", r)
	}
	if r := g.result(plain); r.Attestation != nil || r.Status != agentcommand.Succeeded || string(r.Result) != `{"Value":"y"}` {
		t.Errorf("got %+v", r)
	}
	if err := stop(nil); err != nil {
		t.Error(err)
	}
	g.do(func() {
		if !g.acked[signed.ID] || g.acked[plain.ID] {
			t.Errorf("acked: %v; what settles at once needs no ack, what destroys does", g.acked)
		}
		if last := g.calls[len(g.calls)-1]; last.path != protocol.PathClose || !strings.Contains(string(last.body), "shutdown") {
			t.Errorf("the last call is %s", last.path)
		}
	})
}

func TestARepeatIsAnsweredFromTheJournal(t *testing.T) {
	g := newGateway(t)
	wipe, ran := gives(answered{"first"}, nil)
	options := g.options(map[agentcommand.KindName]Handler{destructive: wipe})
	options.Room = 1
	run(t, options)
	o := g.order(destructive, struct{}{})
	first := g.result(o)
	g.until("poll after the result", func() bool { return g.calls[len(g.calls)-1].path == protocol.PathPoll })
	g.do(func() { // as if the gateway had lost it
		delete(g.results, o.ID)
		delete(g.acked, o.ID)
	})
	if again := g.result(o); ran.Load() != 1 || string(again.Attestation.Signature) != string(first.Attestation.Signature) {
		t.Errorf("it ran %d times; %+v", ran.Load(), again)
	}
}

func TestNothingIsDestroyedBeforeTheAckArrived(t *testing.T) {
	g := newGateway(t)
	var acksRefused atomic.Int32
	g.refuse = func(path string, _ []byte) error {
		if path == protocol.PathAck && acksRefused.Add(1) <= 3 {
			return fault.New(fault.Unavailable, "away")
		}
		return nil
	}
	run(t, g.options(map[agentcommand.KindName]Handler{
		destructive: func(_ context.Context, o Order) (any, func(context.Context) error, error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.acked[o.ID], nil, nil
		},
	}))
	o := g.order(destructive, struct{}{})
	if r := g.result(o); string(r.Result) != "true" || acksRefused.Load() < 4 {
		t.Errorf("got %+v after %d acks", r, acksRefused.Load())
	}
}

func TestAnOrderThatIsOverIsNotBegun(t *testing.T) {
	g := newGateway(t)
	wipe, ran := gives(nil, nil)
	gone := g.order(destructive, struct{}{})
	wanted := g.order(destructive, struct{}{})
	g.refuse = func(path string, body []byte) error {
		if path == protocol.PathAck && strings.Contains(string(body), gone.ID) {
			return fault.New(fault.Conflict, "the order is over")
		}
		return nil
	}
	run(t, g.options(map[agentcommand.KindName]Handler{destructive: wipe}))
	if r := g.result(wanted); r.Status != agentcommand.Succeeded || ran.Load() != 1 {
		t.Errorf("%+v; %d ran", r, ran.Load())
	}
	g.do(func() {
		if r, told := g.results[gone.ID]; told {
			t.Errorf("told %+v of what nobody wants", r)
		}
	})
}

func TestALateOrderIsNotBegun(t *testing.T) {
	g := newGateway(t)
	invoke, ran := gives(nil, nil)
	o := g.order(quick, struct{}{})
	g.do(func() { g.orders[0].NotAfter = time.Now().Add(-time.Second) })
	run(t, g.options(map[agentcommand.KindName]Handler{quick: invoke}))
	if r := g.result(o); r.Code != string(fault.Timeout) || ran.Load() != 0 {
		t.Errorf("got %+v; it ran %d times", r, ran.Load())
	}
}

// A machine whose clock is years behind still joins, and judges deadlines by the gateway's clock.
func TestAClockThatIsBehind(t *testing.T) {
	g := newGateway(t)
	invoke, _ := gives(nil, nil)
	o := g.options(map[agentcommand.KindName]Handler{quick: invoke})
	o.Now = func() time.Time { return time.Now().AddDate(-9, 0, 0) }
	run(t, o)
	if r := g.result(g.order(quick, struct{}{})); r.Status != agentcommand.Succeeded {
		t.Errorf("got %+v", r)
	}
}

// A clock that is set while the agent runs makes no order too late, and none that is too late good.
func TestAClockThatIsSet(t *testing.T) {
	for name, by := range map[string]time.Duration{"forward": 40 * time.Minute, "back": -40 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t)
			invoke, ran := gives(nil, nil)
			var off atomic.Int64
			o := g.options(map[agentcommand.KindName]Handler{quick: invoke})
			o.Now = func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
			run(t, o)
			g.result(g.order(quick, struct{}{}))
			off.Store(int64(by))
			if r := g.result(g.order(quick, struct{}{})); r.Status != agentcommand.Succeeded {
				t.Errorf("in time: got %+v", r)
			}
			late := protocol.Order{
				ID: id.Of[id.AgentCommand](uuid.Must(uuid.NewV7())).String(), Kind: quick, NodeID: theNode.String(), Attempt: 1,
				NotAfter: time.Now().Add(-time.Minute), Payload: []byte("{}"),
			}
			g.do(func() { g.orders = append(g.orders, late) })
			if r := g.result(late); r.Code != string(fault.Timeout) || ran.Load() != 2 {
				t.Errorf("too late: got %+v; it ran %d times", r, ran.Load())
			}
			g.until("another session", func() bool { return g.count(protocol.PathSession) > 1 })
		})
	}
}

func TestALongOrderIsAckedAndTellsItsProgress(t *testing.T) {
	g, began := newGateway(t), time.Now()
	run(t, g.options(map[agentcommand.KindName]Handler{
		quick: func(ctx context.Context, o Order) (any, func(context.Context) error, error) {
			for told := false; !told; {
				o.Progress(7, "on the way")
				g.mu.Lock()
				told = g.count(protocol.PathProgress) > 0 && g.acked[o.ID]
				g.mu.Unlock()
				sleep(ctx, time.Millisecond)
			}
			return nil, nil, ctx.Err()
		},
	}))
	o := g.order(quick, struct{}{})
	if r := g.result(o); r.Status != agentcommand.Succeeded {
		t.Errorf("got %+v", r)
	}
	g.do(func() {
		if n, took := g.count(protocol.PathProgress), time.Since(began); n > 2+int(took.Seconds()) {
			t.Errorf("%d reports in %s", n, took)
		}
	})
}

func TestACancelledOrderStops(t *testing.T) {
	g := newGateway(t)
	begun, ended := make(chan struct{}), make(chan error, 1)
	o := g.options(map[agentcommand.KindName]Handler{
		quick: func(ctx context.Context, _ Order) (any, func(context.Context) error, error) {
			close(begun)
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil, nil, ctx.Err()
		},
	})
	o.Room = 1
	run(t, o)
	order := g.order(quick, struct{}{})
	<-begun
	g.do(func() {
		g.orders, g.cancel = nil, []string{order.ID}
	})
	if cause := <-ended; !errors.Is(cause, errCancelled) {
		t.Errorf("it ended by %v", cause)
	}
	other := g.order(destructive, struct{}{}) // which it does not know
	if r := g.result(other); r.Status != agentcommand.Rejected {
		t.Errorf("got %+v", r)
	}
	g.do(func() {
		if _, told := g.results[order.ID]; told {
			t.Error("a result of what was cancelled")
		}
	})
}

func TestAFailureTellsWhatToDo(t *testing.T) {
	g := newGateway(t)
	run(t, g.options(map[agentcommand.KindName]Handler{
		quick: func(context.Context, Order) (any, func(context.Context) error, error) {
			long := strings.Repeat("ä", reasonMost)
			return nil, nil, fault.New(fault.DriverError, "%s", long).WithDetail("reason", "not-ready").WithRemedy("wait a little")
		},
	}))
	r := g.result(g.order(quick, struct{}{}))
	var told struct{ Reason, Remedy string }
	if err := json.Unmarshal(r.Details, &told); err != nil || told.Reason != "not-ready" || told.Remedy != "wait a little" {
		t.Errorf("details %s (%v)", r.Details, err)
	}
	if len(r.Reason) > reasonMost || strings.ContainsRune(r.Reason, utf8.RuneError) {
		t.Errorf("%d bytes of a reason, which end in %q", len(r.Reason), r.Reason[len(r.Reason)-8:])
	}
}

func TestAPanicFailsTheOrderOnly(t *testing.T) {
	g := newGateway(t)
	invoke, _ := gives(nil, nil)
	run(t, g.options(map[agentcommand.KindName]Handler{
		quick: invoke,
		destructive: func(context.Context, Order) (any, func(context.Context) error, error) {
			panic("of a handler")
		},
	}))
	if r := g.result(g.order(destructive, struct{}{})); r.Status != agentcommand.Failed || r.Code != string(fault.Internal) {
		t.Errorf("got %+v", r)
	}
	if r := g.result(g.order(quick, struct{}{})); r.Status != agentcommand.Succeeded {
		t.Errorf("got %+v", r)
	}
}

func TestAGatewayThatIsAway(t *testing.T) {
	g := newGateway(t)
	release := make(chan struct{})
	begun := make(chan struct{})
	run(t, g.options(map[agentcommand.KindName]Handler{
		quick: func(ctx context.Context, _ Order) (any, func(context.Context) error, error) {
			close(begun)
			select {
			case <-release:
			case <-ctx.Done():
			}
			return answered{"kept"}, nil, ctx.Err()
		},
	}))
	o := g.order(quick, struct{}{})
	<-begun
	g.stop()
	close(release)
	g.start(g.address)
	if r := g.result(o); string(r.Result) != `{"Value":"kept"}` {
		t.Errorf("got %+v", r)
	}
	g.do(func() {
		if g.joins != 1 {
			t.Errorf("joined %d times", g.joins)
		}
	})
}

func TestAfterRunsOnceTheResultIsDelivered(t *testing.T) {
	g := newGateway(t)
	var refused atomic.Int32
	g.refuse = func(path string, _ []byte) error {
		if path == protocol.PathResult && refused.Add(1) <= 3 {
			return fault.New(fault.Unavailable, "away")
		}
		return nil
	}
	down := make(chan int32, 1)
	stop := run(t, g.options(map[agentcommand.KindName]Handler{
		last: func(context.Context, Order) (any, func(context.Context) error, error) {
			return nil, func(context.Context) error {
				down <- refused.Load()
				return nil
			}, nil
		},
	}))
	o := g.order(last, struct{}{})
	if n := <-down; n != 4 {
		t.Errorf("the machine went down at attempt %d", n)
	}
	if r := g.result(o); r.Status != agentcommand.Succeeded {
		t.Errorf("got %+v", r)
	}
	check(t, stop(ErrGone))
	g.do(func() {
		closed := slices.IndexFunc(g.calls, func(c call) bool { return c.path == protocol.PathClose })
		if closed < 0 || !strings.Contains(string(g.calls[closed].body), string(last)) {
			t.Error("the session was not closed before the machine went down")
		}
		for _, c := range g.calls[closed+1:] {
			if c.path == protocol.PathSession || c.path == protocol.PathClose {
				t.Errorf("after the end: %s", c.path)
			}
		}
	})
}

func TestAMachineThatDoesNotGoDown(t *testing.T) {
	g := newGateway(t)
	invoke, _ := gives(nil, nil)
	run(t, g.options(map[agentcommand.KindName]Handler{
		quick: invoke,
		last: func(context.Context, Order) (any, func(context.Context) error, error) {
			return nil, func(context.Context) error { return errors.New("no") }, nil
		},
	}))
	g.result(g.order(last, struct{}{}))
	if r := g.result(g.order(quick, struct{}{})); r.Status != agentcommand.Succeeded {
		t.Errorf("got %+v", r)
	}
}

// This gateway would have each certificate renewed at once; the agent takes its time all the same.
func TestACertificateIsRenewedAndUsed(t *testing.T) {
	g := newGateway(t)
	g.renew = 0
	wipe, _ := gives(nil, nil)
	o := g.options(map[agentcommand.KindName]Handler{destructive: wipe})
	stop := run(t, o)
	g.until("use of the new certificate", func() bool {
		return g.count(protocol.PathRenew) > 0 && slices.ContainsFunc(g.calls, func(c call) bool {
			return c.path == protocol.PathPoll && c.cert != g.calls[1].cert // the one of the session
		})
	})
	order := g.order(destructive, struct{}{})
	r := g.result(order)
	identity, _, _ := o.State.Load()
	certificate, err := x509.ParseCertificate(identity.Certificate)
	check(t, err)
	if !g.verify(order, r, certificate) {
		t.Error("the result is not signed under the new certificate")
	}
	check(t, stop(nil))
	g.do(func() {
		if g.calls[len(g.calls)-1].cert != fingerprint(identity.Certificate) || g.count(protocol.PathRenew) != 1 {
			t.Errorf("the new certificate is not presented, or %d renewals", g.count(protocol.PathRenew))
		}
	})
}

// A token that may be used several times does not bring an agent back whose certificate was taken away; a fresh one does.
func TestARevokedAgentNeedsAFreshToken(t *testing.T) {
	g := newGateway(t)
	invoke, _ := gives(nil, nil)
	o := g.options(map[agentcommand.KindName]Handler{quick: invoke})
	stop := run(t, o)
	g.result(g.order(quick, struct{}{}))
	g.do(func() { g.agents = map[string]bool{} })
	if err := Run(t.Context(), o); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("with the old token: %v", err)
	}
	if err := stop(nil); err != nil && fault.CodeOf(err) != fault.Unauthenticated { // it may end by itself before
		t.Errorf("the agent that was revoked: %v", err)
	}
	o.Token = "fresh"
	run(t, o)
	g.result(g.order(quick, struct{}{}))
	g.do(func() {
		if g.joins != 2 {
			t.Errorf("joined %d times", g.joins)
		}
	})
}

func TestAnExpiredCertificateIsRenewed(t *testing.T) {
	for name, behind := range map[string]time.Duration{"by both clocks": 0, "by the gateway's clock only": 2 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t)
			invoke, _ := gives(nil, nil)
			o := g.options(map[agentcommand.KindName]Handler{quick: invoke})
			stop := run(t, o)
			g.result(g.order(quick, struct{}{}))
			check(t, stop(nil))
			identity, _, _ := o.State.Load()
			csr := g.calls[0]
			g.do(func() { g.lifetime = -time.Second })
			first, err := g.issue(decoded[protocol.JoinRequest](t, csr.body).CSR)
			check(t, err)
			g.do(func() { g.lifetime = time.Hour })
			identity.Certificate, identity.NotAfter = first.Certificate, first.NotAfter
			check(t, o.State.Save(identity))
			o.Token = ""
			o.Now = func() time.Time { return time.Now().Add(-behind) }
			run(t, o)
			if r := g.result(g.order(quick, struct{}{})); r.Status != agentcommand.Succeeded {
				t.Errorf("got %+v", r)
			}
			g.do(func() {
				if g.joins != 1 || g.count(protocol.PathRenew) != 1 {
					t.Errorf("%d joins, %d renewals", g.joins, g.count(protocol.PathRenew))
				}
			})
		})
	}
}

func TestAStartWithAStateDoesNotJoin(t *testing.T) {
	g := newGateway(t)
	invoke, _ := gives(nil, nil)
	o := g.options(map[agentcommand.KindName]Handler{quick: invoke})
	o.State = FileState(t.TempDir())
	stop := run(t, o)
	g.result(g.order(quick, struct{}{}))
	check(t, stop(nil))
	comesBack(t, g, o)
}

// comesBack is an agent that works without joining again.
func comesBack(t *testing.T, g *gateway, o Options) {
	t.Helper()
	o.Token = ""
	run(t, o)
	g.result(g.order(quick, struct{}{}))
	g.do(func() {
		if g.joins != 1 {
			t.Errorf("joined %d times", g.joins)
		}
	})
}

// A process that dies before the answer to its join arrived joins with the same key after it: the token is not lost.
func TestAJoinWhoseAnswerIsLost(t *testing.T) {
	g := newGateway(t)
	o := g.options(nil)
	o.State = FileState(t.TempDir())
	g.refuse = func(path string, _ []byte) error { return fault.New(fault.Unavailable, "the answer is lost") }
	stop := run(t, o)
	g.until("attempts", func() bool { return g.count(protocol.PathJoin) > 1 })
	check(t, stop(ErrGone))
	g.do(func() { g.refuse = nil })
	run(t, o)
	g.until("session", func() bool { return g.count(protocol.PathSession) > 0 })
	g.do(func() {
		keys := map[string]bool{}
		for _, c := range g.calls {
			if c.path == protocol.PathJoin {
				csr, err := x509.ParseCertificateRequest(decoded[protocol.JoinRequest](t, c.body).CSR)
				check(t, err)
				keys[string(csr.RawSubjectPublicKeyInfo)] = true
			}
		}
		if len(keys) != 1 {
			t.Errorf("%d keys", len(keys))
		}
	})
}

func TestWhatEndsAnAgent(t *testing.T) {
	g := newGateway(t)
	for name, c := range map[string]struct {
		change func(*Options)
		want   fault.Code
	}{
		"a token that is refused":  {func(o *Options) { o.Token = "bad" }, fault.Unauthenticated},
		"no token":                 {func(o *Options) { o.Token = "" }, fault.Unauthenticated},
		"no https":                 {func(o *Options) { o.Gateway = "http://x" }, fault.InvalidConfig},
		"no fingerprint":           {func(o *Options) { o.CA = "x" }, fault.InvalidConfig},
		"a machine that is needed": {func(o *Options) { o.Role = agentcommand.RoleRamdisk }, fault.InvalidConfig},
	} {
		t.Run(name, func(t *testing.T) {
			o := g.options(nil)
			c.change(&o)
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			if err := Run(ctx, o); fault.CodeOf(err) != c.want || strings.Contains(err.Error(), "bad") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A server that does not lead to the CA is told nothing, the token least of all; nor is one of another name.
func TestAnotherCAIsNotTrusted(t *testing.T) {
	for name, change := range map[string]func(*gateway, *Options){
		"another CA":   func(g *gateway, o *Options) { o.CA = strings.Repeat("0", 64) },
		"another name": func(g *gateway, o *Options) { g.server.Certificate = g.issueServer("127.0.0.2").Certificate },
		"self-made chain": func(g *gateway, o *Options) { // the real CA's certificate, but a server certificate of another
			key, ca := newCA(t)
			genuine := g.ca
			g.caKey, g.ca = key, ca
			forged := g.issueServer("127.0.0.1")
			g.server.Certificate, g.server.PrivateKey = [][]byte{forged.Certificate[0], genuine.Raw}, forged.PrivateKey
			g.ca = genuine
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t)
			o := g.options(nil)
			g.stop()
			change(g, &o)
			g.start(g.address)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if err := Run(ctx, o); err != nil {
				t.Error(err)
			}
			g.do(func() {
				if len(g.calls) > 0 {
					t.Errorf("it was told %s", g.calls[0].body)
				}
			})
		})
	}
}

func TestSecretsAreNotTold(t *testing.T) {
	g := newGateway(t)
	g.secrets["secret:1"] = `{"username":"root","password":"hunter2 \"quoted\""}`
	run(t, g.options(map[agentcommand.KindName]Handler{
		quick: func(ctx context.Context, o Order) (any, func(context.Context) error, error) {
			value, err := o.Secret(ctx, "secret:1")
			if err != nil {
				return nil, nil, err
			}
			var c struct{ Username, Password string }
			if err := json.Unmarshal(value, &c); err != nil {
				return nil, nil, err
			}
			return map[string]string{"echo": c.Username + c.Password}, nil,
				fault.New(fault.DriverError, "no login with %s", c.Password).WithDetail("tried", "x"+c.Password)
		},
	}))
	r := g.result(g.order(quick, struct{}{}))
	text, _ := json.Marshal(r)
	if strings.Contains(string(text), "hunter2") || !strings.Contains(string(r.Result), "root[redacted]") || r.Code != "DRIVER_ERROR" {
		t.Errorf("told %s", text)
	}
}

func TestShutdownWaitsForWhatRuns(t *testing.T) {
	for name, c := range map[string]struct {
		grace time.Duration
		cause error
		told  bool
	}{
		"within the grace": {soon, nil, true},
		"beyond it":        {time.Millisecond, nil, false},
		"power is lost":    {soon, ErrGone, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t)
			begun, stopping := make(chan struct{}), make(chan struct{})
			o := g.options(map[agentcommand.KindName]Handler{
				quick: func(ctx context.Context, _ Order) (any, func(context.Context) error, error) {
					close(begun)
					<-stopping
					if !c.told {
						<-ctx.Done()
					}
					return answered{}, nil, ctx.Err()
				},
			})
			o.Grace = c.grace
			stop := run(t, o)
			order := g.order(quick, struct{}{})
			<-begun
			time.AfterFunc(20*time.Millisecond, func() { close(stopping) })
			check(t, stop(c.cause))
			g.do(func() {
				if _, told := g.results[order.ID]; told != c.told {
					t.Errorf("told: %v", told)
				}
				if closed := g.count(protocol.PathClose) > 0; closed != (c.cause == nil) {
					t.Errorf("closed: %v", closed)
				}
			})
		})
	}
}

// A result that the gateway can't take is not left out: the order fails with the reason.
func TestAResultThatIsRefused(t *testing.T) {
	g := newGateway(t)
	wipe, _ := gives(answered{"too much"}, nil)
	g.refuse = func(path string, body []byte) error {
		if path == protocol.PathResult && strings.Contains(string(body), "too much") {
			return fault.New(fault.InvalidInput, "the result is too large")
		}
		return nil
	}
	run(t, g.options(map[agentcommand.KindName]Handler{destructive: wipe}))
	if r := g.result(g.order(destructive, struct{}{})); r.Status != agentcommand.Failed || !strings.Contains(r.Reason, "too large") {
		t.Errorf("got %+v", r)
	}
}

// A wipe of hundreds of broken disks is told without what is too long, at once: nobody waits a day for it to be too late.
func TestAFailureThatIsRefusedIsToldInFewerWords(t *testing.T) {
	for name, c := range map[string]struct {
		refused []string
		result  bool
	}{
		"details":            {[]string{"each of them"}, true},
		"details and result": {[]string{"each of them", "too much"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t)
			wipe, _ := gives(answered{"too much"}, fault.New(fault.DriverError, "2 of 9 disks").WithDetail("disks", "each of them"))
			g.refuse = func(path string, body []byte) error {
				for _, text := range c.refused {
					if path == protocol.PathResult && strings.Contains(string(body), text) {
						return fault.New(fault.InvalidInput, "the result is too large")
					}
				}
				return nil
			}
			run(t, g.options(map[agentcommand.KindName]Handler{destructive: wipe}))
			r := g.result(g.order(destructive, struct{}{}))
			if r.Status != agentcommand.Failed || r.Reason != "2 of 9 disks" || len(r.Result) > 0 != c.result || r.Attestation == nil {
				t.Errorf("got %+v", r)
			}
		})
	}
}
