package steps

import (
	"context"
	"time"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/profile"
)

const actionSetPower = "power.setPower"

// Power is the input of power.setPower.
type Power struct {
	Action   node.PowerAction `json:"action" enum:"on,off,graceful,cycle,reset" doc:"off is at once, graceful asks the OS"`
	Graceful profile.Duration `json:"graceful,omitempty" doc:"how long the OS may take; left out: 2 minutes"`
	Force    bool             `json:"force,omitempty" doc:"after a graceful shutdown that takes too long, switch off"`
}

// Check refuses a time below zero.
func (p *Power) Check() []fault.Issue {
	if p.Graceful < 0 {
		return []fault.Issue{{Path: "graceful", Message: "is negative"}}
	}
	return nil
}

// setPowerWith is what power.setPower asks of the driver.
type setPowerWith struct {
	Action   node.PowerAction     `json:"action"`
	Graceful agentcommand.Seconds `json:"graceful,omitempty"`
	Force    bool                 `json:"force,omitempty"`
}

// powered is what the steps read of a driver's answer to power.setPower.
type powered struct {
	Power   node.Power `json:"power"`
	Changed bool       `json:"changed"`
	Sent    []string   `json:"sent,omitempty"`
	Forced  bool       `json:"forced,omitempty"`
}

// BootDevice is the input of management.setBootDevice.
type BootDevice struct {
	Device     string `json:"device" enum:"network,disk,cd,uefi-http,setup"`
	Persistent bool   `json:"persistent,omitempty" doc:"for every boot, not only the next one"`
	Mode       string `json:"mode,omitempty" enum:"uefi,legacy" doc:"left out: as the machine is set"`
	HTTPURI    string `json:"httpUri,omitempty" doc:"of the boot file, for uefi-http"`
}

// Check wants a URI with no device but the one that needs it.
func (b *BootDevice) Check() []fault.Issue {
	if b.HTTPURI != "" && b.Device != "uefi-http" {
		return []fault.Issue{{Path: "httpUri", Message: "is for the device uefi-http"}}
	}
	return nil
}

// bootDevice is what the controller holds, as it was read back.
type bootDevice struct {
	Device     string `json:"device"`
	Persistent bool   `json:"persistent,omitempty"`
	Mode       string `json:"mode,omitempty"`
	Target     string `json:"target,omitempty"`
	Note       string `json:"note,omitempty"`
}

type readings struct {
	Readings []reading `json:"readings"`
}

type reading struct {
	Name   string  `json:"name"`
	Kind   string  `json:"kind"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Health string  `json:"health,omitempty"`
}

func powerSteps() []Step {
	return []Step{
		Define(relaying(actionSetPower, "Changes the machine's power, and reads back that it did.", 10*time.Minute), setPower),
		Define(relaying("management.setBootDevice", "Chooses what the machine boots from, and reads back that it holds.",
			5*time.Minute), setBootDevice),
		Define(relaying("management.getSensors", "Reads the machine's sensors through its BMC.", 5*time.Minute), getSensors),
	}
}

func setPower(ctx context.Context, c *Context, in Power) (any, error) {
	done, _, err := c.power(ctx, in, "", 0)
	return done, err
}

// power drives the machine's power and keeps what was observed. Off is what was read back as off, whatever the health of the
// machine or the word of its controller.
func (c *Context) power(ctx context.Context, in Power, name string, timeout time.Duration,
) (powered, agentcommand.State, error) {
	done, sent, err := invoke[powered](ctx, c, operation{
		concern: "power", verb: "setPower", name: name, timeout: timeout,
		with: setPowerWith{in.Action, agentcommand.Seconds(time.Duration(in.Graceful).Seconds()), in.Force},
	})
	if err != nil {
		return done, sent, err
	}
	want := node.PowerOn
	if in.Action == node.ActionOff || in.Action == node.ActionGraceful {
		want = node.PowerOff
	}
	if done.Power != want {
		return done, sent, fault.New(fault.DriverError, "the machine is %q after the power action %s", string(done.Power), in.Action).
			WithDetail("reason", "power-not-reached").WithDetail("wanted", string(want)).WithDetail("found", string(done.Power))
	}
	return done, sent, c.observe(ctx, done.Power)
}

// observe keeps a power state that was read, where it is news.
func (c *Context) observe(ctx context.Context, p node.Power) error {
	if p != node.PowerOn && p != node.PowerOff || p == c.Node.Power && c.Node.PowerAction == "" {
		return nil
	}
	if c.Ports.Nodes == nil {
		return c.lacks("nodes")
	}
	if err := c.Ports.Nodes.ObservePower(ctx, c.Node.ID, c.Key, p); err != nil {
		return err
	}
	c.Node.Power, c.Node.PowerAction = p, ""
	return nil
}

func setBootDevice(ctx context.Context, c *Context, in BootDevice) (any, error) {
	return c.bootFrom(ctx, in, "")
}

func (c *Context) bootFrom(ctx context.Context, in BootDevice, name string) (bootDevice, error) {
	held, _, err := invoke[bootDevice](ctx, c, operation{concern: "management", verb: "setBootDevice", with: in, name: name})
	return held, err
}

func getSensors(ctx context.Context, c *Context, _ None) (any, error) {
	told, _, err := invoke[[]reading](ctx, c, operation{concern: "management", verb: "getSensors"})
	return readings{Readings: told}, err
}
