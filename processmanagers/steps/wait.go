package steps

import (
	"context"
	"fmt"
	"time"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/workflow"
)

// WaitAgent is the input of wait.agentJoined.
type WaitAgent struct {
	Role agentcommand.Role `json:"role" enum:"node,ramdisk"`
}

// WaitObserved is the input of wait.observed.
type WaitObserved struct {
	Power node.Power `json:"power" enum:"on,off"`
}

type joined struct {
	Agent  id.Agent          `json:"agentId"`
	BootID string            `json:"bootId"`
	Role   agentcommand.Role `json:"role"`
}

type observed struct {
	Power node.Power `json:"power"`
}

func waitSteps() []Step {
	return []Step{
		Define(profile.Spec{
			ID: "wait.agentJoined", Timeout: 30 * time.Minute,
			Summary: "Waits until the machine's agent is connected in a role, booted since the workflow last restarted the machine.",
		}, waitAgent),
		Define(relaying("wait.observed", "Waits until the machine's power is observed to be on or off.", 10*time.Minute), waitObserved),
	}
}

func waitAgent(ctx context.Context, c *Context, in WaitAgent) (any, error) {
	now, err := c.session(ctx)
	if err != nil {
		return nil, err
	}
	if !now.Connected || now.Role != in.Role || now.OpenedAt.Before(c.restarted()) {
		return nil, NotReady(0)
	}
	return joined{Agent: now.Agent, BootID: now.BootID, Role: now.Role}, nil
}

// restarted is when the workflow last began to take the machine's OS down, since when an earlier agent is another boot's;
// zero: it has not.
func (c *Context) restarted() (at time.Time) {
	for _, s := range c.Workflow.Steps {
		if s.ID != c.Step.ID && restarts(s) && s.StartedAt.After(at) {
			at = s.StartedAt
		}
	}
	return at
}

// restarts tells whether a step takes the machine down, or has. One whose result says that it found everything as wanted has
// not.
func restarts(s workflow.Step) bool {
	told, err := decodeResult[struct {
		Changed   *bool `json:"changed"`
		BootEntry *bool `json:"bootEntry"`
	}](s.Action, s.Result)
	if err != nil || s.State != workflow.StepSucceeded {
		told.Changed, told.BootEntry = nil, nil
	}
	switch s.Action {
	case actionSetPower:
		return told.Changed == nil || *told.Changed
	case actionEnsureRamdisk:
		return told.BootEntry == nil || *told.BootEntry
	case "boot.kexec", "node.reboot":
		return true
	}
	return false
}

// waitObserved asks the BMC with growing pauses. A machine without one is known by what was observed last.
func waitObserved(ctx context.Context, c *Context, in WaitObserved) (any, error) {
	if c.Node.BMC == nil {
		if c.Node.Power != in.Power {
			return nil, NotReady(0)
		}
		return observed(in), nil
	}
	if c.justObserved(in.Power) {
		return observed(in), nil
	}
	look, next := c.look()
	found, _, err := invoke[observed](ctx, c, operation{concern: "power", verb: "get", name: look})
	if err != nil {
		return nil, err
	}
	if err := c.observe(ctx, found.Power); err != nil {
		return nil, err
	}
	if found.Power != in.Power {
		return nil, NotReady(next)
	}
	return found, nil
}

// justObserved tells whether the step before this one has read the power back as wanted: it need not be asked again.
func (c *Context) justObserved(want node.Power) bool {
	var last *workflow.Step
	for i, s := range c.Workflow.Steps {
		if s.ID == c.Step.ID {
			break
		}
		if s.Started && s.State.Settled() {
			last = &c.Workflow.Steps[i]
		}
	}
	if last == nil || last.Action != actionSetPower || last.State != workflow.StepSucceeded {
		return false
	}
	told, err := decodeResult[observed](last.Action, last.Result)
	return err == nil && told.Power == want && c.Node.Power == want
}

// The pauses between two looks at something that only an agent command can tell: they double up to the longest, for each look
// is kept for ever.
const (
	firstLook   = 5 * time.Second
	longestLook = 2 * time.Minute
)

// look names the present look, and says when the next one is due.
func (c *Context) look() (name string, next time.Duration) {
	pause, n, end := firstLook, 1, c.Step.StartedAt.Add(firstLook)
	for !c.Now.Before(end) {
		pause, n = min(2*pause, longestLook), n+1
		end = end.Add(pause)
	}
	return fmt.Sprintf("look-%d", n), end.Sub(c.Now)
}
