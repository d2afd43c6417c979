package workflow

import (
	"encoding/json"
	"time"

	"github.com/better-compute/metal/domain/fault"
)

// The bounds of what a step leaves behind, in bytes. Longer error text is cut at a character and marked.
const (
	MaxResult  = 64 << 10
	MaxError   = 4 << 10
	maxDetails = 16 << 10
)

// settle ends an attempt and advances.
func settle(s State, c Settle) ([]Event, error) {
	st, err := attemptInFlight(s, c.Step, c.Attempt)
	if err != nil {
		return nil, err
	}
	if c.Error != nil && st.Rejoin && st.State == StepWaiting {
		return advance(s, c.Tick), nil // the command ends the agent that would report on it: only the machine's return counts
	}
	e := settled(s, *st, c)
	return append([]Event{e}, advance(Evolve(s, e), c.Tick)...), nil
}

func settled(s State, st Step, c Settle) Event {
	switch {
	case c.Error != nil:
		return faulted(s, st, *c.Error, c.Tick)
	case len(c.Result) > MaxResult:
		f := fault.New(fault.InvalidConfig, "the step's result holds %d bytes; the most is %d", len(c.Result), MaxResult)
		return faulted(s, st, Failure{Code: string(f.Code), Message: f.Message}, c.Tick)
	case len(c.Result) > 0 && !json.Valid(c.Result):
		return faulted(s, st, Failure{Code: string(fault.InvalidConfig), Message: "the step's result is not JSON"}, c.Tick)
	}
	return StepDone{Ref: s.Ref, Step: st.ID, Attempt: st.Attempt, Result: c.Result, At: c.Now}
}

// attemptInFlight finds the step where it is at that attempt and not settled.
func attemptInFlight(s State, step string, attempt int) (*Step, error) {
	st := s.Find(step)
	if st == nil {
		return nil, fault.New(fault.Conflict, "the workflow has no step %s", fault.Bounded(step, 100))
	}
	if st.Attempt != attempt || st.State != StepRunning && st.State != StepWaiting {
		return nil, fault.New(fault.Conflict, "step %s is %s at attempt %d", st.ID, st.State, st.Attempt).
			WithDetail("stepId", st.ID).WithDetail("state", string(st.State)).WithDetail("attempt", st.Attempt)
	}
	return st, nil
}

// faulted gives the step another attempt where it has one left and one can help; else it failed for good.
func faulted(s State, st Step, f Failure, t Tick) Event {
	f = clean(f)
	if st.Tried <= st.Retries && !f.Final {
		return StepRetries{
			Ref: s.Ref, Step: st.ID, Attempt: st.Attempt + 1, NotBefore: t.Now.Add(spread(st.RetryDelay, t.Jitter)), Error: f,
		}
	}
	return StepFaulted{Ref: s.Ref, Step: st.ID, Attempt: st.Attempt, Error: f, At: t.Now}
}

// spread makes a pause up to half as long again, so that many machines that failed together do not come back together.
func spread(pause time.Duration, jitter float64) time.Duration {
	if !(jitter > 0) { // also not a number
		return pause
	}
	return pause + time.Duration(float64(pause)/2*min(jitter, 1))
}

func overdueFailure(st Step) Failure {
	if st.Rejoin {
		return Failure{Code: string(fault.RejoinTimeout), Message: "the machine did not come back within " + st.Timeout.String()}
	}
	return Failure{Code: string(fault.Timeout), Message: "no result within " + st.Timeout.String()}
}

// clean bounds a failure and holds its code to the closed list.
func clean(f Failure) Failure {
	f.Code = string(fault.Info(fault.Code(f.Code)).Code)
	f.Message, f.Rescue = fault.Bounded(f.Message, MaxError), false
	if len(f.Details) > maxDetails || !json.Valid(f.Details) {
		f.Details = nil
	}
	return f
}

// failureOf is the workflow's error after a step that failed for good.
func failureOf(st Step, f Failure) *Failure {
	f.Message = fault.Bounded(st.ID+" ("+st.Action+"): "+f.Message, MaxError)
	f.Rescue = st.StepSpec.OnFailure == policyRescue
	return &f
}
