package steps

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/profile"
)

// inventory is what the steps read of a driver's answer to inspect.outOfBand.
type inventory struct {
	Hardware node.Hardware     `json:"hardware"`
	Notes    []string          `json:"notes,omitempty"`
	Sources  map[string]string `json:"sources,omitempty"`
}

// inspected is the result of both inspections: the inventory itself is the node's.
type inspected struct {
	Manufacturer string            `json:"manufacturer,omitempty"`
	Product      string            `json:"product,omitempty"`
	Cores        int               `json:"cores"`
	MemoryBytes  int64             `json:"memoryBytes"`
	Disks        int               `json:"disks"`
	NICs         int               `json:"nics"`
	Devices      int               `json:"devices"`
	Notes        []string          `json:"notes,omitempty"`
	Sources      map[string]string `json:"sources,omitempty"`
}

func inspectSteps() []Step {
	return []Step{
		Define(relaying("inspect.outOfBand", "Takes the inventory that the BMC tells. What it does not tell is no fault.",
			15*time.Minute), inspectOutOfBand),
		Agent(profile.Spec{
			ID: "inspect.hardware", RunsOn: profile.OnRamdisk, Command: string(agentcommand.InspectHardware),
			Timeout: 15 * time.Minute,
			Summary: "Takes the inventory from inside the machine.",
		}, Hooks[None]{Settled: inspectedInBand}),
	}
}

func inspectOutOfBand(ctx context.Context, c *Context, _ None) (any, error) {
	found, _, err := invoke[inventory](ctx, c, operation{concern: "inspect", verb: "outOfBand"})
	if err != nil {
		return nil, err
	}
	if err := c.isDeclared(found.Hardware); err != nil {
		return nil, err
	}
	result := summary(found.Hardware)
	result.Notes, result.Sources = found.Notes, found.Sources
	return result, c.record(ctx, node.OutOfBand, found.Hardware)
}

func inspectedInBand(ctx context.Context, c *Context, _ None, done Awaited) (any, error) {
	var found node.Hardware
	if err := json.Unmarshal(done.Result, &found); err != nil {
		return nil, badAnswer(err, "inspect.hardware")
	}
	if err := c.isDeclared(found); err != nil {
		return nil, err
	}
	if err := c.isWhole(found); err != nil {
		return nil, err
	}
	return summary(found), c.record(ctx, node.InBand, found)
}

// isWhole refuses an inventory that lacks a disk where what was on the disks is about to go: taken for the whole, it would have
// nobody miss what is on the one that is not there. Whoever took it out says so by recover, or by retire, once it was missed.
func (c *Context) isWhole(found node.Hardware) error {
	before := c.Node.Hardware.InBand
	if before == nil || c.Node.Provision != node.Releasing && c.Node.Provision != node.Retiring {
		return nil
	}
	var missing []string
	for _, d := range before.Disks {
		if !slices.ContainsFunc(found.Disks, func(f node.Disk) bool { return sameDisk(d, f) }) && !c.answered(missed(d)) {
			missing = append(missing, missed(d))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fault.New(fault.UnverifiedWipe, "of the last inventory %s", strings.Join(missing, ", ")).
		WithRemedy("put the disk back and retry; where it was taken out on purpose, recover or retire the node: it goes on without the disk")
}

func missed(d node.Disk) string { return "disk " + d.Key() + " is not in the machine any more" }

// answered tells whether an operator knew of a failure when he chose to go on.
func (c *Context) answered(failure string) bool {
	a := c.Node.Answered
	return a != nil && a.Code == string(fault.UnverifiedWipe) && strings.Contains(a.Message, failure)
}

// sameDisk knows a disk again by whatever both inventories tell of it: kernels do not write names alike. One without any name is
// not missed, as nobody knows it again.
func sameDisk(a, b node.Disk) bool {
	if a.WWN == "" && a.Serial == "" {
		return true
	}
	return a.WWN != "" && strings.EqualFold(a.WWN, b.WWN) || a.Serial != "" && strings.EqualFold(a.Serial, b.Serial)
}

func (c *Context) record(ctx context.Context, from node.Source, found node.Hardware) error {
	if c.Ports.Nodes == nil {
		return c.lacks("nodes")
	}
	return c.Ports.Nodes.RecordHardware(ctx, c.Node.ID, from, found)
}

func summary(h node.Hardware) inspected {
	return inspected{
		Manufacturer: h.Manufacturer, Product: h.Product, Cores: h.Cores, MemoryBytes: h.MemoryBytes,
		Disks: len(h.Disks), NICs: len(h.NICs), Devices: len(h.Devices),
	}
}

// isDeclared refuses a machine that has none of the MACs that the operator gave for it: the address of the controller is
// another's, and what follows would wipe the wrong disks. An inventory without any MAC says nothing.
func (c *Context) isDeclared(found node.Hardware) error {
	has := map[string]bool{}
	for _, nic := range found.NICs {
		if nic.MAC != "" {
			has[strings.ToLower(nic.MAC)] = true
		}
	}
	if len(has) == 0 || len(c.Node.MACs) == 0 {
		return nil
	}
	for _, mac := range c.Node.MACs {
		if has[strings.ToLower(mac)] {
			return nil
		}
	}
	return fault.New(fault.DriverError, "the machine behind the BMC has none of the node's MACs").
		WithDetail("reason", "other-machine").WithDetail("macs", c.Node.MACs).WithDetail("found", slices.Sorted(maps.Keys(has))).
		WithRemedy("check the BMC's address and the MACs; abandon the node and enroll the machine with what is right")
}
