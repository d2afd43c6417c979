// Package profile is the versioned document that a workflow runs: what to do, on which computer, and what to do when it fails.
//
// document.go has the document, check.go refuses what is malformed, resolve.go turns its steps into ones that can run,
// builtin has the profiles that are shipped. A version is immutable from its first use.
package profile

import (
	"encoding/json"
	"time"

	"github.com/better-compute/metal/domain/fault"
)

// Target is what a profile is for.
type Target string

// The targets.
const (
	TargetMetal    Target = "metal"
	TargetInstance Target = "instance"
	TargetAdopt    Target = "adopt" // no image, user data or steps
)

// Where names the computer that a step runs on.
type Where string

// The computers.
const (
	OnControlPlane Where = "control-plane"
	OnSite         Where = "site"
	OnRamdisk      Where = "ramdisk"
	OnNode         Where = "node"
)

// Document is one version of a profile.
type Document struct {
	ID          string            `json:"id"`
	Version     int               `json:"version"`
	Description string            `json:"description,omitempty"`
	Public      bool              `json:"public,omitempty"`
	Target      Target            `json:"target"`
	Role        string            `json:"role,omitempty"`    // host (default) or dedicated
	Image       string            `json:"image,omitempty"`   // name@version
	Drivers     map[string]string `json:"drivers,omitempty"` // concern → driver, over the hardware profile's
	UserData    *UserData         `json:"userData,omitempty"`
	HostConfig  []ConfigUnit      `json:"hostConfig,omitempty"`
	Steps       []Step            `json:"steps,omitempty"`
	Cleanup     []Step            `json:"cleanup,omitempty"`
}

// UserData names the template that the installed OS is configured with.
type UserData struct {
	Kind     string `json:"kind"` // cloud-init or ignition, or one that a program registered
	Template string `json:"template,omitempty"`
}

// ConfigUnit is one thing that the installed agent configures.
type ConfigUnit struct {
	Name     string          `json:"name"`
	Settings json.RawMessage `json:"settings,omitempty"`
	When     string          `json:"when,omitempty"`
}

// Step is one step as written. Fields left out have the defaults of the step's definition.
type Step struct {
	Use        string          `json:"use"`
	ID         string          `json:"id,omitempty"`
	On         Where           `json:"on,omitempty"`
	With       json.RawMessage `json:"with,omitempty"`
	When       string          `json:"when,omitempty"`
	Timeout    Duration        `json:"timeout,omitempty"`
	Retries    int             `json:"retries,omitempty"`
	RetryDelay Duration        `json:"retryDelay,omitempty"`
	OnFailure  *OnFailure      `json:"onFailure,omitempty"`
	Await      string          `json:"await,omitempty"` // rejoin
	Fallback   string          `json:"fallback,omitempty"`
}

// Duration is written as 90s, 5m, 1h30m.
type Duration time.Duration

// OnFailure is what follows when a step failed for good: "fail", "continue", "rescue", or a step.
type OnFailure struct {
	Policy Policy // fail where Step is set
	Step   *Step
}

// Policy is what happens to the workflow.
type Policy string

// The policies.
const (
	PolicyFail     Policy = "fail"
	PolicyContinue Policy = "continue"
	PolicyRescue   Policy = "rescue"
)

// MaxSteps bounds the steps of a workflow over all phases.
const MaxSteps = 512

// Spec is what a profile must know about a step that it uses: the definition without the code.
type Spec struct {
	ID      string
	RunsOn  Where
	Relays  []Where // of a control-plane step that sends commands on: `on` may name them
	Timeout time.Duration
	// Command is the agent command kind of an agent step; Sends are the kinds that a control-plane step may send.
	Command string
	Sends   []string
	// Input is the JSON Schema of with, for people; Check is what decides. Nil: with must be empty.
	Input json.RawMessage
	Check func(with json.RawMessage) []fault.Issue
	// Cleanup runs after the workflow where the step was started; nil: none.
	Cleanup *Step
	// Rejoin says that the step's command ends the agent: it must be awaited as a rejoin.
	Rejoin bool
	// Brings is the computer whose agent is up once the step succeeded; where it is up already, the step does nothing.
	Brings Where
	// Retries and RetryDelay are the defaults of a step that says nothing.
	Retries    int
	RetryDelay time.Duration
	Summary    string // one sentence for people
}

// Catalog finds the definition of a step.
type Catalog interface {
	Find(id string) (Spec, bool)
}

// Phase is when a step runs.
type Phase string

// The phases, in order.
const (
	PhaseMain      Phase = "main"
	PhaseOnFailure Phase = "on-failure"
	PhaseCleanup   Phase = "cleanup"
)

// Resolved is a step that can run: everything that was left out is filled in.
type Resolved struct {
	ID            string
	Phase         Phase
	Action        string // the registered step's id, or <concern>.<operation>
	RunsOn        Where
	Command       string // agent command kind of an agent step; driver.invoke for a driver operation
	Driver        string // of a driver operation
	Sends         []string
	With          json.RawMessage
	When          string
	Timeout       time.Duration
	Retries       int
	RetryDelay    time.Duration
	Policy        Policy
	OnFailureStep string // id of the on-failure step that this one arms
	ArmedBy       string // of an on-failure step, and of a definition's own cleanup: the step that arms it
	Rejoin        bool
	Needs         string // id of the step that brings up the computer that this one is about: run again with it
}
