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

// DiskBurnin is the input of burnin.disk.
type DiskBurnin struct {
	Duration profile.Duration `json:"duration,omitempty" doc:"how long each disk is tried; left out: one pass"`
	Bytes    int64            `json:"bytes,omitempty" doc:"how much of each disk; left out: all of it"`
	Shared   bool             `json:"shared,omitempty" doc:"disks with a filesystem that machines may share, too, as for disk.wipe"`
}

// Check refuses what is below zero.
func (b *DiskBurnin) Check() []fault.Issue { return (&Burnin{b.Duration, b.Bytes}).Check() }

func burninSteps() []Step {
	return []Step{
		burnin("burnin.cpu", agentcommand.BurninCPU, "Tries every processor core.", 3*time.Hour),
		burnin("burnin.memory", agentcommand.BurninMemory, "Writes patterns to the memory and reads them back.", 12*time.Hour),
		Agent(burninSpec("burnin.disk", agentcommand.BurninDisk,
			"Writes patterns to every disk and reads them back: what was on them is lost.", 48*time.Hour),
			Hooks[DiskBurnin]{Payload: burninDisks, Settled: burned[DiskBurnin]}),
		burnin("burnin.gpu", agentcommand.BurninGPU, "Runs the GPU diagnostics.", 6*time.Hour),
	}
}

func burnin(id string, kind agentcommand.KindName, summary string, timeout time.Duration) Step {
	return Agent(burninSpec(id, kind, summary, timeout), Hooks[Burnin]{
		Payload: func(_ context.Context, _ *Context, in Burnin) (any, error) {
			return agentcommand.Burnin{Duration: seconds(in.Duration), Bytes: in.Bytes}, nil
		},
		Settled: burned[Burnin],
	})
}

func burninSpec(id string, kind agentcommand.KindName, summary string, timeout time.Duration) profile.Spec {
	return profile.Spec{ID: id, RunsOn: profile.OnRamdisk, Command: string(kind), Timeout: timeout, Summary: summary}
}

func burninDisks(_ context.Context, c *Context, in DiskBurnin) (any, error) {
	if c.Node.Provision != node.Commissioning {
		return nil, c.keepsDisks()
	}
	return agentcommand.Burnin{Duration: seconds(in.Duration), Bytes: in.Bytes, Shared: in.Shared}, nil
}

func seconds(d profile.Duration) agentcommand.Seconds {
	return agentcommand.Seconds(time.Duration(d).Seconds())
}

// burned refuses a result that the machine did not sign, and one with errors.
func burned[In any](_ context.Context, c *Context, _ In, done Awaited) (any, error) {
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
