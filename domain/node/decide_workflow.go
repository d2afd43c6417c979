package node

import (
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// MaxError bounds the text of lastError, in bytes. A longer one is cut at a character and marked.
const MaxError = 4 << 10

// decideWorkflow decides what the node's workflow and its operator's abort do.
func decideWorkflow(s State, c Command) (events []Event, mine bool, err error) {
	switch c := c.(type) {
	case StartWorkflow:
		events, err = startWorkflow(s, c)
	case Complete:
		events, err = complete(s, c)
	case Fail:
		events, err = fail(s, c)
	case Abort:
		events, err = abort(s, c)
	case Retry:
		events, err = retry(s, c)
	default:
		return nil, false, nil
	}
	return events, true, err
}

func startWorkflow(s State, c StartWorkflow) ([]Event, error) {
	switch {
	case s.Workflow != nil:
		return nil, busy(s)
	case InfoOf(s.Provision).Kind != WorkflowDriven:
		return nil, fault.New(fault.InvalidState, "no workflow runs in %s", s.Provision).
			WithDetail("state", string(s.Provision))
	case s.Provision == Rescue && s.RescueUp && !s.Unrescuing:
		return nil, fault.New(fault.InvalidState, "the rescue ramdisk is up; nothing is left to run").
			WithDetail("state", string(s.Provision))
	}
	return []Event{WorkflowStarted{Workflow: c.Workflow, Profile: c.Profile, Run: 1}}, nil
}

// complete moves on after the active workflow succeeded. A repeat of the one that just ended changes nothing.
func complete(s State, c Complete) ([]Event, error) {
	if s.Workflow == nil && s.LastWorkflow == c.Workflow && s.Provision != Failed && !id.IsZero(c.Workflow) {
		return nil, nil
	}
	if len(Destinations(s.Provision, VerbComplete, None)) == 0 {
		return nil, illegal(s, VerbComplete)
	}
	if !sameWorkflow(s, c.Workflow) {
		return nil, notActive(c.Workflow)
	}
	m := Moved{From: s.Provision, Verb: VerbComplete, Workflow: c.Workflow}
	switch {
	case s.Provision == Releasing && s.ReleaseWipe == WipeNone:
		m.To = Commissioning
		return []Event{m}, nil
	case s.Provision == Releasing || s.Provision == Commissioning:
		return toReady(s, m, c.Policy)
	case s.Provision == Deploying && c.Role == "":
		m.Role = RoleHost
	case s.Provision == Deploying:
		m.Role = c.Role
	case s.Provision == Retiring:
		wiped := s.WipeVerified()
		m.Wiped = &wiped
	case s.Provision == Rescue && s.Unrescuing:
		m.Verb = VerbUnrescue
	}
	m.To = Destinations(s.Provision, m.Verb, None)[0]
	return []Event{m}, nil
}

// toReady is the only way into ready.
func toReady(s State, m Moved, policy string) ([]Event, error) {
	m.To = Ready
	if s.WipeVerified() {
		return []Event{m}, nil
	}
	if policy != "" {
		return []Event{ReleasedUnverified{Policy: policy}, m}, nil
	}
	return nil, unverified(s)
}

func unverified(s State) error {
	unproven, complete := s.Unproven()
	e := fault.New(fault.UnverifiedWipe, "the wipe is not proven on every disk of the latest inventory")
	switch {
	case s.Hardware.InBand == nil:
		e.WithDetail("reason", "there is no in-band inventory")
	case s.Wipe == nil:
		e.WithDetail("reason", "there is no wipe since the disks were last written")
	case !complete:
		e.WithDetail("reason", "the wipe is not signed by the node")
	default:
		e.WithDetail("reason", "disks are not proven empty").WithDetail("disks", unproven)
	}
	return e
}

func notActive(w id.Workflow) error {
	return fault.New(fault.Conflict, "workflow %s is not the node's active one", w)
}

// fail moves to failed. The workflow that failed the node already, or was aborted, changes nothing when it ends.
func fail(s State, c Fail) ([]Event, error) {
	if s.Provision == Failed && !id.IsZero(c.Workflow) && c.Workflow == s.FailedWorkflow {
		return nil, nil
	}
	if len(Destinations(s.Provision, VerbFail, None)) == 0 {
		return nil, illegal(s, VerbFail)
	}
	if s.Workflow != nil && s.Workflow.ID != c.Workflow || s.Workflow == nil && !id.IsZero(c.Workflow) {
		return nil, notActive(c.Workflow)
	}
	failure := &Failure{Code: string(c.Code), Message: fault.Bounded(c.Message, MaxError)}
	return move(s, VerbFail, Moved{Workflow: c.Workflow, Error: failure})
}

func abort(s State, c Abort) ([]Event, error) {
	if err := checkReason(c.Reason); err != nil {
		return nil, err
	}
	if s.Workflow == nil {
		e := illegal(s, VerbAbort)
		if len(Destinations(s.Provision, VerbAbort, None)) > 0 {
			e.Message = "no workflow is running on the node"
		}
		return nil, e
	}
	message := "aborted by the operator"
	if c.Reason != "" {
		message += ": " + c.Reason
	}
	return move(s, VerbAbort, Moved{Workflow: s.Workflow.ID, Reason: c.Reason, Error: &Failure{Message: message}})
}

// retry puts the same workflow back to work where it failed. An aborted one is cancelled for good.
func retry(s State, c Retry) ([]Event, error) {
	switch {
	case s.Provision != Failed:
		return nil, illegal(s, VerbRetry)
	case s.FailedBy == VerbAbort:
		return nil, illegal(s, VerbRetry).WithDetail("reason", "the workflow was aborted").
			WithRemedy("recover the node instead")
	case id.IsZero(c.Workflow) || s.FailedWorkflow != c.Workflow:
		return nil, fault.New(fault.Conflict, "workflow %s did not fail the node", c.Workflow)
	}
	moved, err := move(s, VerbRetry, Moved{Workflow: c.Workflow})
	if err != nil {
		return nil, err
	}
	return append(moved, WorkflowStarted{
		Workflow: c.Workflow, Profile: *s.LastProfile, Run: s.LastRun + 1, FromStep: c.FromStep,
	}), nil
}
