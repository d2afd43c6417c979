package workflow_test

import (
	"strings"
	"testing"
	"time"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/processmanagers/enginetest"
	"github.com/better-compute/metal/processmanagers/steps"
)

// dying is a world whose machine's agent says nothing any more once it was asked to erase, with a BMC that tells the power.
func dying(t *testing.T, power node.Power) *enginetest.World {
	t.Helper()
	erase := agentStep("test.erase", "test.erase", profile.OnRamdisk)
	erase.Timeout = 2 * time.Hour
	w := deploying(t, enginetest.Options{
		Steps: []steps.Step{erase},
		Answer: func(w *enginetest.World, c agentcommand.State) enginetest.Answer {
			if c.Kind != agentcommand.DriverInvoke {
				w.Agents.Gone(w.Node)
				return enginetest.Answer{Silent: true}
			}
			return enginetest.Answer{Result: map[string]any{"result": map[string]any{"power": power}}}
		},
	}, `{"id": "p", "version": 1, "target": "metal", "steps": [
			{"use": "power.get", "on": "site", "id": "driver"},
			{"use": "test.erase", "id": "erase", "retries": 2, "retryDelay": "1s"}]}`)
	w.Agents.Open(w.Node, agentcommand.RoleRamdisk, "boot-1")
	return w
}

// A machine that loses its power with an order in hand ends the step at once, with no second try by nobody.
func TestAMachineThatLosesItsPower(t *testing.T) {
	w := dying(t, node.PowerOff)
	w.Run(nil)
	wantEnd(t, w, workflow.Failed, node.Failed)
	erase := find(t, w, "erase")
	if erase.Attempt != 1 || erase.Error == nil || erase.Error.Code != string(fault.DriverError) ||
		!strings.Contains(erase.Error.Message, "lost its power") {
		t.Errorf("it failed at attempt %d with %+v", erase.Attempt, erase.Error)
	}
	if took := w.Now().Sub(enginetest.Began); took > 3*time.Minute {
		t.Errorf("that took %v", took)
	}
	order, _, err := w.Outside.AgentCommand(t.Context(), agentcommand.IDOf(w.Workflow().Key(erase)))
	if err != nil || order.Status != agentcommand.Cancelled {
		t.Errorf("the order is left %s, %v", order.Status, err)
	}
	if w.State().Power != node.PowerOff {
		t.Errorf("the node shows power %q", w.State().Power)
	}
}

// Looks at the power are nothing that the step waits for: an abort takes the order back.
func TestLooksAtThePowerHideNoOrder(t *testing.T) {
	w := dying(t, node.PowerOn)
	w.Run(func() bool { return w.Now().Sub(enginetest.Began) > 10*time.Minute })
	erase := find(t, w, "erase")
	order := agentcommand.IDOf(w.Workflow().Key(erase))
	if erase.State != workflow.StepWaiting || erase.AgentCommand != order {
		t.Fatalf("it is %s and waits for %s, not %s", erase.State, erase.AgentCommand, order)
	}
	looks := 0
	for kind, n := range asked(w) {
		if strings.HasPrefix(kind, string(agentcommand.DriverInvoke)) {
			looks += n - 1 // the first step's
		}
	}
	if looks < 3 || looks > 10 {
		t.Errorf("the power was looked at %d times in ten minutes", looks)
	}
	if _, err := w.Outside.AbortWorkflow(t.Context(), enginetest.Operator(), w.Workflow().Workflow, "enough"); err != nil {
		t.Fatal(err)
	}
	w.Run(nil)
	if c, _, err := w.Outside.AgentCommand(t.Context(), order); err != nil || c.Status != agentcommand.Cancelled {
		t.Errorf("the order is left %s, %v", c.Status, err)
	}
}
