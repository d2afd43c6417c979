package redfish

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

// How long a power state may take to be reached, in polls: two minutes by default.
const powerPolls = 60

const defaultGraceful = 2 * time.Minute

// resetTypes are the ways to do an action, best first. Cycle is in cycle.
var resetTypes = map[node.PowerAction][]schemas.ResetType{
	node.ActionOn:       {schemas.OnResetType, schemas.ForceOnResetType, schemas.PushPowerButtonResetType},
	node.ActionOff:      {schemas.ForceOffResetType},
	node.ActionGraceful: {schemas.GracefulShutdownResetType, schemas.PushPowerButtonResetType},
	node.ActionReset:    {schemas.ForceRestartResetType, schemas.GracefulRestartResetType, schemas.PowerCycleResetType},
}

// powerOf is the state as told; a machine on its way to a state is not there yet. Empty: not told.
func powerOf(sys document) node.Power {
	switch schemas.PowerState(sys.text("PowerState")) {
	case schemas.OffPowerState:
		return node.PowerOff
	case schemas.OnPowerState, schemas.PoweringOnPowerState, schemas.PoweringOffPowerState, schemas.PausedPowerState:
		return node.PowerOn
	}
	return ""
}

// at reports whether the system has reached a state for good.
func at(sys document, want node.Power) bool {
	state := schemas.PowerState(sys.text("PowerState"))
	return powerOf(sys) == want && state != schemas.PoweringOnPowerState && state != schemas.PoweringOffPowerState
}

// Power reads the power state.
func (m *machine) Power(ctx context.Context) (bmc.PowerReading, error) {
	p := m.c.d.pace()
	for tries := 0; ; tries++ {
		sys, a, err := m.system(ctx)
		if err != nil {
			return bmc.PowerReading{}, err
		}
		if power := powerOf(sys); power != "" {
			return bmc.PowerReading{Power: power, StartedAgo: startedAgo(sys, a.header).Seconds()}, nil
		}
		if tries == busyTries {
			return bmc.PowerReading{}, broken(bmc.BadAnswer, "the controller does not tell the power state")
		}
		if p.wait(ctx, 0) != nil {
			return bmc.PowerReading{}, ended(ctx)
		}
	}
}

// startedAgo is how long before an answer the machine was reset or switched on: both are dated by the controller's clock, whatever
// time that shows (LastResetTime of ComputerSystem, DSP0268; Date, RFC 9110 §6.6.1). Zero: one of the two is missing, or they can't both
// be right, as where one of them is local time.
func startedAgo(sys document, answer http.Header) time.Duration {
	reset, err := time.Parse(time.RFC3339, sys.text("LastResetTime"))
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(answer.Get("Date"))
	if err != nil {
		return 0
	}
	return max(now.Sub(reset), 0)
}

// powering is one power action under way.
type powering struct {
	m       *machine
	sys     document // as read last
	allowed []string // nil: the controller does not tell
	result  bmc.PowerResult
	said    []string // the controller's last refusal: id and text
}

// SetPower changes power. It needs nothing but the system itself: other resources may be away while the host is off.
func (m *machine) SetPower(ctx context.Context, action node.PowerAction, o bmc.PowerOptions) (bmc.PowerResult, error) {
	sys, _, err := m.system(ctx)
	if err != nil {
		return bmc.PowerResult{}, err
	}
	w := &powering{m: m, sys: sys}
	off := at(sys, node.PowerOff)
	switch {
	case action == node.ActionOn && at(sys, node.PowerOn), (action == node.ActionOff || action == node.ActionGraceful) && off:
		w.result.Power = powerOf(sys)
		return w.result, nil
	}
	if err := w.readAllowed(ctx); err != nil {
		return w.result, err
	}
	switch action {
	case node.ActionOn:
		err = w.reach(ctx, action, node.PowerOn)
	case node.ActionOff:
		err = w.reach(ctx, action, node.PowerOff)
	case node.ActionGraceful:
		err = w.graceful(ctx, o)
	case node.ActionCycle:
		err = w.cycle(ctx, off)
	case node.ActionReset:
		err = w.reset(ctx, off)
	default:
		err = broken(bmc.Unsupported, "%q is no power action", action)
	}
	w.result.Power = powerOf(w.sys)
	return w.result, err
}

// readAllowed lists the reset types: beside the action, or in the document that it refers to.
func (w *powering) readAllowed(ctx context.Context) error {
	action := w.sys.object("Actions", "#ComputerSystem.Reset")
	if w.allowed = action.texts("ResetType@Redfish.AllowableValues"); len(w.allowed) > 0 {
		return nil
	}
	if w.allowed = w.m.known().Reset; len(w.allowed) > 0 {
		return nil
	}
	info := action.link("@Redfish.ActionInfo")
	if info == "" {
		return nil
	}
	doc, _, err := w.m.c.get(ctx, info)
	if err != nil {
		if ctx.Err() != nil {
			return ended(ctx)
		}
		return nil // then it is tried
	}
	for _, p := range doc.objects("Parameters") {
		if p.text("Name") == "ResetType" {
			w.allowed = p.texts("AllowableValues")
		}
	}
	w.m.learn(func(f *facts) { f.Reset = w.allowed })
	return nil
}

func (w *powering) offers(t schemas.ResetType) bool {
	return len(w.allowed) == 0 || slices.Contains(w.allowed, string(t))
}

// choose keeps what the controller allows of the ways to do an action.
func (w *powering) choose(types []schemas.ResetType) ([]schemas.ResetType, error) {
	var out []schemas.ResetType
	for _, t := range types {
		if w.offers(t) {
			out = append(out, t)
		}
	}
	if len(out) == 0 {
		return nil, broken(bmc.Unsupported, "the controller offers no reset type for this").
			WithDetail("wanted", types).WithDetail("found", w.allowed)
	}
	return out, nil
}

// reach sends an action until the state is observed.
func (w *powering) reach(ctx context.Context, action node.PowerAction, want node.Power) error {
	types, err := w.choose(resetTypes[action])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, powerPolls*w.m.c.d.o.Poll)
	defer cancel()
	for {
		if err := w.send(ctx, types, want); err != nil {
			return w.missed(err, want)
		}
		limit := powerPolls / 3 * w.m.c.d.o.Poll
		if w.pressed() {
			limit = powerPolls * w.m.c.d.o.Poll // a second press would undo the first
		}
		ok, err := w.watch(ctx, want, limit)
		if ok || err != nil {
			return w.missed(err, want)
		}
		w.result.Retried++ // some drop what comes too early after the last change
	}
}

// missed says what was reached instead, where the time is over.
func (w *powering) missed(err error, want node.Power) error {
	if err == nil || fault.CodeOf(err) != fault.Timeout {
		return err
	}
	e := broken(bmc.PowerNotReached, "the machine did not reach the wanted power state").
		WithDetail("wanted", string(want)).WithDetail("found", w.sys.label("PowerState")).WithDetail("sent", w.result.Sent)
	if w.said != nil {
		e.WithDetail("messageId", w.said[0]).WithDetail("message", w.said[1])
	}
	return e
}

// watch looks at the system until it is in the wanted state; false when limit is over first.
func (w *powering) watch(ctx context.Context, want node.Power, limit time.Duration) (bool, error) {
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for p := w.m.c.d.pace(); ; {
		sys, _, err := w.m.system(ctx)
		switch {
		case err == nil:
			w.sys = sys
			if at(sys, want) {
				return true, nil
			}
		case outer.Err() != nil:
			return false, ended(outer)
		case ctx.Err() == nil && !passing(err):
			return false, err
		}
		if p.wait(ctx, 0) != nil {
			if outer.Err() != nil {
				return false, ended(outer)
			}
			return false, nil
		}
	}
}

// passing reports an error that a look later may not have.
func passing(err error) bool {
	return fault.CodeOf(err) == fault.Unavailable || reasonOf(err) == bmc.NotReady
}

// send posts the first of the types that the controller takes. Whatever it answers, the state is what counts: an error
// after which the machine is as wanted is none. want may be empty: then only the answer can tell.
func (w *powering) send(ctx context.Context, types []schemas.ResetType, want node.Power) error {
	p := w.m.c.d.pace()
	for tries := 0; ; tries++ {
		r := request{method: http.MethodPost, path: w.target(), body: map[string]string{"ResetType": string(types[0])}}
		if n := len(w.result.Sent); n == 0 || w.result.Sent[n-1] != string(types[0]) {
			w.result.Sent = append(w.result.Sent, string(types[0]))
		}
		a, err := w.m.c.do(ctx, r)
		var failed error
		if err == nil {
			failed = w.outcome(ctx, r, a)
		} else if failed = err; fault.CodeOf(err) != fault.Unavailable {
			return err
		}
		if failed == nil {
			w.result.Changed = true
			return nil
		}
		if ctx.Err() != nil {
			return ended(ctx)
		}
		if w.pressed() && (a == nil || perhapsDone(a.status)) {
			w.result.Changed = true
			return nil // whether it was pressed, the state tells
		}
		if reached, err := w.settled(ctx, want, failed); reached || err != nil {
			return err
		}
		switch {
		case a != nil && a.status == 400 && len(types) > 1 && !transient(a):
			w.result.Sent = w.result.Sent[:len(w.result.Sent)-1] // it was refused
			types = types[1:]
		case !w.bears(a, want, tries) || reasonOf(failed) == bmc.TaskFailed:
			return failed
		}
		var pause time.Duration
		if a != nil {
			pause = a.retryAfter(w.m.c.d.o.Now())
		}
		if pause > patience || !leaves(ctx, pause) {
			return failed
		}
		if p.wait(ctx, pause) != nil {
			return ended(ctx)
		}
		w.result.Retried++
	}
}

// bears reports whether the action may be sent once more after this answer; nil is one that was lost. What was perhaps done
// is not done again where doing it twice is not doing it once.
func (w *powering) bears(a *answer, want node.Power, tries int) bool {
	switch {
	case a == nil:
		return want != ""
	case perhapsDone(a.status):
		return want != "" && tries < busyTries
	}
	return transient(a)
}

// perhapsDone tells a failure on the way from a refusal to begin.
func perhapsDone(status int) bool { return status >= 500 && status != http.StatusServiceUnavailable }

// pressed reports that the last thing sent was the press of a button, which does not bear repeating.
func (w *powering) pressed() bool {
	n := len(w.result.Sent)
	return n > 0 && w.result.Sent[n-1] == string(schemas.PushPowerButtonResetType)
}

func (w *powering) target() string {
	if t := localPath(w.sys.text("Actions", "#ComputerSystem.Reset", "target")); t != "" {
		return t
	}
	return strings.TrimRight(w.m.known().System, "/") + "/Actions/ComputerSystem.Reset"
}

// outcome is nil where the action was taken and what it started did not fail.
func (w *powering) outcome(ctx context.Context, r request, a *answer) error {
	if a.failed() {
		id, text := w.m.c.words(a)
		w.said = []string{id, text}
		return w.m.c.refusal(r, a)
	}
	return w.m.c.settle(ctx, a)
}

// settled looks, after an error, whether the machine is as wanted all the same.
func (w *powering) settled(ctx context.Context, want node.Power, failed error) (bool, error) {
	if want == "" {
		return false, nil
	}
	sys, _, err := w.m.system(ctx)
	if err != nil {
		if passing(err) && ctx.Err() == nil {
			return false, nil
		}
		return false, failed
	}
	if w.sys = sys; at(sys, want) {
		w.result.Changed = true
		return true, nil
	}
	return false, nil
}

// transient reports a refusal that passes by itself: a conflict with the last change, a machine in POST, a busy controller.
func transient(a *answer) bool {
	return a.status == 409 || a.status == 429 || a.status >= 500 ||
		a.says("UnableToModifyDuringSystemPOST", "ResourceInUse", "ResourceInStandby", "ServiceTemporarilyUnavailable",
			"in POST", "SYS518")
}

// graceful asks the OS to shut down, and takes the power away after the deadline where the caller allows it.
func (w *powering) graceful(ctx context.Context, o bmc.PowerOptions) error {
	if o.Graceful <= 0 {
		o.Graceful = defaultGraceful
	}
	types, err := w.choose(resetTypes[node.ActionGraceful])
	if err == nil {
		soft, cancel := context.WithTimeout(ctx, o.Graceful)
		defer cancel()
		if err = w.send(soft, types, node.PowerOff); err == nil {
			var off bool
			if off, err = w.watch(soft, node.PowerOff, o.Graceful); off {
				return nil
			}
		}
	}
	switch {
	case ctx.Err() != nil:
		return w.missed(ended(ctx), node.PowerOff)
	case o.Force && (err == nil || fault.CodeOf(err) == fault.Timeout || fault.CodeOf(err) == fault.DriverError):
		w.result.Forced = true
		return w.reach(ctx, node.ActionOff, node.PowerOff)
	case err == nil:
		err = fault.New(fault.Timeout, "the machine did not shut down")
	}
	return w.missed(err, node.PowerOff)
}
