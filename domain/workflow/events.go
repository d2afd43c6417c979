package workflow

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
)

// Event is any event of a workflow's stream.
//
//sumtype:decl
type Event interface {
	event.Event
	workflowEvent()
}

// Events is the table of stored names.
var Events = event.Table(
	event.Of[Created](1, "workflow.created"),
	event.Of[Began](1, "workflow.started"),
	event.Of[PausedRun](1, "workflow.paused"),
	event.Of[ResumedRun](1, "workflow.resumed"),
	event.Of[RetriedRun](1, "workflow.retried"),
	event.Of[AbortAsked](1, "workflow.cancelling"),
	event.Of[Ended](1, "workflow.succeeded", "workflow.failed", "workflow.cancelled"),
	event.Of[StepStarted](1, "workflow.step.started"),
	event.Of[StepWaits](1, "workflow.step.waiting"),
	event.Of[StepDone](1, "workflow.step.succeeded"),
	event.Of[StepFaulted](1, "workflow.step.failed"),
	event.Of[StepRetries](1, "workflow.step.retrying"),
	event.Of[StepLeft](1, "workflow.step.skipped", "workflow.step.cancelled"),
)

// Ref is what every event tells of its workflow, so that whoever follows the log need not fold the stream.
type Ref struct {
	Workflow id.Workflow `json:"workflowId"`
	Node     id.Node     `json:"nodeId,omitzero"`
	Profile  string      `json:"profileId"`
	Version  int         `json:"profileVersion"`
}

// Created says what will run: the profile as it was, its steps as they were resolved, the kinds they can send.
type Created struct {
	Ref
	Tenant    id.Tenant       `json:"tenantId"`
	Site      id.Site         `json:"siteId,omitzero"`
	Pool      id.Pool         `json:"poolId,omitzero"`
	Owner     string          `json:"owner,omitempty"` // the process manager to wake when it ends
	Document  json.RawMessage `json:"profile"`
	StepSpecs []StepSpec      `json:"steps"`
	Kinds     []string        `json:"agentCommandKinds,omitempty"`
	At        time.Time       `json:"at"`
}

type (
	// Began says that the first step may start.
	Began struct {
		Ref
		At time.Time `json:"at"`
	}
	// PausedRun says that no further step starts.
	PausedRun struct{ Ref }
	// ResumedRun says that steps start again.
	ResumedRun struct{ Ref }
	// RetriedRun says that a failed workflow runs again from a step.
	RetriedRun struct {
		Ref
		FromStep string `json:"fromStep"`
		Run      int    `json:"run"`
	}
	// AbortAsked says that an operator stopped it; cleanup is still to run.
	AbortAsked struct {
		Ref
		Reason string `json:"reason,omitempty"`
	}
	// Ended says how this run ended.
	Ended struct {
		Ref
		Status Status    `json:"status"`
		Error  *Failure  `json:"error,omitempty"`
		Reason string    `json:"reason,omitempty"`
		Owner  string    `json:"owner,omitempty"`
		At     time.Time `json:"at"`
	}
	// StepStarted begins an attempt.
	StepStarted struct {
		Ref
		Step     string    `json:"stepId"`
		Attempt  int       `json:"attempt"`
		At       time.Time `json:"at"`
		Deadline time.Time `json:"deadline"`
	}
	// StepWaits says that the step's agent command is out, or that it is not ready yet. Told once per attempt.
	StepWaits struct {
		Ref
		Step         string          `json:"stepId"`
		Attempt      int             `json:"attempt"`
		AgentCommand id.AgentCommand `json:"agentCommandId,omitzero"`
		Before       *Boot           `json:"before,omitempty"`
	}
	// StepDone settles a step with its result, in which there is no secret.
	StepDone struct {
		Ref
		Step    string          `json:"stepId"`
		Attempt int             `json:"attempt"`
		Result  json.RawMessage `json:"result,omitempty"`
		At      time.Time       `json:"at"`
	}
	// StepFaulted settles a step that failed for good.
	StepFaulted struct {
		Ref
		Step    string    `json:"stepId"`
		Attempt int       `json:"attempt"`
		Error   Failure   `json:"error"`
		At      time.Time `json:"at"`
	}
	// StepRetries gives a failed step another attempt.
	StepRetries struct {
		Ref
		Step      string    `json:"stepId"`
		Attempt   int       `json:"attempt"` // the next one
		NotBefore time.Time `json:"notBefore"`
		Error     Failure   `json:"error"`
	}
	// StepLeft settles a step that did not run to its end: skipped or cancelled.
	StepLeft struct {
		Ref
		Step   string    `json:"stepId"`
		State  StepState `json:"state"`
		Reason string    `json:"reason,omitempty"`
	}
)

// EventType is the stored name.
func (Created) EventType() string { return "workflow.created" }

// EventType is the stored name.
func (Began) EventType() string { return "workflow.started" }

// EventType is the stored name.
func (PausedRun) EventType() string { return "workflow.paused" }

// EventType is the stored name.
func (ResumedRun) EventType() string { return "workflow.resumed" }

// EventType is the stored name.
func (RetriedRun) EventType() string { return "workflow.retried" }

// EventType is the stored name.
func (AbortAsked) EventType() string { return "workflow.cancelling" }

// EventType is workflow.<status>.
func (e Ended) EventType() string { return "workflow." + string(e.Status) }

// EventType is the stored name.
func (StepStarted) EventType() string { return "workflow.step.started" }

// EventType is the stored name.
func (StepWaits) EventType() string { return "workflow.step.waiting" }

// EventType is the stored name.
func (StepDone) EventType() string { return "workflow.step.succeeded" }

// EventType is the stored name.
func (StepFaulted) EventType() string { return "workflow.step.failed" }

// EventType is the stored name.
func (StepRetries) EventType() string { return "workflow.step.retrying" }

// EventType is workflow.step.<state>.
func (e StepLeft) EventType() string { return "workflow.step." + string(e.State) }

func (Created) workflowEvent()     {}
func (Began) workflowEvent()       {}
func (PausedRun) workflowEvent()   {}
func (ResumedRun) workflowEvent()  {}
func (RetriedRun) workflowEvent()  {}
func (AbortAsked) workflowEvent()  {}
func (Ended) workflowEvent()       {}
func (StepStarted) workflowEvent() {}
func (StepWaits) workflowEvent()   {}
func (StepDone) workflowEvent()    {}
func (StepFaulted) workflowEvent() {}
func (StepRetries) workflowEvent() {}
func (StepLeft) workflowEvent()    {}

func itoa(n int) string { return strconv.Itoa(n) }
