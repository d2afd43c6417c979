package workflow

import (
	"fmt"
	"slices"
	"time"

	"github.com/better-compute/metal/domain/id"
)

// Evolve folds one event. It never changes the state it is given.
func Evolve(s State, e Event) State {
	switch e := e.(type) {
	case Created:
		return created(e)
	case Began:
		s.Status, s.StartedAt = Running, e.At
	case PausedRun:
		s.Status = Paused
	case ResumedRun:
		s.Status = Running
		if s.Error != nil { // the step in flight failed for good meanwhile
			s.Status = Failing
		}
	case RetriedRun:
		return retried(s, e)
	case AbortAsked:
		s.Status, s.Reason = Cancelling, e.Reason
	case Ended:
		return end(s, e)
	case StepStarted:
		return s.with(e.Step, e.start)
	case StepWaits:
		return s.with(e.Step, e.wait)
	case StepDone:
		return s.with(e.Step, func(st *Step) {
			st.State, st.Result, st.SettledAt = StepSucceeded, e.Result, e.At
		})
	case StepFaulted:
		return stepFaulted(s, e)
	case StepRetries:
		return s.with(e.Step, e.again)
	case StepLeft:
		return s.with(e.Step, func(st *Step) { st.State, st.NotBefore = e.State, time.Time{} })
	default:
		panic(fmt.Sprintf("workflow.Evolve does not know %T", e))
	}
	return s
}

func created(e Created) State {
	s := State{Facts: Facts(e), Status: Pending, Run: 1, Steps: make([]Step, len(e.StepSpecs))}
	for i, spec := range e.StepSpecs {
		s.Steps[i] = Step{StepSpec: spec, State: StepPending, Attempt: 1}
	}
	return s
}

// with gives the state with one step changed.
func (s State) with(step string, change func(*Step)) State {
	s.Steps = slices.Clone(s.Steps)
	if st := s.Find(step); st != nil {
		change(st)
	}
	return s
}

// start clears what an earlier attempt left, so that nothing of it can be taken for this one's.
func (e StepStarted) start(st *Step) {
	*st = Step{
		StepSpec: st.StepSpec, State: StepRunning, Attempt: e.Attempt, Tried: st.Tried + 1, Started: true,
		StartedAt: e.At, Deadline: e.Deadline,
	}
}

func (e StepWaits) wait(st *Step) {
	st.State = StepWaiting
	if !id.IsZero(e.AgentCommand) {
		st.AgentCommand = e.AgentCommand
	}
	if e.Before != nil {
		st.Before = e.Before
	}
}

func (e StepRetries) again(st *Step) {
	failure := e.Error
	*st = Step{
		StepSpec: st.StepSpec, State: StepPending, Attempt: e.Attempt, Tried: st.Tried, Started: st.Started,
		StartedAt: st.StartedAt, NotBefore: e.NotBefore, Error: &failure,
	}
}

// stepFaulted: only a main step fails the workflow. A paused one stays so until it is resumed, a cancelling one goes on.
func stepFaulted(s State, e StepFaulted) State {
	failure := e.Error
	s = s.with(e.Step, func(st *Step) { st.State, st.Error, st.SettledAt = StepFailed, &failure, e.At })
	st := s.Find(e.Step)
	if st == nil || st.Phase != Main || st.StepSpec.OnFailure == policyContinue {
		return s
	}
	s.Error, s.FailedStep = failureOf(*st, e.Error), st.ID
	if s.Status == Running {
		s.Status = Failing
	}
	return s
}

// end also settles what never started, where a workflow is cancelled before its first step.
func end(s State, e Ended) State {
	s.Status, s.Error, s.Reason, s.EndedAt = e.Status, e.Error, e.Reason, e.At
	s.Steps = slices.Clone(s.Steps)
	for i := range s.Steps {
		if !s.Steps[i].State.Settled() {
			s.Steps[i].State = StepCancelled
		}
	}
	return s
}

// retried arms the main steps from one on, what they need, and everything that is not main, for another run.
func retried(s State, e RetriedRun) State {
	s.Status, s.Run, s.Error, s.FailedStep, s.Reason, s.EndedAt = Running, e.Run, nil, "", "", time.Time{}
	s.Steps = slices.Clone(s.Steps)
	again := map[string]bool{}
	reached := false
	for _, st := range s.Steps {
		reached = reached || st.Phase == Main && st.ID == e.FromStep
		if reached || st.Phase != Main {
			again[st.ID] = true
			again[st.Needs] = true
		}
	}
	for i := range s.Steps {
		st := &s.Steps[i]
		if !again[st.ID] {
			continue
		}
		next := st.Attempt
		if st.Tried > 0 {
			next++
		}
		*st = Step{StepSpec: st.StepSpec, State: StepPending, Attempt: next, Started: st.Started}
	}
	return s
}
