package contract

import (
	"encoding/json"
	"time"
)

// Builtin stands where a tenant's id stands otherwise: the profile came with the program.
const Builtin = "builtin"

// NewProfile is a version of a profile to be stored.
type NewProfile struct {
	Tenant  string          `json:"tenantId"`
	Profile json.RawMessage `json:"profile" doc:"the document: id, version, target, steps and so on"`
}

// TryProfile is a profile to be looked at, not stored.
type TryProfile struct {
	Profile         json.RawMessage `json:"profile" doc:"the document"`
	HardwareProfile string          `json:"hardwareProfile,omitempty" doc:"whose drivers the steps get; left out: the default driver for all"`
}

// ProfileDocument is one version of a profile, with what is known of it. With query fields, only those fields are there.
type ProfileDocument struct {
	ID             string          `json:"profileId"`
	ProfileVersion int             `json:"profileVersion"`
	Tenant         string          `json:"tenantId" doc:"whose it is; builtin: it came with the program"`
	Public         bool            `json:"public" doc:"every tenant finds it"`
	Target         string          `json:"target" doc:"metal, instance or adopt"`
	Description    string          `json:"description,omitempty"`
	Used           bool            `json:"used" doc:"a workflow has run it, or it came with the program: it never changes"`
	Digest         string          `json:"digest" doc:"SHA-256 of the document in its canonical form, hexadecimal"`
	Document       json.RawMessage `json:"profile,omitempty" doc:"not in lists"`
	CreatedAt      *time.Time      `json:"createdAt,omitempty"`
	Version        uint64          `json:"version,omitempty" doc:"of what is stored; absent for one that came with the program"`
	Position       uint64          `json:"position,omitempty"`
	UpdatedAt      *time.Time      `json:"updatedAt,omitempty"`
}

// Verdict says what is wrong with a profile.
type Verdict struct {
	Valid  bool    `json:"valid"`
	Issues []Issue `json:"issues" nullable:"false" doc:"everything, each with its path within the document"`
}

// Rendered is a profile as a workflow would run it.
type Rendered struct {
	ID             string         `json:"profileId"`
	ProfileVersion int            `json:"profileVersion"`
	Steps          []RenderedStep `json:"steps" nullable:"false" doc:"in the order of their phases"`
}

// RenderedStep is a step with everything that was left out filled in.
type RenderedStep struct {
	ID            string          `json:"stepId"`
	Phase         string          `json:"phase" doc:"main, on-failure or cleanup"`
	Action        string          `json:"action" doc:"the registered step, or <concern>.<operation> of a driver"`
	RunsOn        string          `json:"runsOn" doc:"control-plane, site, ramdisk or node"`
	Driver        string          `json:"driver,omitempty" doc:"of a driver operation"`
	Command       string          `json:"command,omitempty" doc:"the kind of agent command that it is sent as"`
	Sends         []string        `json:"sends,omitempty" doc:"the kinds of agent command that it may send"`
	With          json.RawMessage `json:"with,omitempty"`
	When          string          `json:"when,omitempty"`
	Timeout       string          `json:"timeout" doc:"of one attempt"`
	Retries       int             `json:"retries,omitempty"`
	RetryDelay    string          `json:"retryDelay,omitempty"`
	OnFailure     string          `json:"onFailure" doc:"fail, continue or rescue"`
	OnFailureStep string          `json:"onFailureStepId,omitempty" doc:"the step that runs first when this one fails for good"`
	ArmedBy       string          `json:"armedBy,omitempty" doc:"runs only if this step failed, or, in cleanup, was started"`
	Rejoin        bool            `json:"rejoin,omitempty" doc:"settles when the machine is back"`
	Needs         string          `json:"needs,omitempty" doc:"the step that brings its computer up; a retry runs it again"`
}

// StepInfo is a step that profiles may use.
type StepInfo struct {
	ID         string          `json:"stepId"`
	RunsOn     string          `json:"runsOn" doc:"control-plane, site, ramdisk or node"`
	Relays     []string        `json:"relays,omitempty" doc:"where what it sends may run: on may name these too"`
	Sends      []string        `json:"sends,omitempty" doc:"kinds of agent command"`
	Timeout    string          `json:"timeout" doc:"of one attempt, where a profile does not say"`
	Retries    int             `json:"retries,omitempty"`
	RetryDelay string          `json:"retryDelay,omitempty"`
	Rejoin     bool            `json:"rejoin,omitempty" doc:"ends its agent, and settles when the machine is back"`
	Brings     string          `json:"brings,omitempty" doc:"the computer whose agent is up afterwards"`
	Cleanup    string          `json:"cleanup,omitempty" doc:"the step that cleans up after it"`
	Input      json.RawMessage `json:"input,omitempty" doc:"JSON Schema of with; absent: it takes none"`
	Summary    string          `json:"summary"`
}
