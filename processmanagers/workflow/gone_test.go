package workflow_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
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

// A site's agent that is not heard of any more is fenced off from what it has, and another one reads instead: the late result
// of the first is refused, as is a secret.
func TestAnAgentThatIsLostIsFencedOff(t *testing.T) {
	lost, there := id.Of[id.Agent](uuid.UUID{15: 1}), id.Of[id.Agent](uuid.UUID{15: 2})
	var first agentcommand.State
	w := deploying(t, enginetest.Options{
		Answer: func(w *enginetest.World, c agentcommand.State) enginetest.Answer {
			if first.Exists() {
				return enginetest.Answer{Result: map[string]any{"result": map[string]any{"hardware": map[string]any{"cores": 2}}}}
			}
			handed, err := w.Outside.HandOutAgentCommand(t.Context(), enginetest.Operator(), c.AgentCommand, lost, "boot-1")
			if err != nil {
				t.Fatal(err)
			}
			first, w.Agents.SiteAgent = handed.State, there
			return enginetest.Answer{Silent: true}
		},
	}, `{"id": "p", "version": 1, "target": "metal", "steps": [{"use": "inspect.outOfBand", "on": "site", "id": "look", "timeout": "1h"}]}`)
	w.Run(nil)
	wantEnd(t, w, workflow.Succeeded, node.Deployed)
	if look := find(t, w, "look"); !strings.Contains(string(look.Result), `"cores":2`) || look.Attempt != 1 {
		t.Errorf("attempt %d has the result %s", look.Attempt, look.Result)
	}
	if took := w.Now().Sub(enginetest.Began); took > 2*time.Minute {
		t.Errorf("that took %v", took)
	}
	_, err := w.Outside.SettleAgentCommand(t.Context(), enginetest.Operator(), first.AgentCommand, agentcommand.Settle{
		Agent: lost, BootID: "boot-1", Status: agentcommand.Succeeded, Result: []byte(`{"result":{"hardware":{"cores":1}}}`),
	})
	if fault.CodeOf(err) != fault.InvalidState {
		t.Errorf("the late result: %v", err)
	}
	if err := w.Outside.FetchSecret(t.Context(), enginetest.Operator(), first.AgentCommand, lost, "boot-1", first.Secrets[0]); fault.CodeOf(err) != fault.InvalidState {
		t.Errorf("a secret for it: %v", err)
	}
	if asked(w)["driver.invoke "] != 2 || w.State().Hardware.OutOfBand == nil || w.State().Hardware.OutOfBand.Cores != 2 {
		t.Errorf("asked %v; the machine has %+v", asked(w), w.State().Hardware.OutOfBand)
	}
}

// handOut gives an order to the site's agent that is there.
func handOut(t *testing.T, w *enginetest.World, c agentcommand.State) {
	t.Helper()
	if c.Status != agentcommand.Pending {
		return
	}
	_, err := w.Outside.HandOutAgentCommand(t.Context(), enginetest.Operator(), c.AgentCommand, w.Agents.SiteAgent, "boot")
	if err != nil {
		t.Fatal(err)
	}
}

// An abort takes back what was asked of the other agent.
func TestAnAbortFindsWhatTheOtherAgentHas(t *testing.T) {
	var w *enginetest.World
	w = deploying(t, enginetest.Options{
		Answer: func(_ *enginetest.World, c agentcommand.State) enginetest.Answer {
			handOut(t, w, c)
			if w.Now().Sub(enginetest.Began) < time.Minute {
				w.Agents.SiteAgent = id.Of[id.Agent](uuid.UUID{15: 2})
			}
			return enginetest.Answer{Silent: true}
		},
	}, `{"id": "p", "version": 1, "target": "metal", "steps": [{"use": "inspect.outOfBand", "on": "site", "id": "look", "timeout": "1h"}]}`)
	w.Run(func() bool { return asked(w)["driver.invoke "] == 2 && w.Now().Sub(enginetest.Began) > 2*time.Minute })
	look := find(t, w, "look")
	if look.State != workflow.StepWaiting || look.AgentCommand != agentcommand.IDOf(w.Workflow().Key(look)+":again-1") {
		t.Fatalf("it is %s and waits for %s", look.State, look.AgentCommand)
	}
	if _, err := w.Outside.AbortWorkflow(t.Context(), enginetest.Operator(), w.Workflow().Workflow, "enough"); err != nil {
		t.Fatal(err)
	}
	w.Run(nil)
	if c, _, err := w.Outside.AgentCommand(t.Context(), look.AgentCommand); err != nil || c.Status != agentcommand.Cancelled || c.Reason == agentcommand.AgentLost {
		t.Errorf("it is left %s: %s, %v", c.Status, c.Reason, err)
	}
}

// What an agent step asks for is one order for the whole attempt: it waits for its deadline.
func TestAnAttemptOfAnAgentStepIsOneOrder(t *testing.T) {
	var w *enginetest.World
	w = deploying(t, enginetest.Options{
		Answer: func(_ *enginetest.World, c agentcommand.State) enginetest.Answer {
			if c.Status == agentcommand.Pending {
				handOut(t, w, c)
				w.Agents.SiteAgent = id.Of[id.Agent](uuid.UUID{15: 2})
			}
			return enginetest.Answer{Silent: true}
		},
	}, `{"id": "p", "version": 1, "target": "metal", "steps": [{"use": "boot.get", "on": "site", "id": "look", "timeout": "1h"}]}`)
	w.Run(nil)
	if look := find(t, w, "look"); look.Error == nil || look.Error.Code != string(fault.Timeout) || asked(w)["driver.invoke "] != 1 {
		t.Errorf("%+v, asked %v", look.Error, asked(w))
	}
}
