package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"regexp"
	"sync"
	"time"

	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
)

// ErrGone is the cause with which a context ends whose machine lost its power: nothing is finished and nobody is told.
var ErrGone = errors.New("the machine is gone")

// leaveWithin is how long a machine may take to go down after it said that it would. One that stays takes orders again.
const leaveWithin = 2 * time.Minute

// Run is an agent's life. It joins where it has no valid certificate, opens a session and carries out what it is handed,
// until ctx ends: then it finishes or breaks off what runs (Options.Grace), closes the session and returns nil. It survives
// a gateway that is away for any time. It returns an error only where trying again can't help: wrong options, or a gateway
// that refuses what it presents.
func Run(ctx context.Context, o Options) error {
	a, err := newAgent(ctx, o)
	if err != nil {
		return err
	}
	defer a.link.close()
	err = a.serve(ctx)
	a.shutDown(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// runner is one agent of one boot.
type runner struct {
	Options
	log    *slog.Logger
	bootID string
	link   *link
	book   *journal
	acks   acker

	claims  protocol.Claims
	freed   chan struct{} // an order has ended
	working sync.WaitGroup
	orders  context.Context //nolint:containedctx // of every order: it outlives Run's by the grace
	stop    context.CancelCauseFunc

	mu      sync.Mutex
	told    serverTime
	leaving time.Time // until when the machine is expected to go down
	reopen  bool      // the session was closed
}

var isFingerprint = regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString

func newAgent(ctx context.Context, o Options) (*runner, error) {
	o.Now = orNow(o.Now)
	o.Room = max(o.Room, 1)
	o.Backoff.First = cmp.Or(o.Backoff.First, 500*time.Millisecond)
	o.Backoff.Most = max(cmp.Or(o.Backoff.Most, 30*time.Second), o.Backoff.First)
	o.Grace = cmp.Or(o.Grace, 10*time.Second)
	if o.State == nil {
		o.State = MemoryState()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Heard == nil {
		o.Heard = func(time.Time) {}
	}
	a := &runner{Options: o, log: o.Logger, bootID: o.BootID, book: newJournal(), freed: make(chan struct{}, 1)}
	if o.Machine != nil {
		a.bootID = o.Machine.BootID()
	}
	if issues := a.check(); len(issues) > 0 {
		return nil, &fault.Error{Code: fault.InvalidConfig, Message: "the agent's options are not valid", Issues: issues}
	}
	a.acks.init(a.sendAcks)
	a.link = newLink(o)
	a.orders, a.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	return a, nil
}

func orNow(now func() time.Time) func() time.Time {
	if now == nil {
		return time.Now
	}
	return now
}

func (a *runner) check() (issues []fault.Issue) {
	need := func(ok bool, path, message string) {
		if !ok {
			issues = append(issues, fault.Issue{Path: path, Message: message})
		}
	}
	u, err := url.Parse(a.Gateway)
	need(err == nil && u.Scheme == "https" && u.Host != "", "gateway", "an https URL is needed")
	need(isFingerprint(a.CA), "ca", "the SHA-256 of the CA's certificate is needed, 64 lower-case hex digits")
	need(a.bootID != "", "bootId", "is needed")
	need(a.Role == agentcommand.RoleSite || a.Machine != nil, "machine", "is needed for the role "+string(a.Role))
	need(a.Role != "", "role", "is needed")
	return issues
}

// serve goes on until ctx ends or the gateway refuses what the agent is.
func (a *runner) serve(ctx context.Context) error {
	pause := a.pauses()
	for ctx.Err() == nil {
		a.waitToLeave(ctx)
		began := a.Now()
		err := a.attend(ctx)
		if a.Now().Sub(began) > a.Backoff.Most {
			pause.reset()
		}
		switch {
		case err == nil || ctx.Err() != nil:
			continue
		case fault.CodeOf(err) == fault.Unauthenticated:
			if end := a.readmit(ctx, err); end != nil {
				return end
			}
		case errors.Is(err, errRefused):
			return refused(err)
		default:
			a.log.Warn("there is no session yet; trying again", "error", err)
		}
		pause.wait(ctx, err)
	}
	return nil
}

// readmit sees to a certificate that the gateway did not accept: it is renewed, for it may have expired by the gateway's clock,
// or the agent joins again. It gives why the agent has to end, or nil to try again.
func (a *runner) readmit(ctx context.Context, err error) error {
	if a.link.who().AgentID == "" { // it is the token that was not accepted
		return refused(err)
	}
	switch renewal := a.renewNow(ctx); {
	case renewal == nil:
		a.log.Info("renewed a certificate that has expired by the gateway's clock")
	case fault.CodeOf(renewal) != fault.Unauthenticated: // the gateway has not judged
		a.log.Warn("the certificate is not accepted, and not renewed yet", "error", renewal)
	case a.Token == "" || !a.link.forget():
		return refused(err)
	default:
		a.log.Warn("the certificate is not accepted any more; joining again", "error", err)
	}
	return nil
}

// refused is why an agent ends. What is wrong on its own host is told as that: no token mends it.
func refused(err error) error {
	var known *fault.Error
	switch {
	case !errors.As(err, &known):
		return err
	case known.Code == fault.InvalidConfig:
		return known
	}
	return fault.Wrap(err, known.Code, "the gateway does not let this agent in: %s", known.Message).
		WithRemedy("give the agent a fresh join token")
}

// attend joins, opens a session and polls until that can't go on.
func (a *runner) attend(ctx context.Context) error {
	if err := a.readClaims(ctx); err != nil {
		return err
	}
	if err := a.join(ctx); err != nil {
		return err
	}
	answer, err := a.openSession(ctx)
	if err != nil {
		return err
	}
	pause := a.pauses()
	for ctx.Err() == nil {
		if a.mustReopen() || a.clockWasSet() {
			return nil
		}
		a.renewWhenDue(ctx)
		switch err := a.pollOnce(ctx, answer); {
		case err == nil:
			pause.reset()
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it broke off because the agent ends
		case transient(err) && fault.CodeOf(err) != fault.Unauthenticated:
			a.log.Warn("poll", "error", err)
			pause.wait(ctx, err)
		default:
			return err
		}
	}
	return nil
}

func (a *runner) readClaims(ctx context.Context) error {
	if a.Machine == nil {
		return nil
	}
	claims, err := a.Machine.Claims(ctx)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the machine does not tell who it is: %v", err)
	}
	a.claims = claims
	return nil
}

func (a *runner) openSession(ctx context.Context) (answer protocol.SessionAnswer, err error) {
	kinds := make([]agentcommand.KindName, 0, len(a.Kinds))
	for _, k := range agentcommand.Kinds { // in an order that does not change
		if a.Kinds[k.Name] != nil {
			kinds = append(kinds, k.Name)
		}
	}
	for name := range a.Kinds {
		if _, shipped := agentcommand.Find(agentcommand.Kinds, name); !shipped {
			kinds = append(kinds, name)
		}
	}
	asked := a.Now()
	err = a.link.call(ctx, protocol.PathSession, protocol.SessionRequest{
		BootID: a.bootID, Role: a.Role, Version: a.Version, Kinds: kinds, Claims: a.claims,
	}, &answer, callWithin)
	if err != nil {
		return answer, err
	}
	half := a.Now().Sub(asked) / 2
	a.Heard(answer.ServerTime)
	a.mu.Lock()
	a.reopen = false
	a.told = serverTime{}
	if !answer.ServerTime.IsZero() {
		a.told = serverTime{at: answer.ServerTime.Add(half), heard: time.Now(), clock: a.Now().Round(0)} // the clock as it is now
	}
	a.mu.Unlock()
	if answer.PollSeconds <= 0 {
		answer.PollSeconds = 30
	}
	a.link.renewAt(answer.RenewAfter)
	a.log.Info("connected", "gateway", a.Gateway, "agent", a.link.who().AgentID, "boot", a.bootID)
	return answer, nil
}

// serverTime is what the gateway told of the time, and when that was.
type serverTime struct {
	at    time.Time
	heard time.Time // by what no setting of a clock moves
	clock time.Time // that the machine's own clock showed
}

// clockStep is by how much a clock differs from the time that has passed where somebody has set it.
const clockStep = 5 * time.Second

// stepped tells whether the machine's clock was set since, or the machine slept: then what time it is has to be asked again.
func (s serverTime) stepped(clock time.Time) bool {
	off := clock.Round(0).Sub(s.clock) - time.Since(s.heard)
	return !s.at.IsZero() && (off > clockStep || off < -clockStep)
}

// now is the gateway's time, as well as it is known: a machine's own clock may be years off, and be set at any time.
func (a *runner) now() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.told.at.IsZero() {
		return a.Now()
	}
	return a.told.at.Add(time.Since(a.told.heard))
}

// waitToLeave waits while the machine is about to go down.
func (a *runner) waitToLeave(ctx context.Context) {
	for ctx.Err() == nil {
		a.mu.Lock()
		leaving := a.leaving
		a.mu.Unlock()
		switch rest := leaving.Sub(a.Now()); {
		case leaving.IsZero():
			return
		case rest <= 0:
			a.log.Warn("the machine said that it would go down, and is still up")
			a.mu.Lock()
			a.leaving = time.Time{}
			a.mu.Unlock()
		default:
			a.waitForRoom(ctx, rest)
		}
	}
}

func (a *runner) mustReopen() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reopen
}

func (a *runner) clockWasSet() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.told.stepped(a.Now())
}

// shutDown ends what runs, within the grace, and tells the gateway that the agent is gone.
func (a *runner) shutDown(ctx context.Context) {
	if !errors.Is(context.Cause(ctx), ErrGone) {
		a.giveBootBack(ctx)
	}
	done := make(chan struct{})
	go func() {
		a.working.Wait()
		close(done)
	}()
	if !errors.Is(context.Cause(ctx), ErrGone) {
		timer := time.NewTimer(a.Grace)
		select {
		case <-done:
		case <-timer.C:
			a.log.Warn("orders are broken off", "orders", a.book.doing())
		}
		timer.Stop()
	}
	a.stop(errShutDown)
	<-done
	a.acks.close()
	if !errors.Is(context.Cause(ctx), ErrGone) && !a.mustReopen() && a.link.who().AgentID != "" {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		a.closeSession(last, "shutdown")
	}
}

func (a *runner) closeSession(ctx context.Context, reason string) {
	err := a.link.call(ctx, protocol.PathClose, protocol.CloseRequest{BootID: a.bootID, Reason: reason}, nil, 2*time.Second)
	if err != nil {
		a.log.Debug("close", "error", err) // the gateway finds out by itself
	}
}

// pauses are the times between attempts: doubled each time, and jittered so that a thousand agents do not come back at once.
type pauses struct {
	bounds Backoff
	next   time.Duration
}

func (a *runner) pauses() *pauses { return &pauses{bounds: a.Backoff, next: a.Backoff.First} }

func (p *pauses) reset() { p.next = p.bounds.First }

// wait pauses for as long as err says, or for the next of the growing times.
func (p *pauses) wait(ctx context.Context, err error) {
	d := p.next/2 + rand.N(p.next/2+1) //nolint:gosec // spreads agents in time, nothing more
	p.next = min(2*p.next, p.bounds.Most)
	var known *fault.Error
	if errors.As(err, &known) {
		if seconds, ok := known.Details[fault.RetryAfter].(float64); ok && seconds > 0 {
			d = max(d, min(time.Duration(seconds*float64(time.Second)), p.bounds.Most))
		}
	}
	sleep(ctx, d)
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
