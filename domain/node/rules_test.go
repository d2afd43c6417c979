package node_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
)

// history drives one node with random verbs and keeps, beside the state, what only the events say.
type history struct {
	state   node.State
	proven  map[string]bool // disks proven empty since something could last write to them
	disks   []node.Disk     // of the latest in-band inventory
	workers int             // workflows started
}

func TestRandomVerbsKeepTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := history{proven: map[string]bool{}}
		for range rapid.IntRange(20, 150).Draw(t, "verbs") {
			before := h.state
			c := h.draw(t)
			events, err := node.Decide(before, c)
			if err != nil && len(events) > 0 {
				t.Fatalf("%T: both events and an error", c)
			}
			for _, e := range events {
				h.check(t, c, e)
				h.state = node.Evolve(h.state, e)
			}
		}
	})
}

// check holds an event against P1, P2, P3, P4 and P10 before it is folded.
func (h *history) check(t *rapid.T, c node.Command, e node.Event) {
	switch e := e.(type) {
	case node.Moved:
		h.checkMove(t, c, e)
	case node.WorkflowStarted:
		if h.state.Workflow != nil {
			t.Fatalf("P4: %s starts while %s is active", e.Workflow, h.state.Workflow.ID)
		}
	case node.HardwareRecorded:
		if e.Source == node.InBand {
			h.disks = e.Hardware.Disks
		}
	case node.WipeAttested:
		h.proven = map[string]bool{}
		for _, d := range e.Disks {
			h.proven[d.Disk.Key()] = e.Signed && d.ReadBack
		}
	}
}

func (h *history) checkMove(t *rapid.T, c node.Command, m node.Moved) {
	if m.From != h.state.Provision {
		t.Fatalf("P1: the move leaves %s, the node is in %s", m.From, h.state.Provision)
	}
	if !contains(node.Destinations(m.From, m.Verb, h.state.FailedFrom), m.To) {
		t.Fatalf("P1: %s from %s to %s is in no table", m.Verb, m.From, m.To)
	}
	if m.From == node.Retired {
		t.Fatalf("a move out of retired: %s", m.Verb)
	}
	complete, hasPolicy := c.(node.Complete)
	if m.To == node.Ready && (!hasPolicy || complete.Policy == "") {
		for _, d := range h.disks {
			if !h.proven[d.Key()] {
				t.Fatalf("P2: ready by %s while disk %s is not proven empty", m.Verb, d.Key())
			}
		}
	}
	if m.From == node.Deployed && m.Verb != node.VerbUndeploy && m.Verb != node.VerbRescue {
		t.Fatalf("P3: %s left deployed for %s", m.Verb, m.To)
	}
	if m.Verb == node.VerbRecover && m.To == node.Ready {
		t.Fatalf("P10: recover led to ready")
	}
	if wipes(m.To) && !askedFor(m) {
		t.Fatalf("P3: %s led from %s to %s, which wipes", m.Verb, m.From, m.To)
	}
	switch m.To {
	case node.Deploying, node.Deployed, node.Rescue:
		h.proven = map[string]bool{}
	}
}

func wipes(s node.ProvisionState) bool {
	return s == node.Commissioning || s == node.Releasing || s == node.Retiring
}

// askedFor tells the moves into a wiping state that an operator's verb leads to: directly, or as the chain it began.
func askedFor(m node.Moved) bool {
	switch m.Verb {
	case node.VerbUndeploy, node.VerbProvide, node.VerbRetire, node.VerbRecover, node.VerbRetry:
		return true
	case node.VerbComplete:
		return m.From == node.Inspecting || m.From == node.Releasing
	}
	return false
}

func contains(states []node.ProvisionState, s node.ProvisionState) bool {
	for _, x := range states {
		if x == s {
			return true
		}
	}
	return false
}

// draw picks a verb, more often than not one that gets somewhere.
func (h *history) draw(t *rapid.T) node.Command {
	if !h.state.Exists() {
		return rapid.SampledFrom([]node.Command{enroll(), enroll(), join(), node.Deploy{}}).Draw(t, "first")
	}
	if rapid.IntRange(0, 9).Draw(t, "go on") < 7 {
		return h.progress(t)
	}
	w := h.someWorkflow(t)
	return rapid.SampledFrom([]node.Command{
		node.Accept{}, node.Manage{}, node.Inspect{}, node.Provide{}, node.AskRescue{}, node.Recover{},
		node.Deploy{Profile: node.Profile{ID: "image-host", Version: 1}}, node.Deploy{},
		node.Undeploy{}, node.Undeploy{Wipe: node.WipeNone}, node.Undeploy{Wipe: "shred"},
		node.AskUnrescue{Workflow: w}, node.Retire{}, node.Abandon{Reason: "burnt"}, node.Abandon{},
		node.Abort{Reason: "stop"}, node.Retry{Workflow: w}, h.start(), h.start(), h.start(),
		node.Complete{Workflow: w}, node.Complete{Workflow: w, Policy: "allow-unverified-release"},
		node.Fail{Workflow: w, Code: "TIMEOUT", Message: "late"}, node.Fail{Code: "INVALID_INPUT", Message: "no profile"},
		h.inventory(t), h.wipe(t), node.ObservePower{Power: node.PowerOn}, node.AskPower{Action: node.ActionCycle},
		node.SetMaintenance{On: true, Reason: "fan"}, node.SetMaintenance{}, node.Cordon{}, node.Uncordon{}, enroll(),
	}).Draw(t, "verb")
}

// progress does what usually comes next in the state.
func (h *history) progress(t *rapid.T) node.Command {
	next := []node.Command{h.start()}
	switch {
	case h.state.Workflow != nil:
		w := h.state.Workflow.ID
		next = []node.Command{
			node.Complete{Workflow: w}, node.Complete{Workflow: w}, node.Complete{Workflow: w}, h.inventory(t), h.wipe(t),
			h.wipe(t), node.Fail{Workflow: w, Code: "DRIVER_ERROR", Message: "no answer"}, node.Abort{},
		}
	case h.state.Provision == node.Joined:
		next = []node.Command{node.Accept{}, node.Fail{Message: "no GPU"}}
	case h.state.Provision == node.Ready:
		next = []node.Command{node.Deploy{Profile: node.Profile{ID: "image-host", Version: 1}}, node.Provide{}, node.Manage{}}
	case h.state.Provision == node.Deployed:
		next = []node.Command{node.Undeploy{}, node.Undeploy{Wipe: node.WipeNone}, node.AskRescue{}}
	case h.state.Provision == node.Rescue && h.state.RescueUp && !h.state.Unrescuing:
		next = []node.Command{node.AskUnrescue{Workflow: workflow(0)}, node.Undeploy{}}
	case h.state.Provision == node.Failed:
		next = []node.Command{node.Recover{}, node.Retry{Workflow: h.state.FailedWorkflow}}
	}
	return rapid.SampledFrom(next).Draw(t, "next")
}

func (h *history) start() node.Command {
	h.workers++
	return node.StartWorkflow{Workflow: workflow(h.workers), Profile: node.Profile{ID: "metal-inspect", Version: 1}}
}

func (h *history) someWorkflow(t *rapid.T) id.Workflow {
	if h.state.Workflow != nil && rapid.Bool().Draw(t, "the active one") {
		return h.state.Workflow.ID
	}
	return workflow(rapid.IntRange(0, h.workers).Draw(t, "workflow"))
}

func (h *history) inventory(t *rapid.T) node.Command {
	source := rapid.SampledFrom([]node.Source{node.InBand, node.InBand, node.OutOfBand}).Draw(t, "source")
	hardware := node.Hardware{Serial: "S1"}
	for i := range rapid.IntRange(1, 3).Draw(t, "disks") {
		hardware.Disks = append(hardware.Disks, disk(i))
	}
	return node.RecordHardware{Facts: node.HardwareRecorded{Source: source, Hardware: hardware}}
}

// wipe attests a wipe of some or all disks, now and then unsigned or with a disk that did not read back empty.
func (h *history) wipe(t *rapid.T) node.Command {
	w := node.Wipe{Signed: rapid.IntRange(0, 4).Draw(t, "signed") > 0, Method: node.WipeQuick}
	if h.state.Workflow != nil {
		w.Workflow = h.state.Workflow.ID
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "wiped") {
		w.Disks = append(w.Disks, node.WipedDisk{
			Disk: disk(i), Method: node.WipeQuick, ReadBack: rapid.IntRange(0, 4).Draw(t, "read back") > 0,
		})
	}
	return node.AttestWipe{Wipe: w}
}
