package workflow

import (
	"slices"
	"strings"

	"github.com/better-compute/metal/domain/fault"
)

// Verb is what an operator may ask of a workflow.
type Verb string

// The verbs.
const (
	VerbAbort  Verb = "abort"
	VerbPause  Verb = "pause"
	VerbResume Verb = "resume"
	VerbRetry  Verb = "retry"
)

// StatusInfo is one row of StatusTable.
type StatusInfo struct {
	Status   Status
	Terminal bool
	Legal    []Verb
	Meaning  string
}

// StatusTable is the table: what each status means and which verbs are legal in it. Any other is INVALID_STATE.
var StatusTable = []StatusInfo{
	{Pending, false, []Verb{VerbAbort}, "created, nothing started; abort cancels at once"},
	{Running, false, []Verb{VerbPause, VerbAbort}, "steps advance; pause is legal until the last main step is settled"},
	{Paused, false, []Verb{VerbResume, VerbAbort}, "nothing new starts; the step in flight finishes"},
	{Failing, false, []Verb{VerbAbort}, "a step failed for good: the rest of main is cancelled, cleanup runs"},
	{Cancelling, false, []Verb{VerbAbort}, "aborted: pending steps and the command in flight are cancelled, cleanup runs"},
	{Succeeded, true, nil, "every step is settled and none failed for good"},
	{Failed, false, []Verb{VerbRetry, VerbAbort}, "over until an operator retries; abort cancels at once"},
	{Cancelled, true, []Verb{VerbAbort}, "aborted, and its cleanup has run; abort again does nothing"},
}

// InfoOf is the row of s; the zero row for a status that is not in the table.
func InfoOf(s Status) StatusInfo {
	for _, row := range StatusTable {
		if row.Status == s {
			return row
		}
	}
	return StatusInfo{}
}

func legal(s State, v Verb) error {
	if slices.Contains(InfoOf(s.Status).Legal, v) {
		return nil
	}
	return illegal(s, v)
}

func illegal(s State, v Verb) *fault.Error {
	verbs := make([]string, 0, len(StatusTable))
	for _, v := range InfoOf(s.Status).Legal {
		verbs = append(verbs, string(v))
	}
	e := fault.New(fault.InvalidState, "%s is not legal for a workflow that is %s", v, s.Status).
		WithDetail("state", string(s.Status)).WithDetail("verb", string(v)).WithDetail("legal", verbs)
	if len(verbs) == 0 {
		return e.WithRemedy("the workflow is over")
	}
	return e.WithRemedy("legal now: " + strings.Join(verbs, ", "))
}
