// Package provision keeps a node's state and its workflow together: in a workflow-driven state exactly that state's workflow
// runs, and when it ends the node moves on. next.go decides, reconcile.go does.
package provision

import (
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/workflow"
)

// Do is what must be done about a node now.
type Do string

// The moves.
const (
	Rest      Do = "rest"       // nothing, until somebody asks
	Wait      Do = "wait"       // a workflow runs: look again later
	Accept    Do = "accept"     // run the pool's acceptance checks
	Start     Do = "start"      // make Profile's workflow the node's active one
	Create    Do = "create"     // the node's active workflow was never created: a crash came between
	Retry     Do = "retry"      // the workflow failed in an older run than the node has decided on
	Abort     Do = "abort"      // the node is done with a workflow that still runs
	Complete  Do = "complete"   // the workflow succeeded
	Fail      Do = "fail"       // the workflow failed or was cancelled
	Power     Do = "power"      // carry out the power action that was asked for
	StopPower Do = "stop-power" // the machine was put to other work meanwhile, or given up
)

// Move is what Next says, with what doing it needs.
type Move struct {
	Do       Do
	Workflow id.Workflow
	Profile  node.Profile
	Run      int
	Code     fault.Code
	Message  string
}

// Next says what must be done. w is the node's active workflow, or the newest that was; nil: there is none, or it was never
// created. agentless is what the node's pool says; it matters only where a workflow is to be started.
func Next(n node.State, w *workflow.State, agentless bool) Move {
	switch {
	case !n.Exists():
		return Move{Do: Rest}
	case n.Workflow != nil:
		return nextActive(n, w)
	case w != nil && w.Status.Active():
		return nextStale(w)
	case n.PowerAction != "" && !powerWanted(n):
		return Move{Do: StopPower}
	case n.PowerAction != "":
		return Move{Do: Power}
	case n.Provision == node.Joined:
		return Move{Do: Accept}
	case !idle(n):
		return Move{Do: Start, Profile: profileOf(n, agentless)}
	}
	return Move{Do: Rest}
}

// powerWanted tells whether a power action may still be carried out: the machine is at rest, and not given up.
func powerWanted(n node.State) bool { return idle(n) && n.Provision != node.Retired }

// idle tells whether no workflow is to run: in rescue with the ramdisk up nothing is, until the operator asks to leave.
func idle(n node.State) bool {
	return node.InfoOf(n.Provision).Kind != node.WorkflowDriven || n.Provision == node.Rescue && n.RescueUp && !n.Unrescuing
}

func nextActive(n node.State, w *workflow.State) Move {
	switch {
	case w == nil:
		return Move{Do: Create, Workflow: n.Workflow.ID, Profile: n.Workflow.Profile}
	case w.Status == workflow.Succeeded:
		return Move{Do: Complete, Workflow: w.Workflow}
	case w.Status == workflow.Failed && w.Run < n.Workflow.Run:
		return Move{Do: Retry, Workflow: w.Workflow, Run: n.Workflow.Run}
	case w.Status == workflow.Failed:
		m := Move{Do: Fail, Workflow: w.Workflow, Code: fault.Internal, Message: "the workflow failed"}
		if w.Error != nil {
			m.Code, m.Message = fault.Code(w.Error.Code), w.Error.Message
		}
		return m
	case w.Status == workflow.Cancelled:
		m := Move{Do: Fail, Workflow: w.Workflow, Message: "the workflow was aborted"}
		if w.Reason != "" {
			m.Message += ": " + w.Reason
		}
		return m
	}
	return Move{Do: Wait}
}

// nextStale ends a workflow that the node is done with. Nothing else is started before it has: its cleanup still works on the
// machine.
func nextStale(w *workflow.State) Move {
	if w.Status == workflow.Cancelling {
		return Move{Do: Wait}
	}
	return Move{Do: Abort, Workflow: w.Workflow, Message: "the node was taken from this workflow"}
}

// profileOf is the profile that a workflow-driven state runs. A deploy's is named by the verb.
func profileOf(n node.State, agentless bool) node.Profile {
	if n.Provision == node.Deploying && n.Profile != nil {
		return *n.Profile
	}
	p := node.Profile{ID: node.InfoOf(n.Provision).Profile, Version: 1}
	if n.Provision == node.Rescue && n.Unrescuing {
		p.ID = node.UnrescueProfile
	}
	if agentless {
		p.ID += node.OutOfBandSuffix
	}
	return p
}
