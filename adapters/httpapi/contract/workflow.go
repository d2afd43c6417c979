package contract

import (
	"encoding/json"
	"time"
)

// Workflow is one run of a profile. With query fields, only those fields are there.
type Workflow struct {
	ID             string          `json:"workflowId"`
	Node           string          `json:"nodeId,omitempty"`
	Tenant         string          `json:"tenantId"`
	Profile        string          `json:"profileId"`
	ProfileVersion int             `json:"profileVersion"`
	State          string          `json:"state" doc:"pending, running, paused, failing, cancelling, succeeded, failed or cancelled"`
	Run            int             `json:"run" doc:"from 1; a retry raises it"`
	Step           string          `json:"stepId,omitempty" doc:"the step in flight"`
	Progress       *Progress       `json:"progress,omitempty" doc:"of the step in flight, where its agent tells"`
	Error          *StepError      `json:"error,omitempty"`
	Reason         string          `json:"reason,omitempty" doc:"of an abort"`
	Steps          []WorkflowStep  `json:"steps" nullable:"false"`
	CreatedAt      time.Time       `json:"createdAt"`
	StartedAt      *time.Time      `json:"startedAt,omitempty"`
	EndedAt        *time.Time      `json:"endedAt,omitempty"`
	Document       json.RawMessage `json:"profile,omitempty" doc:"the profile as it was when the workflow was created; not in lists"`
	Version        uint64          `json:"version"`
	Position       uint64          `json:"position"`
	UpdatedAt      time.Time       `json:"updatedAt"`
}

// WorkflowStep is one step of a workflow.
type WorkflowStep struct {
	ID           string          `json:"stepId"`
	Phase        string          `json:"phase" doc:"main, on-failure or cleanup"`
	Action       string          `json:"action" doc:"the registered step, or <concern>.<operation> of a driver"`
	RunsOn       string          `json:"runsOn" doc:"control-plane, site, ramdisk or node"`
	State        string          `json:"state" doc:"pending, running, waiting, succeeded, failed, skipped or cancelled"`
	Attempt      int             `json:"attempt"`
	AgentCommand string          `json:"agentCommandId,omitempty"`
	StartedAt    *time.Time      `json:"startedAt,omitempty"`
	SettledAt    *time.Time      `json:"settledAt,omitempty"`
	Deadline     *time.Time      `json:"deadline,omitempty"`
	NotBefore    *time.Time      `json:"notBefore,omitempty" doc:"of the next attempt"`
	Result       json.RawMessage `json:"result,omitempty"`
	Error        *StepError      `json:"error,omitempty"`
}

// StepError is why a step or a workflow failed.
type StepError struct {
	Code    string          `json:"code"`
	Message string          `json:"message"`
	Details json.RawMessage `json:"details,omitempty"`
	Rescue  bool            `json:"rescue,omitempty" doc:"the step that failed asked for a rescue"`
}

// Progress is how far an agent is with what it does. It is not history.
type Progress struct {
	Percent float64   `json:"percent" doc:"0 to 100; below zero: not known"`
	Message string    `json:"message,omitempty"`
	At      time.Time `json:"at"`
}

// Retry runs a failed workflow again.
type Retry struct {
	FromStep string `json:"fromStep,omitempty" doc:"a main step; left out: the first that did not succeed"`
}
