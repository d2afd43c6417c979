package provision_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/processmanagers/provision"
)

var wf = id.Of[id.Workflow](uuid.NewSHA1(uuid.Nil, []byte("workflow")))

// in is a node in a state, changed by what the case is about.
func in(s node.ProvisionState, change ...func(*node.State)) node.State {
	n := node.State{Provision: s}
	for _, c := range change {
		c(&n)
	}
	return n
}

func active(run int) func(*node.State) {
	return func(n *node.State) {
		n.Workflow = &node.Workflow{ID: wf, Profile: node.Profile{ID: "metal-inspect", Version: 1}, Run: run}
	}
}

func last(n *node.State) { n.LastWorkflow = wf }

func run(s workflow.Status, change ...func(*workflow.State)) *workflow.State {
	w := &workflow.State{Status: s, Run: 1}
	w.Workflow = wf
	for _, c := range change {
		c(w)
	}
	return w
}

func TestNext(t *testing.T) {
	power := func(n *node.State) { n.PowerAction, n.PowerKey = node.ActionCycle, "power:k" }
	up := func(n *node.State) { n.RescueUp = true }
	leaving := func(n *node.State) { n.Unrescuing = true }
	ubuntu := node.Profile{ID: "ubuntu", Version: 3}
	pinned := func(n *node.State) { n.Profile = &ubuntu }
	failure := func(w *workflow.State) {
		w.Error = &workflow.Failure{Code: "TIMEOUT", Message: "wait (wait.agentJoined): no result"}
	}
	shipped := func(name string) provision.Move {
		return provision.Move{Do: provision.Start, Profile: node.Profile{ID: name, Version: 1}}
	}
	for name, test := range map[string]struct {
		n         node.State
		w         *workflow.State
		agentless bool
		want      provision.Move
	}{
		"nobody":                         {in(node.None), nil, false, provision.Move{Do: provision.Rest}},
		"ready":                          {in(node.Ready), nil, false, provision.Move{Do: provision.Rest}},
		"retired":                        {in(node.Retired, last), run(workflow.Succeeded), false, provision.Move{Do: provision.Rest}},
		"deployed after its workflow":    {in(node.Deployed, last), run(workflow.Succeeded), false, provision.Move{Do: provision.Rest}},
		"joined":                         {in(node.Joined), nil, false, provision.Move{Do: provision.Accept}},
		"enrolling":                      {in(node.Enrolling), nil, false, shipped("metal-enroll")},
		"inspecting, agentless":          {in(node.Inspecting), nil, true, shipped("metal-inspect-oob")},
		"releasing after another":        {in(node.Releasing, last), run(workflow.Succeeded), false, shipped("metal-release")},
		"deploying":                      {in(node.Deploying, pinned), nil, false, provision.Move{Do: provision.Start, Profile: ubuntu}},
		"deploying, agentless":           {in(node.Deploying, pinned), nil, true, provision.Move{Do: provision.Start, Profile: ubuntu}},
		"rescue":                         {in(node.Rescue), nil, false, shipped("metal-rescue")},
		"rescue, up":                     {in(node.Rescue, up), nil, false, provision.Move{Do: provision.Rest}},
		"rescue, leaving":                {in(node.Rescue, up, leaving), nil, false, shipped("metal-unrescue")},
		"never created":                  {in(node.Inspecting, active(1)), nil, false, provision.Move{Do: provision.Create, Workflow: wf, Profile: node.Profile{ID: "metal-inspect", Version: 1}}},
		"running":                        {in(node.Inspecting, active(1)), run(workflow.Running), false, provision.Move{Do: provision.Wait}},
		"paused":                         {in(node.Inspecting, active(1)), run(workflow.Paused), false, provision.Move{Do: provision.Wait}},
		"running, power asked":           {in(node.Inspecting, active(1), power), run(workflow.Running), false, provision.Move{Do: provision.Wait}},
		"succeeded":                      {in(node.Inspecting, active(1)), run(workflow.Succeeded), false, provision.Move{Do: provision.Complete, Workflow: wf}},
		"failed":                         {in(node.Inspecting, active(1)), run(workflow.Failed, failure), false, provision.Move{Do: provision.Fail, Workflow: wf, Code: fault.Timeout, Message: "wait (wait.agentJoined): no result"}},
		"failed without a word":          {in(node.Inspecting, active(1)), run(workflow.Failed), false, provision.Move{Do: provision.Fail, Workflow: wf, Code: fault.Internal, Message: "the workflow failed"}},
		"failed in an older run":         {in(node.Inspecting, active(2)), run(workflow.Failed, failure), false, provision.Move{Do: provision.Retry, Workflow: wf, Run: 2}},
		"failed in this run":             {in(node.Inspecting, active(2)), run(workflow.Failed, failure, func(w *workflow.State) { w.Run = 2 }), false, provision.Move{Do: provision.Fail, Workflow: wf, Code: fault.Timeout, Message: "wait (wait.agentJoined): no result"}},
		"cancelled":                      {in(node.Inspecting, active(1)), run(workflow.Cancelled, func(w *workflow.State) { w.Reason = "wrong machine" }), false, provision.Move{Do: provision.Fail, Workflow: wf, Message: "the workflow was aborted: wrong machine"}},
		"aborted, its workflow runs":     {in(node.Failed, last), run(workflow.Running), false, provision.Move{Do: provision.Abort, Workflow: wf, Message: "the node was taken from this workflow"}},
		"aborted, its workflow fails":    {in(node.Failed, last), run(workflow.Failing), false, provision.Move{Do: provision.Abort, Workflow: wf, Message: "the node was taken from this workflow"}},
		"aborted, it cleans up":          {in(node.Failed, last), run(workflow.Cancelling), false, provision.Move{Do: provision.Wait}},
		"aborted, over":                  {in(node.Failed, last), run(workflow.Cancelled), false, provision.Move{Do: provision.Rest}},
		"recovered, the last cleans up":  {in(node.Releasing, last), run(workflow.Cancelling), false, provision.Move{Do: provision.Wait}},
		"abandoned, the last cleans up":  {in(node.Retired, last), run(workflow.Cancelling), false, provision.Move{Do: provision.Wait}},
		"power asked":                    {in(node.Ready, power), nil, false, provision.Move{Do: provision.Power}},
		"power asked in rescue":          {in(node.Rescue, up, power), nil, false, provision.Move{Do: provision.Power}},
		"power asked, then put to work":  {in(node.Deploying, pinned, power), nil, false, provision.Move{Do: provision.StopPower}},
		"power asked, cleanup runs":      {in(node.Failed, last, power), run(workflow.Cancelling), false, provision.Move{Do: provision.Wait}},
		"failed after a failed workflow": {in(node.Failed, last), run(workflow.Failed, failure), false, provision.Move{Do: provision.Rest}},
	} {
		if got := provision.Next(test.n, test.w, test.agentless); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

// Every state is looked at: what the table calls workflow-driven starts its workflow, and nothing else starts any.
func TestNextIsTotal(t *testing.T) {
	for _, row := range node.States {
		m := provision.Next(in(row.State, func(n *node.State) { n.Profile = &node.Profile{ID: "ubuntu", Version: 1} }), nil, false)
		if starts := m.Do == provision.Start; starts != (row.Kind == node.WorkflowDriven) {
			t.Errorf("%s: %+v", row.State, m)
		}
		if m.Do == provision.Start && m.Profile.ID == "" {
			t.Errorf("%s starts no profile", row.State)
		}
		for _, status := range workflow.StatusTable {
			n := in(row.State, last)
			m := provision.Next(n, run(status.Status), false)
			if status.Status.Active() && m.Do != provision.Abort && m.Do != provision.Wait {
				t.Errorf("%s with a %s workflow that is not its own: %+v", row.State, status.Status, m)
			}
		}
	}
}
