package steps

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
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
	if c.isInUse() && c.Node.Hardware.InBand != nil && len(missingOf(c.Node.Hardware.InBand.Disks, found.Disks)) > 0 {
		return summary(found), nil // the one before stays, so that the disk is missed once what is on it is about to go
	}
	if err := c.isWhole(found); err != nil {
		return nil, err
	}
	return summary(found), c.record(ctx, node.InBand, found)
}

// isInUse tells whether somebody has the machine: a disk that dropped out is no reason not to rescue it.
func (c *Context) isInUse() bool {
	return slices.Contains([]node.ProvisionState{node.Deploying, node.Deployed, node.Rescue}, c.Node.Provision)
}

// isWhole refuses an inventory that lacks a disk where what was on the disks is about to go: taken for the whole, it would have
// nobody miss what is on the one that is not there. Whoever took it out says so by recover, or by retire, once it was missed.
func (c *Context) isWhole(found node.Hardware) error {
	if c.isInUse() {
		return nil
	}
	lost, unseen := c.lost(found), c.unseen(found)
	if c.knows(lost) && (unseen == "" || c.answered(unseen)) {
		return nil
	}
	// What was answered is told again: the next answer takes this one's place.
	var what []string
	if len(lost) > 0 {
		what = append(what, "of the last inventory "+missedOf(lost))
	}
	remedy := "put the disk back and retry; where it was taken out on purpose, recover or retire the node: it goes on without the disk"
	if unseen != "" {
		told := len(c.Node.Hardware.OutOfBand.Disks)
		what = append(what, fmt.Sprintf("%s; it sees %d, and the BMC tells of %d", unseen, len(found.Disks), told))
		remedy = "build the ramdisk with the drivers of all controllers of disks, and retry; where none of the machine's disks is missing, " +
			"recover the node: it goes on with those that are seen"
	}
	return fault.New(fault.UnverifiedWipe, "%s", strings.Join(what, "; ")).WithDetail("missing", lost).WithDetail("seen", found.Disks).
		WithRemedy(remedy)
}

// lost are the disks of the last inventory that are not in this one, where data may be on them.
func (c *Context) lost(found node.Hardware) []node.Disk {
	if c.Node.Hardware.InBand == nil || !c.hasData() {
		return nil
	}
	return missingOf(c.Node.Hardware.InBand.Disks, found.Disks)
}

// knows tells whether an operator knew of disks that are lost when he chose to go on.
func (c *Context) knows(lost []node.Disk) bool {
	isNew := func(name string) bool { return !c.answered(missed(name)) }
	return c.answered(missedAll(lost)) || !slices.ContainsFunc(namesOf(lost), isNew)
}

// mostNamed is how many disks are named one by one: what an operator was told is known again by a text that is cut somewhere.
const mostNamed = 8

func namesOf(disks []node.Disk) (out []string) {
	for _, d := range disks {
		out = append(out, d.Key())
	}
	slices.Sort(out)
	return out
}

func missedOf(lost []node.Disk) string {
	names := namesOf(lost)
	if len(names) > mostNamed {
		return missedAll(lost) + ", such as " + strings.Join(names[:mostNamed], ", ")
	}
	for i, name := range names {
		names[i] = missed(name)
	}
	return strings.Join(names, ", ")
}

func missed(name string) string { return "disk " + name + " is not in the machine any more" }

// missedAll stands for all of them, whole shelves too: for these and no others.
func missedAll(lost []node.Disk) string {
	sum := sha256.Sum256([]byte(strings.Join(namesOf(lost), "\n")))
	return fmt.Sprintf("%d disks (%x) are not in the machine any more", len(lost), sum[:8])
}

// unseen tells of an inventory that lacks what the BMC tells of for want of a driver: what nobody sees nobody wipes. How many disks a
// BMC tells of proves nothing by itself, for it sees those behind a RAID controller one by one. What was recorded before was answered
// for, and is not asked about again.
func (c *Context) unseen(found node.Hardware) string {
	outside, before := c.Node.Hardware.OutOfBand, c.Node.Hardware.InBand
	if before == nil {
		before = &node.Hardware{Disks: []node.Disk{{}}}
	}
	switch {
	case outside == nil || len(outside.Disks) <= len(found.Disks):
		return ""
	case len(found.Driverless) > 0 && !slices.Equal(found.Driverless, before.Driverless):
		return "the ramdisk has no driver for the controllers of disks at " + strings.Join(found.Driverless, ", ")
	case len(found.Disks) == 0 && len(before.Disks) > 0:
		return "the ramdisk sees no disk"
	}
	return ""
}

// hasData tells whether somebody's data may be on the disks that the last inventory has, and is about to go. After an undeploy
// without a wipe it is there until a commissioning has emptied them.
func (c *Context) hasData() bool {
	is := c.Node.Provision
	return is == node.Releasing || is == node.Retiring || is == node.Commissioning && c.Node.ReleaseWipe == node.WipeNone
}

// answered tells whether an operator knew of a failure when he chose to go on.
func (c *Context) answered(failure string) bool {
	a := c.Node.Answered
	return a != nil && a.Code == string(fault.UnverifiedWipe) && strings.Contains(a.Message, failure)
}

// sameDisk are the ways in which a disk is known again, the best one first: kernels do not write names alike. One without any name
// may be any that is as large.
var sameDisk = []func(before, found node.Disk) bool{
	func(a, b node.Disk) bool { return a.WWN != "" && strings.EqualFold(a.WWN, b.WWN) },
	func(a, b node.Disk) bool { return a.Serial != "" && strings.EqualFold(a.Serial, b.Serial) },
	func(a, b node.Disk) bool { return a.WWN == "" && a.Serial == "" && a.Bytes == b.Bytes },
}

// missingOf lists the disks of an inventory that a later one lacks. Each that was found stands for one of before: some have the
// same name, and one of them says nothing of another.
func missingOf(before, found []node.Disk) []node.Disk {
	before, found = slices.Clone(before), slices.Clone(found)
	for _, same := range sameDisk {
		before = slices.DeleteFunc(before, func(d node.Disk) bool {
			i := slices.IndexFunc(found, func(f node.Disk) bool { return same(d, f) })
			if i >= 0 {
				found = slices.Delete(found, i, i+1)
			}
			return i >= 0
		})
	}
	return before
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
