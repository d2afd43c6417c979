package node

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// Decider is the aggregate.
var Decider = event.Decider[State, Command, Event]{Decide: Decide, Evolve: Evolve}

// MaxReason bounds the reason of an abort, an abandon, maintenance and a cordon, in characters.
const MaxReason = 512

// Decide applies one verb. No events and no error: there was nothing to change. Errors: NOT_FOUND, INVALID_STATE with the
// legal verbs in the details, CONFLICT, UNVERIFIED_WIPE, INVALID_INPUT.
func Decide(s State, c Command) ([]Event, error) {
	switch c := c.(type) {
	case Enroll:
		return born(s, VerbEnroll, Enrolling, c.Facts)
	case Join:
		return born(s, VerbJoin, Joined, c.Facts)
	case VoidEnrollment:
		if s.Exists() || s.Voided {
			return nil, fault.New(fault.Conflict, "node %s exists", c.Facts.Node)
		}
		return []Event{c.Facts}, nil
	}
	if !s.Exists() {
		return nil, fault.New(fault.NotFound, "there is no such node")
	}
	if events, mine, err := decideMove(s, c); mine {
		return events, err
	}
	if events, mine, err := decideWorkflow(s, c); mine {
		return events, err
	}
	return decideAxis(s, c)
}

func born(s State, v Verb, to ProvisionState, first Event) ([]Event, error) {
	switch {
	case s.Voided:
		return nil, fault.New(fault.Conflict, "this enrollment was refused or took too long, and its addresses were given back").
			WithRemedy("enroll the machine again under a new Idempotency-Key")
	case s.Exists():
		return nil, fault.New(fault.Conflict, "node %s exists already", s.ID)
	}
	return []Event{first, Moved{From: None, To: to, Verb: v}}, nil
}

// decideMove decides the operator's verbs of the table.
func decideMove(s State, c Command) (events []Event, mine bool, err error) {
	switch c := c.(type) {
	case Accept:
		events, err = move(s, VerbAccept, Moved{})
	case Manage:
		events, err = move(s, VerbManage, Moved{})
	case Inspect:
		events, err = move(s, VerbInspect, Moved{})
	case Provide:
		events, err = move(s, VerbProvide, Moved{})
	case Deploy:
		events, err = deploy(s, c)
	case Undeploy:
		events, err = undeploy(s, c)
	case AskRescue:
		events, err = move(s, VerbRescue, Moved{})
	case AskUnrescue:
		events, err = unrescue(s, c)
	case Retire:
		events, err = retire(s, c)
	case Abandon:
		events, err = abandon(s, c)
	case Recover:
		events, err = recoverNode(s)
	default:
		return nil, false, nil
	}
	return events, true, err
}

// move gives the one move that the table allows, filled in from m.
func move(s State, v Verb, m Moved) ([]Event, error) {
	to := Destinations(s.Provision, v, s.FailedFrom)
	if len(to) == 0 {
		return nil, illegal(s, v)
	}
	m.From, m.To, m.Verb = s.Provision, to[0], v
	return []Event{m}, nil
}

func illegal(s State, v Verb) *fault.Error {
	var asked []string
	legal := Legal(s.Provision, s.FailedFrom)
	e := fault.New(fault.InvalidState, "%s is not legal in %s", v, s.Provision).
		WithDetail("state", string(s.Provision)).WithDetail("verb", string(v)).WithDetail("legal", legal)
	if s.Provision == Failed {
		e = e.WithDetail("failedFrom", string(s.FailedFrom))
	}
	if len(legal) == 0 {
		return e.WithRemedy("nothing moves a node out of " + string(s.Provision))
	}
	for _, v := range legal {
		if AskedBy(v) == Operator && v != VerbRetry && (v != VerbAbort || s.Workflow != nil) {
			asked = append(asked, string(v))
		}
	}
	if len(asked) == 0 {
		return e.WithRemedy("wait: the control plane moves the node on from " + string(s.Provision))
	}
	return e.WithRemedy("legal now: " + strings.Join(asked, ", "))
}

func deploy(s State, c Deploy) ([]Event, error) {
	var issues []fault.Issue
	if c.Profile.ID == "" {
		issues = append(issues, fault.Issue{Path: "body.profileId", Message: "a profile's id"})
	}
	if c.Profile.Version < 1 {
		issues = append(issues, fault.Issue{Path: "body.profileVersion", Message: "a version of 1 or more"})
	}
	if len(issues) > 0 {
		return nil, fault.Invalid(issues...)
	}
	return move(s, VerbDeploy, Moved{Profile: &c.Profile})
}

func wipeMethod(asked WipeMethod, noneAllowed bool) (WipeMethod, error) {
	switch {
	case asked == "":
		return WipeQuick, nil
	case !slices.Contains(WipeMethods, asked):
		return "", fault.Invalid(fault.Issue{Path: "body.wipe", Message: "one of none, quick, secure-erase, crypto-erase"})
	case asked == WipeNone && !noneAllowed:
		return "", fault.Invalid(fault.Issue{Path: "body.wipe", Message: "one of quick, secure-erase, crypto-erase"})
	}
	return asked, nil
}

func undeploy(s State, c Undeploy) ([]Event, error) {
	wipe, err := wipeMethod(c.Wipe, true)
	if err != nil {
		return nil, err
	}
	if len(Destinations(s.Provision, VerbUndeploy, None)) > 0 && s.Workflow != nil {
		return nil, busy(s)
	}
	return move(s, VerbUndeploy, Moved{Wipe: wipe})
}

func busy(s State) error {
	return fault.New(fault.Conflict, "workflow %s is active on the node", s.Workflow.ID).
		WithDetail("workflowId", s.Workflow.ID.String()).WithRemedy("wait for it to end, or abort it")
}

func unrescue(s State, c AskUnrescue) ([]Event, error) {
	switch {
	case s.Provision != Rescue:
		return nil, illegal(s, VerbUnrescue)
	case s.Unrescuing:
		return nil, nil
	case !s.RescueUp:
		return nil, fault.New(fault.Conflict, "the rescue ramdisk is still booting").
			WithRemedy("wait until it is up, or abort its workflow")
	}
	return []Event{UnrescueAsked(c)}, nil
}

func retire(s State, c Retire) ([]Event, error) {
	wipe, err := wipeMethod(c.Wipe, false)
	if err != nil {
		return nil, err
	}
	if s.Provision == Joined || s.Provision == Adopted {
		never := false
		return move(s, VerbRetire, Moved{Wiped: &never})
	}
	return move(s, VerbRetire, Moved{Wipe: wipe})
}

func abandon(s State, c Abandon) ([]Event, error) {
	if c.Reason == "" {
		return nil, fault.Invalid(fault.Issue{Path: "body.reason", Message: "say why the machine is given up"})
	}
	if err := checkReason(c.Reason); err != nil {
		return nil, err
	}
	never := false
	return move(s, VerbAbandon, Moved{Reason: c.Reason, Wiped: &never})
}

func checkReason(reason string) error {
	if utf8.RuneCountInString(reason) > MaxReason {
		return fault.Invalid(fault.Issue{Path: "body.reason", Message: fmt.Sprintf("at most %d characters", MaxReason)})
	}
	if strings.ContainsFunc(reason, unicode.IsControl) {
		return fault.Invalid(fault.Issue{Path: "body.reason", Message: "no control characters"})
	}
	return nil
}

func recoverNode(s State) ([]Event, error) {
	m := Moved{}
	if s.Provision == Failed && s.FailedFrom == Deploying {
		m.Wipe = WipeQuick
	}
	return move(s, VerbRecover, m)
}

// decideAxis decides what changes another axis than the provision state.
func decideAxis(s State, c Command) ([]Event, error) {
	switch c := c.(type) {
	case RecordHardware:
		known := s.Hardware.InBand
		if c.Facts.Source == OutOfBand {
			known = s.Hardware.OutOfBand
		}
		if known != nil && reflect.DeepEqual(*known, c.Facts.Hardware) {
			return nil, nil
		}
		return []Event{c.Facts}, nil
	case AttestWipe:
		return attest(s, c)
	case LearnBMC:
		return learnBMC(s, c.Facts)
	case TrustBMC:
		return trustBMC(s, c.Fingerprint)
	case ChangeBMC:
		return changeBMC(s, c.BMC)
	case ObservePower:
		aside := s.PowerAction != "" && s.PowerKey != c.Key
		if s.Power == c.Power && (s.PowerAction == "" || aside) {
			return nil, nil
		}
		return []Event{PowerObserved{Power: c.Power, Aside: aside}}, nil
	case AskPower:
		return askPower(s, c)
	case FailPower:
		if s.PowerAction == "" || s.PowerKey != c.Key {
			return nil, nil
		}
		failure := Failure{Code: string(c.Code), Message: fault.Bounded(c.Message, MaxError)}
		return []Event{PowerFailed{Action: s.PowerAction, Key: c.Key, Error: failure}}, nil
	case SetMaintenance:
		return setMaintenance(s, c)
	case Cordon:
		return mark(s, VerbCordon, s.Cordon, c.Reason, Cordoned(c))
	case Uncordon:
		return unmark(s, VerbUncordon, s.Cordon, Uncordoned{})
	default:
		return nil, fmt.Errorf("node.Decide does not know %T", c)
	}
}

// attest takes the result of a wipe only from the workflow that is active: a late one from an earlier life proves nothing
// about what was written since.
func attest(s State, c AttestWipe) ([]Event, error) {
	switch {
	case s.Workflow == nil || s.Workflow.ID != c.Wipe.Workflow:
		return nil, fault.New(fault.Conflict, "the wipe is of workflow %s, which is not active", c.Wipe.Workflow)
	case s.Wipe != nil && reflect.DeepEqual(*s.Wipe, c.Wipe):
		return nil, nil
	case s.Provision != Commissioning && s.Provision != Releasing && s.Provision != Retiring:
		return nil, fault.New(fault.InvalidState, "nothing wipes a node in %s", s.Provision)
	}
	return []Event{WipeAttested{c.Wipe}}, nil
}

// maxReplaced bounds the power actions that newer ones took the place of, one after the other.
const maxReplaced = 16

func askPower(s State, c AskPower) ([]Event, error) {
	switch {
	case !slices.Contains(PowerActions, c.Action):
		return nil, fault.Invalid(fault.Issue{Path: "body.action", Message: "one of on, off, graceful, cycle, reset"})
	case s.Provision == Retired:
		return nil, illegal(s, VerbPower)
	case s.BMC == nil:
		return nil, fault.New(fault.InvalidState, "the node has no BMC to ask").WithDetail("state", string(s.Provision))
	case s.Workflow != nil:
		return nil, busy(s)
	case len(s.PowerReplaced) >= maxReplaced:
		return nil, fault.New(fault.Conflict, "%d power actions were asked for, and none of them is over", len(s.PowerReplaced)+1).
			WithRemedy("wait for the newest, which is given up by " + s.PowerNotAfter.UTC().Format(time.RFC3339))
	}
	return []Event{PowerAsked(c)}, nil
}

func setMaintenance(s State, c SetMaintenance) ([]Event, error) {
	if c.On {
		return mark(s, VerbMaintenance, s.Maintenance, c.Reason, MaintenanceEntered{Reason: c.Reason})
	}
	return unmark(s, VerbMaintenance, s.Maintenance, MaintenanceLeft{})
}

func mark(s State, v Verb, now *Mark, reason string, e Event) ([]Event, error) {
	if s.Provision == Retired {
		return nil, illegal(s, v)
	}
	if now != nil && now.Reason == reason {
		return nil, nil
	}
	return []Event{e}, checkReason(reason)
}

func unmark(s State, v Verb, now *Mark, e Event) ([]Event, error) {
	switch {
	case s.Provision == Retired:
		return nil, illegal(s, v)
	case now == nil:
		return nil, nil
	}
	return []Event{e}, nil
}

// sameWorkflow tells whether w is the active workflow.
func sameWorkflow(s State, w id.Workflow) bool { return s.Workflow != nil && s.Workflow.ID == w }
