// Package workflow is one run of a profile as an aggregate: its steps, their attempts, phases and deadlines.
//
// status.go has the table of what is legal, next.go says what is due, decide.go what may happen, settle.go how an attempt
// ends, evolve.go folds. Nothing here knows the time or runs a step: processmanagers/workflow does.
package workflow

import (
	"encoding/json"
	"time"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
)

// Category is the first part of a workflow's stream name.
const Category = "workflow"

// StreamOf names the stream of one workflow.
func StreamOf(w id.Workflow) event.Stream { return event.StreamOf(Category, w.String()) }

// Status is where a workflow stands.
type Status string

// The statuses.
const (
	Pending    Status = "pending"
	Running    Status = "running"
	Paused     Status = "paused"
	Failing    Status = "failing"    // a step failed for good; cleanup runs
	Cancelling Status = "cancelling" // aborted; cleanup runs
	Succeeded  Status = "succeeded"
	Failed     Status = "failed" // not terminal: retry
	Cancelled  Status = "cancelled"
)

// Active reports whether the workflow still has something to do; a paused one has.
func (s Status) Active() bool {
	switch s {
	case Pending, Running, Paused, Failing, Cancelling:
		return true
	case Succeeded, Failed, Cancelled:
		return false
	default:
		return false
	}
}

// Phase is when a step runs.
type Phase string

// The phases, in order.
const (
	Main      Phase = "main"
	OnFailure Phase = "on-failure"
	Cleanup   Phase = "cleanup"
)

// Computer names where a step runs.
type Computer string

// The computers.
const (
	ControlPlane Computer = "control-plane"
	Site         Computer = "site"
	Ramdisk      Computer = "ramdisk"
	Node         Computer = "node"
)

// StepSpec is a step as it was resolved when the workflow was created.
type StepSpec struct {
	ID            string          `json:"id"`
	Phase         Phase           `json:"phase"`
	Action        string          `json:"action"`
	RunsOn        Computer        `json:"runsOn"`
	Command       string          `json:"command,omitempty"` // kind of the agent command, of an agent step
	Driver        string          `json:"driver,omitempty"`
	Sends         []string        `json:"sends,omitempty"`
	With          json.RawMessage `json:"with,omitempty"`
	When          string          `json:"when,omitempty"`
	Timeout       time.Duration   `json:"timeout"` // nanoseconds, per attempt
	Retries       int             `json:"retries,omitempty"`
	RetryDelay    time.Duration   `json:"retryDelay,omitempty"` // nanoseconds
	OnFailure     string          `json:"onFailure,omitempty"`  // fail, continue, rescue
	OnFailureStep string          `json:"onFailureStep,omitempty"`
	ArmedBy       string          `json:"armedBy,omitempty"`
	Rejoin        bool            `json:"rejoin,omitempty"`
	// Needs is the earlier step that brings up the computer that this one is about. A retry runs it again too: cleanup may
	// have switched the machine off, and where it did not the step does nothing.
	Needs string `json:"needs,omitempty"`
}

// StepState is where a step stands.
type StepState string

// The step states.
const (
	StepPending   StepState = "pending"
	StepRunning   StepState = "running"
	StepWaiting   StepState = "waiting"
	StepSucceeded StepState = "succeeded"
	StepFailed    StepState = "failed"
	StepSkipped   StepState = "skipped"
	StepCancelled StepState = "cancelled"
)

// Settled reports whether the step is over for this run.
func (s StepState) Settled() bool {
	switch s {
	case StepSucceeded, StepFailed, StepSkipped, StepCancelled:
		return true
	case StepPending, StepRunning, StepWaiting:
		return false
	default:
		return false
	}
}

// Failure is why a step or a workflow failed.
type Failure struct {
	Code    string          `json:"code"`
	Message string          `json:"message"` // bounded and scrubbed
	Details json.RawMessage `json:"details,omitempty"`
	Rescue  bool            `json:"rescue,omitempty"`
	Final   bool            `json:"final,omitempty"` // no retry can help: the attempts that are left are not used
}

// Boot is the boot of an agent that a rejoin must differ from.
type Boot struct {
	BootID string `json:"bootId,omitempty"`
	Role   string `json:"role,omitempty"`
}

// Step is a step with what became of it.
type Step struct {
	StepSpec
	State        StepState       `json:"state"`
	Attempt      int             `json:"attempt,omitempty"` // from 1; of a pending step, the one that comes next
	Tried        int             `json:"tried,omitempty"`   // attempts begun in this run: what retries are counted against
	Started      bool            `json:"started,omitempty"` // at least once: arms the definition's cleanup
	StartedAt    time.Time       `json:"startedAt,omitzero"`
	SettledAt    time.Time       `json:"settledAt,omitzero"`
	Deadline     time.Time       `json:"deadline,omitzero"`
	NotBefore    time.Time       `json:"notBefore,omitzero"` // of the next attempt
	AgentCommand id.AgentCommand `json:"agentCommandId,omitzero"`
	Before       *Boot           `json:"before,omitempty"` // the agent when a rejoin's command was sent
	Result       json.RawMessage `json:"result,omitempty"`
	Error        *Failure        `json:"error,omitempty"`
}

// Facts is what was said when the workflow was created. It is not an event.
type Facts Created

// State is the fold of a workflow's stream.
type State struct {
	Facts
	Status Status `json:"status"`
	Run    int    `json:"run"` // from 1; raised by a retry
	Steps  []Step `json:"steps"`
	// FailedStep is the main step that made this run fail; it arms its on-failure step.
	FailedStep string    `json:"failedStep,omitempty"`
	Error      *Failure  `json:"error,omitempty"`
	Reason     string    `json:"reason,omitempty"` // of an abort
	StartedAt  time.Time `json:"startedAt,omitzero"`
	EndedAt    time.Time `json:"endedAt,omitzero"`
}

// Exists reports whether the workflow was created.
func (s State) Exists() bool { return s.Status != "" }

// Find gives the step of an id; nil: there is none.
func (s State) Find(step string) *Step {
	for i := range s.Steps {
		if s.Steps[i].ID == step {
			return &s.Steps[i]
		}
	}
	return nil
}

// InFlight is the step that runs or waits; nil: none. There is never more than one.
func (s State) InFlight() *Step {
	for i := range s.Steps {
		if st := s.Steps[i].State; st == StepRunning || st == StepWaiting {
			return &s.Steps[i]
		}
	}
	return nil
}

// Key is the idempotency key of a step's attempt: wf:<id>:<step>, with #<attempt> from the second on.
func (s State) Key(step Step) string {
	key := "wf:" + s.Workflow.String() + ":" + step.ID
	if step.Attempt > 1 {
		key += "#" + itoa(step.Attempt)
	}
	return key
}
