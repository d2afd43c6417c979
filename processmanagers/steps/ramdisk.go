package steps

import (
	"context"
	"fmt"
	"time"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/profile"
)

// Ramdisk is the input of metal.ensureRamdisk.
type Ramdisk struct {
	Device  string `json:"device,omitempty" enum:"network,uefi-http,cd" doc:"cd is the BMC's virtual drive; left out: network"`
	Mode    string `json:"mode,omitempty" enum:"uefi,legacy" doc:"left out: as the machine is set"`
	HTTPURI string `json:"httpUri,omitempty" doc:"of the boot file, for uefi-http"`
}

// deviceCD is the drive that a BMC fills with an image.
const deviceCD = "cd"

// Check wants a URI with no device but the one that needs it.
func (r *Ramdisk) Check() []fault.Issue {
	if r.HTTPURI != "" && r.Device != "uefi-http" {
		return []fault.Issue{{Path: "httpUri", Message: "is for the device uefi-http"}}
	}
	return nil
}

// ramdiskUp is the result of metal.ensureRamdisk.
type ramdiskUp struct {
	BootID    string            `json:"bootId"`
	Role      agentcommand.Role `json:"role"`
	BootEntry bool              `json:"bootEntry"` // one was set: false where the ramdisk ran already
	Rounds    int               `json:"rounds,omitempty"`
}

// bootRounds is how often a machine is sent into the ramdisk before the step gives up. Firmware accepts an override, reads it
// back, and boots the disk all the same; or its NIC was not ready. Only an agent that shows up is proof. More rounds would be
// shorter ones, and a big machine takes a quarter of an hour to start: it must not be cycled before it has.
const bootRounds = 2

func ramdiskSteps() []Step {
	step := Define(profile.Spec{
		ID: actionEnsureRamdisk, Timeout: time.Hour,
		Relays:  []profile.Where{profile.OnSite},
		Sends:   []string{string(agentcommand.BootEntrySet), string(agentcommand.DriverInvoke)},
		Cleanup: &profile.Step{Use: actionClear}, Brings: profile.OnRamdisk,
		Summary: "Boots the machine into the ramdisk once, from the network or a virtual drive, and waits for its agent; nothing where it " +
			"runs already.",
	}, ensureRamdisk)
	step.AwaitsBoot = true
	return []Step{step}
}

func ensureRamdisk(ctx context.Context, c *Context, in Ramdisk) (any, error) {
	now, err := c.session(ctx)
	if err != nil {
		return nil, err
	}
	if c.Ports.Commands == nil {
		return nil, c.lacks("commands")
	}
	begun, err := c.Ports.Commands.Find(ctx, c.CommandKey(roundName("entry", 1)))
	if err != nil {
		return nil, err
	}
	if !begun.Exists() && c.ramdiskRuns(now) {
		return ramdiskUp{BootID: now.BootID, Role: now.Role}, nil
	}
	window := c.Deadline.Sub(c.Step.StartedAt) / bootRounds
	var first time.Time
	for round := 1; ; round++ {
		cycled, err := c.bootRamdisk(ctx, in, now, round, window)
		if err != nil {
			return nil, err
		}
		if round == 1 {
			first = cycled
		}
		if c.cameUp(now, first) {
			rounds, err := c.rounds(ctx)
			return ramdiskUp{BootID: now.BootID, Role: now.Role, BootEntry: true, Rounds: rounds}, err
		}
		if round == bootRounds || c.Now.Before(cycled.Add(window)) {
			return nil, NotReady(0)
		}
	}
}

// ramdiskRuns tells whether the machine is in the ramdisk now: its agent was heard of lately, and nobody has switched the
// machine off since.
func (c *Context) ramdiskRuns(now Session) bool {
	return now.Connected && now.Role == agentcommand.RoleRamdisk && c.Node.Power != node.PowerOff
}

// bootRamdisk sends the machine into the ramdisk, and tells when it was asked to cycle. Each round has a token of its own: an
// earlier one may have been spent by a boot that then died.
func (c *Context) bootRamdisk(ctx context.Context, in Ramdisk, now Session, round int, window time.Duration) (time.Time, error) {
	kept, err := c.setEntry(ctx, roundName("entry", round), roundName("token", round), c.Deadline)
	if err != nil {
		return time.Time{}, err
	}
	if in.Device == deviceCD {
		if err := c.fillDrive(ctx, kept, roundName("media", round)); err != nil {
			return time.Time{}, err
		}
	}
	device := BootDevice{Device: in.Device, Mode: in.Mode, HTTPURI: in.HTTPURI}
	if device.Device == "" {
		device.Device = "network"
	}
	if _, err := c.bootFrom(ctx, device, roundName("boot-device", round)); err != nil {
		return time.Time{}, err
	}
	if err := c.leave(ctx, now); err != nil {
		return time.Time{}, err
	}
	_, sent, err := c.power(ctx, Power{Action: node.ActionCycle}, roundName("power-cycle", round), window)
	// Asked for when its deadline less the window was; or earlier, where the step's deadline cut it: then there is no time
	// for another round anyway.
	return sent.NotAfter.Add(-window), err
}

// fillDrive has the BMC read the image that the site's agent made of the boot entry.
func (c *Context) fillDrive(ctx context.Context, kept agentcommand.BootEntryKept, name string) error {
	if !isHTTP(kept.MediumURL) {
		return fault.New(fault.InvalidConfig, "the site's agent has no image for virtual drives").
			WithRemedy("put the ramdisk.iso of 'bcd image build-ramdisk --iso' into its --boot-files; its log says what is wrong with one")
	}
	_, _, err := c.drive(ctx, operation{concern: "virtual-media", verb: "insert", with: mediaURL{URL: kept.MediumURL}, name: name})
	return err
}

// leave gives up the boot that the step has found: it is about to be ended. Where the step then fails, whoever looks next must
// not take that boot's last sign of life for the ramdisk.
func (c *Context) leave(ctx context.Context, now Session) error {
	old := now.OpenedAt.Before(c.Step.StartedAt)
	if before := c.Step.Before; before != nil {
		old = now.BootID == before.BootID
	}
	if !old || !now.Connected {
		return nil
	}
	return c.Ports.Agents.Down(ctx, c.Node.ID, now)
}

// rounds counts the rounds that were begun.
func (c *Context) rounds(ctx context.Context) (n int, err error) {
	for n < bootRounds {
		begun, err := c.Ports.Commands.Find(ctx, c.CommandKey(roundName("entry", n+1)))
		if err != nil || !begun.Exists() {
			return n, err
		}
		n++
	}
	return n, nil
}

func roundName(what string, round int) string {
	if round == 1 {
		return what
	}
	return fmt.Sprintf("%s-%d", what, round)
}

// cameUp tells whether the agent is in a ramdisk that was booted since the machine was first cycled.
func (c *Context) cameUp(now Session, cycled time.Time) bool {
	if !now.Connected || now.Role != agentcommand.RoleRamdisk {
		return false
	}
	if before := c.Step.Before; before != nil {
		return now.BootID != before.BootID
	}
	return now.OpenedAt.After(cycled)
}
