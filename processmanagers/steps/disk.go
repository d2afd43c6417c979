package steps

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/profile"
)

// Wipe is the input of disk.wipe.
type Wipe struct {
	Method node.WipeMethod `json:"method,omitempty" enum:"quick,secure-erase,crypto-erase" doc:"where the operator named none"`
	Shared bool            `json:"shared,omitempty" doc:"filesystems that machines may share, such as VMFS, too; else the disk is not touched"`
}

// wiped is the result of the agent command, and of the step.
type wiped struct {
	Method node.WipeMethod  `json:"method,omitempty"` // as asked
	Disks  []node.WipedDisk `json:"disks"`
}

func diskSteps() []Step {
	return []Step{
		Agent(profile.Spec{
			ID: "disk.wipe", RunsOn: profile.OnRamdisk, Command: string(agentcommand.DiskWipe), Timeout: 24 * time.Hour,
			Summary: "Empties every local disk and reads back that it did, as the operator asked.",
		}, Hooks[Wipe]{Payload: wipePayload, Settled: wipeSettled}),
	}
}

// wipeStates are those in which the node's operator has asked for whatever is on the disks to go.
var wipeStates = []node.ProvisionState{node.Commissioning, node.Releasing, node.Retiring, node.Deploying}

func wipePayload(_ context.Context, c *Context, in Wipe) (any, error) {
	if !slices.Contains(wipeStates, c.Node.Provision) {
		return nil, c.keepsDisks()
	}
	method, err := c.wipeMethod(in)
	return agentcommand.WipeDisks{Method: string(method), Shared: in.Shared}, err
}

// wipeMethod is what the operator asked for, else what the profile says.
func (c *Context) wipeMethod(in Wipe) (node.WipeMethod, error) {
	asked := node.WipeMethod("")
	if c.Node.Provision == node.Releasing || c.Node.Provision == node.Retiring {
		asked = c.Node.ReleaseWipe
	}
	switch {
	case asked == node.WipeNone:
		return "", fault.New(fault.InvalidState, "the operator asked for no wipe").
			WithRemedy("have the profile wipe only where it is wanted: when: wipe!=none")
	case asked != "":
		return asked, nil
	case in.Method != "":
		return in.Method, nil
	}
	return node.WipeQuick, nil
}

// wipeSettled believes a wipe that the machine signed and that was read back on every disk, and keeps it on the node.
func wipeSettled(ctx context.Context, c *Context, in Wipe, done Awaited) (any, error) {
	var told wiped
	if err := json.Unmarshal(done.Result, &told); err != nil {
		return nil, badAnswer(err, "disk.wipe")
	}
	method, err := c.wipeMethod(in)
	if err != nil {
		return nil, err
	}
	told.Method = method
	if !done.Attested || done.Attestation == nil {
		return nil, unverified("the result carries no signature of the machine's agent that holds", told.Disks)
	}
	w := node.Wipe{
		Workflow: c.Workflow.Workflow, AgentCommand: done.AgentCommand, BootID: done.BootID,
		Certificate: done.Attestation.Certificate, Signed: true, Method: method, Disks: told.Disks,
	}
	if c.Node.Provision != node.Deploying { // there the disks are written next: it would prove nothing
		if c.Ports.Nodes == nil {
			return nil, c.lacks("nodes")
		}
		if err := c.Ports.Nodes.AttestWipe(ctx, c.Node.ID, w); err != nil {
			return nil, err
		}
	}
	if failed := failedDisks(w, c.Node.Hardware.InBand); len(failed) > 0 {
		return nil, unverified("a disk was not wiped as asked, or could not be read back", failed)
	}
	after := c.Node
	after.Wipe = &w
	if missing, _ := after.Unproven(); len(missing) > 0 {
		return nil, unverified("a disk of the latest inventory is not among those that were wiped", missing)
	}
	return told, nil
}

// failedDisks lists the disks that are not proven empty, and those that were wiped by a weaker method than was asked for. A
// device that the agent left alone on purpose, such as a USB stick, counts where the inventory has it as a disk.
func failedDisks(w node.Wipe, known *node.Hardware) (failed []node.WipedDisk) {
	for _, d := range w.Disks {
		listed := known == nil || slices.ContainsFunc(known.Disks, func(k node.Disk) bool { return k.Key() == d.Disk.Key() })
		weaker := slices.Index(node.WipeMethods, d.Method) < slices.Index(node.WipeMethods, w.Method)
		if leftAlone := d.Method == node.WipeNone && !listed; !leftAlone && (!d.ReadBack || weaker) {
			failed = append(failed, d)
		}
	}
	return failed
}

func unverified(why string, disks any) error {
	return fault.New(fault.UnverifiedWipe, "the wipe is not verified: %s", why).WithDetail("disks", disks)
}
