package workflow

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// Decider is the aggregate.
var Decider = event.Decider[State, Command, Event]{Decide: Decide, Evolve: Evolve}

// The bounds of a workflow.
const (
	MaxSteps  = 512 // over all phases
	MaxReason = 512 // of an abort, in characters
)

// What follows when a step failed for good.
const (
	policyFail     = "fail"
	policyContinue = "continue"
	policyRescue   = "rescue"
)

// Decide applies one verb. No events and no error: there was nothing to change. Errors: NOT_FOUND, INVALID_STATE with the
// legal verbs in the details, CONFLICT, INVALID_INPUT, INVALID_CONFIG.
func Decide(s State, c Command) ([]Event, error) {
	if c, creates := c.(Create); creates {
		return create(s, c.Facts)
	}
	if !s.Exists() {
		return nil, fault.New(fault.NotFound, "there is no such workflow")
	}
	switch c := c.(type) {
	case Advance:
		return advance(s, c.Tick), nil
	case Wait:
		return wait(s, c)
	case Settle:
		return settle(s, c)
	case Abort:
		return abort(s, c)
	case Pause:
		return pauseRun(s)
	case Resume:
		if err := legal(s, VerbResume); err != nil {
			return nil, err
		}
		return []Event{ResumedRun{s.Ref}}, nil
	case Retry:
		return retry(s, c)
	default:
		return nil, fmt.Errorf("workflow.Decide does not know %T", c)
	}
}

func create(s State, facts Created) ([]Event, error) {
	if s.Exists() {
		if s.Ref == facts.Ref && s.Tenant == facts.Tenant {
			return nil, nil
		}
		return nil, fault.New(fault.Conflict, "workflow %s exists already", s.Workflow)
	}
	if len(facts.StepSpecs) > MaxSteps {
		return nil, fault.New(fault.InvalidConfig, "%d steps over all phases; the most is %d", len(facts.StepSpecs), MaxSteps)
	}
	seen := map[string]bool{}
	for i, spec := range facts.StepSpecs {
		path := fmt.Sprintf("steps[%d]", i)
		switch {
		case spec.ID == "" || seen[spec.ID]:
			return nil, malformed(path+".id", "is empty or used twice")
		case spec.Phase != Main && spec.Phase != OnFailure && spec.Phase != Cleanup:
			return nil, malformed(path+".phase", "is none of main, on-failure, cleanup")
		case spec.Phase == OnFailure && spec.ArmedBy == "":
			return nil, malformed(path+".armedBy", "is needed in phase on-failure")
		case spec.Timeout <= 0:
			return nil, malformed(path+".timeout", "is not above zero")
		case spec.Retries < 0 || spec.RetryDelay < 0:
			return nil, malformed(path+".retries", "is negative")
		case spec.RunsOn != ControlPlane && spec.Command == "":
			return nil, malformed(path+".command", "is needed for a step that an agent carries out")
		}
		seen[spec.ID] = true
	}
	return []Event{facts}, nil
}

func malformed(path, message string) error {
	e := fault.New(fault.InvalidConfig, "the workflow can't run").WithDetail("path", path)
	e.Issues = []fault.Issue{{Path: path, Message: message}}
	return e
}

func wait(s State, c Wait) ([]Event, error) {
	st, err := attemptInFlight(s, c.Step, c.Attempt)
	if err != nil {
		return nil, err
	}
	sent := !id.IsZero(c.AgentCommand) && c.AgentCommand != st.AgentCommand
	saw := c.Before != nil && st.Before == nil
	switch {
	case sent && !id.IsZero(st.AgentCommand) && st.RunsOn != ControlPlane: // one that relays may send several, in turn
		return nil, fault.New(fault.Conflict, "step %s waits for %s already", st.ID, st.AgentCommand)
	case st.State == StepWaiting && !sent && !saw:
		return nil, nil
	}
	if st.Rejoin && !id.IsZero(c.AgentCommand) && c.Before == nil {
		return nil, fault.New(fault.InvalidInput, "step %s awaits a rejoin: the boot it must differ from is needed", st.ID)
	}
	return []Event{StepWaits{
		Ref: s.Ref, Step: st.ID, Attempt: st.Attempt, AgentCommand: c.AgentCommand, Before: c.Before,
	}}, nil
}

func abort(s State, c Abort) ([]Event, error) {
	if utf8.RuneCountInString(c.Reason) > MaxReason {
		return nil, fault.Invalid(fault.Issue{Path: "body.reason", Message: fmt.Sprintf("at most %d characters", MaxReason)})
	}
	if strings.ContainsFunc(c.Reason, unicode.IsControl) {
		return nil, fault.Invalid(fault.Issue{Path: "body.reason", Message: "no control characters"})
	}
	if err := legal(s, VerbAbort); err != nil {
		return nil, err
	}
	switch s.Status {
	case Cancelling, Cancelled:
		return nil, nil
	case Pending, Failed: // no cleanup is owed
		return []Event{Ended{
			Ref: s.Ref, Status: Cancelled, Error: s.Error, Reason: c.Reason, Owner: s.Owner, At: c.Now,
		}}, nil
	case Running, Paused, Failing, Succeeded:
	}
	e := AbortAsked{Ref: s.Ref, Reason: c.Reason}
	return append([]Event{e}, advance(Evolve(s, e), c.Tick)...), nil
}

// pauseRun refuses once only cleanup is left: a workflow never stops between what it did and tidying up after it.
func pauseRun(s State) ([]Event, error) {
	if err := legal(s, VerbPause); err != nil {
		return nil, err
	}
	for i := range s.Steps {
		if s.Steps[i].Phase == Main && !s.Steps[i].State.Settled() {
			return []Event{PausedRun{s.Ref}}, nil
		}
	}
	e := illegal(s, VerbPause).WithDetail("legal", []string{string(VerbAbort)}).WithRemedy("wait for it to end, or abort it")
	e.Message = "a workflow in its cleanup phase can't pause"
	return nil, e
}

func retry(s State, c Retry) ([]Event, error) {
	switch {
	case c.Run != 0 && c.Run == s.Run:
		return nil, nil
	case c.Run != 0 && c.Run < s.Run:
		return nil, fault.New(fault.Conflict, "the workflow is in run %d already", s.Run).WithDetail("run", s.Run)
	}
	if err := legal(s, VerbRetry); err != nil {
		return nil, err
	}
	from, err := retryFrom(s, c.FromStep)
	if err != nil {
		return nil, err
	}
	return []Event{RetriedRun{Ref: s.Ref, FromStep: from, Run: max(c.Run, s.Run+1)}}, nil
}

// retryFrom is the main step to begin with: the one asked for, else the first that did not succeed. A skipped one is not
// owed anything. None after the step that failed: what failed for good is never passed over.
func retryFrom(s State, asked string) (string, error) {
	var steps []string
	for _, st := range s.Steps {
		if st.Phase != Main {
			continue
		}
		if asked == st.ID || asked == "" && st.State != StepSucceeded && st.State != StepSkipped {
			return st.ID, nil
		}
		steps = append(steps, st.ID)
		if st.ID == s.FailedStep {
			break
		}
	}
	return "", fault.Invalid(fault.Issue{
		Path: "body.fromStep", Message: "is none of the main steps up to the one that failed: " + strings.Join(steps, ", "),
	})
}
