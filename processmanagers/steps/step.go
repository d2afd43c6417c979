// Package steps has the steps that the control plane runs, and what a program needs to add its own.
//
// A step is a value: what it is called, where it runs, what its input looks like and, for one that runs on the control
// plane, a function. The function may run again after a crash: it finds what an earlier run did before it does anything.
package steps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/workflow"
)

// Step is one registered step.
type Step struct {
	profile.Spec
	// Run is the code of a control-plane step; nil for one whose agent command says everything. Its result is stored and
	// readable by whoever may read the workflow: it never holds a secret. An error that is a *fault.Error keeps its code.
	Run func(ctx context.Context, c *Context) (result any, err error)
	// AwaitsBoot says that a control-plane step waits for another boot of the machine's agent than the present one: the engine
	// keeps that one in Context.Step.Before when the step's first agent command is sent.
	AwaitsBoot bool
	// Preflight tells before a deploy what the step would miss, while the machine is still ready: NOT_FOUND, INVALID_INPUT or
	// INVALID_CONFIG refuse the verb. There is no workflow yet, and it changes nothing. Nil: the step can't tell.
	Preflight func(ctx context.Context, c *Context) error
	// Payload builds the agent command's payload of an agent step from its input and the machine; nil: the input as it is.
	Payload func(ctx context.Context, c *Context) (payload any, err error)
	// Settled looks at the result of an agent step's command before the step is settled with it: to store what it tells, or
	// to refuse it. Nil: the command's result is the step's.
	Settled func(ctx context.Context, c *Context, done Awaited) (result any, err error)
}

// Context is what a step's code sees of the world.
type Context struct {
	Workflow workflow.State
	Step     workflow.Step
	Key      string    // of this attempt: wf:<workflow>:<step>, with #<attempt> from the second on
	Deadline time.Time // of this attempt
	Now      time.Time
	Node     node.State // folded just now
	Profile  profile.Document
	Ports    Ports
}

// Input decodes the step's input.
func (c *Context) Input(into any) error {
	if len(c.Step.With) == 0 {
		return nil
	}
	if err := json.Unmarshal(c.Step.With, into); err != nil {
		return fmt.Errorf("input of %s: %w", c.Step.ID, err)
	}
	return nil
}

// Result gives the result of the newest succeeded step of this workflow with the action.
func (c *Context) Result(action string) (json.RawMessage, bool) {
	if s := c.newest(action); s != nil {
		return s.Result, true
	}
	return nil, false
}

// newest is the newest succeeded step with the action; nil: there is none.
func (c *Context) newest(action string) *workflow.Step {
	for i := len(c.Workflow.Steps) - 1; i >= 0; i-- {
		if s := &c.Workflow.Steps[i]; s.Action == action && s.State == workflow.StepSucceeded {
			return s
		}
	}
	return nil
}

// CommandKey is the key of one of the step's agent commands, name telling it from the step's others.
func (c *Context) CommandKey(name string) string {
	if name == "" {
		return c.Key
	}
	return c.Key + ":" + name
}

// notReady settles nothing: the step runs again.
type notReady struct{ after time.Duration }

func (e *notReady) Error() string { return fmt.Sprintf("not ready; looks again in %s", e.after) }

// DefaultPause is when a step that is not ready runs again if it does not say.
const DefaultPause = 5 * time.Second

// NotReady makes the step run again after a time (zero: DefaultPause), never later than its deadline.
func NotReady(after time.Duration) error {
	if after <= 0 {
		after = DefaultPause
	}
	return &notReady{after}
}

// IsNotReady tells whether an error is NotReady, and after which time the step runs again.
func IsNotReady(err error) (time.Duration, bool) {
	var n *notReady
	if errors.As(err, &n) {
		return n.after, true
	}
	return 0, false
}
