package steps_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/processmanagers/steps"
)

// leaves lets the site's agent vanish with the orders that it has, as often as is told; the agent after it answers.
func (w *world) leaves(times int, told string) {
	w.answer = func(s agentcommand.State) (agentcommand.Status, any) {
		if s.Status == agentcommand.Pending && times > 0 {
			times--
			return agentcommand.Running, nil
		}
		if s.Status == agentcommand.Pending {
			return agentcommand.Succeeded, agentcommand.Invoked{Result: json.RawMessage(told)}
		}
		w.siteAgent = id.Of[id.Agent](uuid.UUID{14: byte(times + 1), 15: 9})
		return "", nil
	}
}

// What only reads is asked of another agent of the site within two minutes, under a name of its own.
func TestAnotherAgentOfTheSiteIsAsked(t *testing.T) {
	for action, told := range map[string]string{"inspect.outOfBand": `{}`, "management.getSensors": `[]`, "bmc.verify": `{"systemId":"1","power":"on"}`} {
		t.Run(action, func(t *testing.T) {
			w := newWorld(t)
			w.leaves(1, told)
			_, err := w.run(action, ``)
			wants(t, action, err, "", "")
			if took := w.now.Sub(start); took > 2*time.Minute {
				t.Errorf("that took %v", took)
			}
			if len(w.keys) != 2 || !strings.HasSuffix(w.keys[1], ":again-1") {
				t.Fatalf("asked under %v", w.keys)
			}
			first, second := w.commands[w.keys[0]], w.commands[w.keys[1]]
			if first.Status != agentcommand.Cancelled || first.Reason != agentcommand.AgentLost || second.Agent == first.Agent {
				t.Errorf("the first is left %s: %s; the second is with %s", first.Status, first.Reason, second.Agent)
			}
		})
	}
}

// What could happen twice, and what the agent may still finish, stays with it.
func TestWhatStaysWithAnAgentThatIsAway(t *testing.T) {
	for name, test := range map[string]struct {
		action, with string
		change       func(w *world)
	}{
		"power is switched":       {"power.setPower", `{"action":"on"}`, nil},
		"a boot device is chosen": {"management.setBootDevice", `{"device":"disk"}`, nil},
		"a medium is inserted":    {"media.insert", `{"url":"http://cache/x.iso"}`, nil},
		"another kind of order":   {"http.viaSite", `{"url":"http://10.0.0.1/"}`, nil},
		"there is no other agent": {"inspect.outOfBand", ``, func(w *world) { w.siteUp = false }},
		"it is heard of": {"inspect.outOfBand", ``, func(w *world) {
			w.answer = func(agentcommand.State) (agentcommand.Status, any) { return agentcommand.Running, nil }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.leaves(1000, "")
			w.begin(test.action, test.with, 0)
			if _, err := w.pass(); !isWaiting(err) {
				t.Fatal(err)
			}
			w.settle() // it is with an agent now
			if test.change != nil {
				test.change(w)
			}
			_, err := w.finish()
			wants(t, name, err, fault.Timeout, "")
			if order := w.commands[w.keys[0]]; len(w.keys) != 1 || order.Status != agentcommand.Running {
				t.Errorf("of %v the first is %s", w.keys, order.Status)
			}
		})
	}
}

// An order that kills every agent ends.
func TestNotEveryAgentOfASiteIsAsked(t *testing.T) {
	w := newWorld(t)
	w.leaves(1000, "")
	_, err := w.run("inspect.outOfBand", ``)
	wants(t, "inspect.outOfBand", err, fault.DriverError, agentcommand.AgentLost)
	if len(w.keys) != steps.MostAgain+1 {
		t.Errorf("asked %d times", len(w.keys))
	}
}
