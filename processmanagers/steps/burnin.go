package steps

import (
	"context"
	"encoding/json"
	"time"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/profile"
)

// Burnin is the input of the burnin steps.
type Burnin struct {
	Duration profile.Duration `json:"duration,omitempty" doc:"how long each part is tried; left out: one pass"`
	Bytes    int64            `json:"bytes,omitempty" doc:"how much of the memory or of each disk; left out: all of it"`
}

// Check refuses what is below zero.
func (b *Burnin) Check() (wrong []fault.Issue) {
	if b.Duration < 0 {
		wrong = append(wrong, fault.Issue{Path: "duration", Message: "is negative"})
	}
	if b.Bytes < 0 {
		wrong = append(wrong, fault.Issue{Path: "bytes", Message: "is negative"})
	}
	return wrong
}

func burninSteps() []Step {
	return []Step{
		burnin("burnin.cpu", agentcommand.BurninCPU, "Tries every processor core.", 3*time.Hour),
		burnin("burnin.memory", agentcommand.BurninMemory, "Writes patterns to the memory and reads them back.", 12*time.Hour),
		burnin("burnin.disk", agentcommand.BurninDisk, "Writes patterns to every disk and reads them back: what was on them is lost.",
			48*time.Hour),
		burnin("burnin.gpu", agentcommand.BurninGPU, "Runs the GPU diagnostics.", 6*time.Hour),
	}
}

func burnin(id string, kind agentcommand.KindName, summary string, timeout time.Duration) Step {
	return Agent(profile.Spec{ID: id, RunsOn: profile.OnRamdisk, Command: string(kind), Timeout: timeout, Summary: summary},
		Hooks[Burnin]{
			Payload: func(_ context.Context, c *Context, in Burnin) (any, error) {
				if kind == agentcommand.BurninDisk && c.Node.Provision != node.Commissioning {
					return nil, c.keepsDisks()
				}
				return agentcommand.Burnin{Duration: agentcommand.Seconds(time.Duration(in.Duration).Seconds()), Bytes: in.Bytes}, nil
			},
			Settled: burned,
		})
}

// burned refuses a result that the machine did not sign, and one with errors.
func burned(_ context.Context, c *Context, _ Burnin, done Awaited) (any, error) {
	var told agentcommand.Burned
	if err := json.Unmarshal(done.Result, &told); err != nil {
		return nil, badAnswer(err, c.Step.Action)
	}
	if !done.Attested {
		return nil, c.unsigned(done)
	}
	for _, part := range told.Parts {
		if part.Errors > 0 {
			return nil, fault.New(fault.DriverError, "%s had %d errors", part.Name, part.Errors).
				WithDetail("reason", "part-failed").WithDetail("parts", told.Parts)
		}
	}
	return told, nil
}

func (c *Context) unsigned(done Awaited) error {
	return fault.New(fault.DriverError, "the result of %s carries no signature of the machine's agent that holds", c.Step.Action).
		WithDetail("reason", "not-attested").WithDetail("agentCommandId", done.AgentCommand.String())
}

// keepsDisks refuses what would destroy data in a state in which nobody asked for that.
func (c *Context) keepsDisks() error {
	return fault.New(fault.InvalidState, "%s destroys what is on the disks, and nobody asked for that in %s",
		c.Step.Action, c.Node.Provision).WithDetail("state", string(c.Node.Provision))
}
