package workflow

import (
	"time"

	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/label"
)

// Next says what the engine must do now. It is total: an active workflow that is not paused never rests.
func Next(s State, now time.Time) Due {
	m := plan(s, now)
	switch m.kind {
	case idle:
		return Due{Action: Rest}
	case pause:
		return Due{Action: Sleep, Step: m.step, At: m.step.NotBefore}
	case inFlight:
		return Due{Action: actionFor(*m.step), Step: m.step, At: m.step.Deadline}
	case begin, consider, skip, cancel, overdue, finish:
		return Due{Action: Proceed, Step: m.step, At: now}
	default:
		return Due{Action: Rest}
	}
}

// actionFor is what a step in flight needs. An agent step whose command is not recorded yet is sent again after a crash:
// the command's key finds the first one.
func actionFor(st Step) Action {
	switch {
	case st.RunsOn == ControlPlane:
		return Run
	case id.IsZero(st.AgentCommand):
		return Send
	default:
		return Look
	}
}

type moveKind int

const (
	idle     moveKind = iota
	begin             // the workflow itself
	consider          // start the step, or skip it where its expression does not hold
	skip              // the step was never armed
	cancel            // the step will not run any more
	overdue           // the step passed its deadline
	finish            // every step is settled
	pause             // the step's next attempt is not due yet
	inFlight          // somebody else's answer is awaited
)

// planned is the one move that is due.
type planned struct {
	kind moveKind
	step *Step
}

// plan is what Next and Advance both go by.
func plan(s State, now time.Time) planned {
	if s.Status == Pending {
		return planned{kind: begin}
	}
	if !s.Status.Active() {
		return planned{kind: idle}
	}
	if st := s.InFlight(); st != nil {
		return planFlight(s, st, now)
	}
	if s.Status == Paused {
		return planned{kind: idle}
	}
	for _, phase := range []Phase{Main, OnFailure, Cleanup} {
		for i := range s.Steps {
			if st := &s.Steps[i]; st.Phase == phase && !st.State.Settled() {
				return planPending(s, st, now)
			}
		}
	}
	return planned{kind: finish}
}

// planFlight: an abort takes the step in flight with it, but for a cleanup step, which it would only call for again.
func planFlight(s State, st *Step, now time.Time) planned {
	switch {
	case s.Status == Cancelling && st.Phase != Cleanup:
		return planned{cancel, st}
	case !now.Before(st.Deadline):
		return planned{overdue, st}
	default:
		return planned{inFlight, st}
	}
}

func planPending(s State, st *Step, now time.Time) planned {
	switch st.Phase {
	case Main:
		if s.Status != Running {
			return planned{cancel, st}
		}
	case OnFailure:
		if s.FailedStep == "" || st.ArmedBy != s.FailedStep {
			return planned{skip, st}
		}
		if s.Status == Cancelling {
			return planned{cancel, st}
		}
	case Cleanup:
		if armer := s.Find(st.ArmedBy); st.ArmedBy != "" && (armer == nil || !armer.Started) {
			return planned{skip, st}
		}
	}
	if now.Before(st.NotBefore) {
		return planned{pause, st}
	}
	return planned{consider, st}
}

// maxMoves bounds the events of one decision, below what one append may hold. What is left is due at once.
const maxMoves = 150

// advance gives every event that is due and needs nobody's answer, each decided on the state after the one before.
func advance(s State, t Tick) []Event {
	var events []Event
	for len(events) < maxMoves {
		e := plan(s, t.Now).event(s, t)
		if e == nil {
			break
		}
		events = append(events, e)
		s = Evolve(s, e)
	}
	return events
}

// event is the move as a fact; nil where there is only something to wait for.
func (m planned) event(s State, t Tick) Event {
	switch m.kind {
	case begin:
		return Began{Ref: s.Ref, At: t.Now}
	case consider:
		if m.step.When != "" && !label.Holds(m.step.When, t.Labels) {
			return StepLeft{Ref: s.Ref, Step: m.step.ID, State: StepSkipped, Reason: "when is false for this machine"}
		}
		return StepStarted{
			Ref: s.Ref, Step: m.step.ID, Attempt: m.step.Attempt, At: t.Now, Deadline: t.Now.Add(m.step.Timeout),
		}
	case skip:
		return StepLeft{Ref: s.Ref, Step: m.step.ID, State: StepSkipped, Reason: "nothing called for it"}
	case cancel:
		return StepLeft{Ref: s.Ref, Step: m.step.ID, State: StepCancelled, Reason: cancelReason(s)}
	case overdue:
		return faulted(s, *m.step, overdueFailure(*m.step), t)
	case finish:
		return ended(s, t.Now)
	case idle, pause, inFlight:
		return nil
	default:
		return nil
	}
}

func cancelReason(s State) string {
	if s.Status == Cancelling {
		return "the workflow was aborted"
	}
	return "step " + s.FailedStep + " failed"
}

func ended(s State, now time.Time) Ended {
	e := Ended{Ref: s.Ref, Status: Succeeded, Error: s.Error, Reason: s.Reason, Owner: s.Owner, At: now}
	switch s.Status {
	case Failing:
		e.Status = Failed
	case Running:
	case Pending, Paused, Cancelling, Succeeded, Failed, Cancelled:
		e.Status = Cancelled
	}
	return e
}
