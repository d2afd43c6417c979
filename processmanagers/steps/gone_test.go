package steps_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/processmanagers/steps"
)

// dies lets a machine's agent say nothing any more once it has an order. Its BMC tells the power; empty: it does not answer.
func (w *world) dies(power node.Power) {
	w.flow.Kinds = []string{string(agentcommand.DriverInvoke)}
	w.session = steps.Session{Role: agentcommand.RoleRamdisk, BootID: "boot-1", OpenedAt: start, Connected: true}
	w.tick = func() { w.session.Silent = w.now.Sub(start) }
	w.answer = func(s agentcommand.State) (agentcommand.Status, any) {
		switch {
		case s.Kind != agentcommand.DriverInvoke:
			if s.Status == agentcommand.Pending {
				return agentcommand.Running, nil
			}
			return "", nil
		case power == "":
			return agentcommand.Failed, nil
		}
		return agentcommand.Succeeded, agentcommand.Invoked{Result: raw(map[string]any{"power": power})}
	}
}

// looks counts how often the BMC was asked.
func (w *world) looks() (n int) {
	for _, name := range w.names() {
		if name == "power.get" {
			n++
		}
	}
	return n
}

// A machine that loses its power with an order in hand is found out: nobody waits for it until the step's deadline.
func TestAMachineThatLostItsPower(t *testing.T) {
	for action, begin := range map[string]func(w *world){
		"disk.wipe": func(*world) {},
		"deploy.deploy": func(w *world) {
			w.deploying()
			w.profile.UserData = nil
			_, err := w.run("image.resolve", ``)
			wants(t, "resolve", err, "", "")
		},
	} {
		t.Run(action, func(t *testing.T) {
			w := newWorld(t)
			begin(w)
			w.dies(node.PowerOff)
			_, err := w.run(action, ``)
			wants(t, action, err, fault.DriverError, "machine-off")
			if !steps.Final(err) {
				t.Error("it would be tried again, with nobody in the machine")
			}
			if took := w.now.Sub(start); took > 2*time.Minute {
				t.Errorf("that took %v", took)
			}
			order := w.commands[w.keys[0]]
			if order.Status != agentcommand.Cancelled || !strings.Contains(order.Reason, "power") {
				t.Errorf("the order is left %s: %s", order.Status, order.Reason)
			}
			if w.node.Power != node.PowerOff || w.looks() != 1 {
				t.Errorf("the node shows power %q, after %d looks", w.node.Power, w.looks())
			}
		})
	}
}

// A machine that restarts by itself with an order in hand, and comes up with nobody in it, is found out by since when it runs.
func TestAMachineThatRestarted(t *testing.T) {
	w := newWorld(t)
	w.dies(node.PowerOn)
	w.starts(10 * time.Second)
	_, err := w.run("disk.wipe", ``)
	wants(t, "disk.wipe", err, fault.DriverError, "machine-restarted")
	if !steps.Final(err) || w.now.Sub(start) > 2*time.Minute {
		t.Errorf("after %s: %v", w.now.Sub(start), err)
	}
	if order := w.commands[w.keys[0]]; order.Status != agentcommand.Cancelled || !strings.Contains(order.Reason, "restarted") {
		t.Errorf("the order is left %s: %s", order.Status, order.Reason)
	}
}

// starts lets the BMC tell that the machine was started so long after its agent's session began.
func (w *world) starts(after time.Duration) {
	answer := w.answer
	w.answer = func(s agentcommand.State) (agentcommand.Status, any) {
		if s.Kind != agentcommand.DriverInvoke {
			return answer(s)
		}
		told := map[string]any{"power": node.PowerOn, "startedAgoSeconds": w.now.Sub(w.session.OpenedAt.Add(after)).Seconds()}
		return agentcommand.Succeeded, agentcommand.Invoked{Result: raw(told)}
	}
}

// What does not prove that the boot is over lets the order go on.
func TestSilenceAloneEndsNoOrder(t *testing.T) {
	for name, test := range map[string]struct {
		change func(w *world)
		looks  bool
	}{
		"it is on": {func(w *world) { w.dies(node.PowerOn) }, true},
		"it runs since before its agent's session": {func(w *world) { w.dies(node.PowerOn); w.starts(-time.Second) }, true},
		"it runs since the session, to the second": {func(w *world) { w.dies(node.PowerOn); w.starts(time.Second) }, true},
		"its BMC's times do not fit its silence": {func(w *world) {
			w.dies(node.PowerOn)
			w.session.OpenedAt = start.Add(-5 * time.Hour)
			w.starts(2 * time.Hour)
		}, true},
		"its BMC does not answer":      {func(w *world) { w.dies("") }, true},
		"its agent talks":              {func(w *world) { w.tick = nil }, false},
		"it has no BMC":                {func(w *world) { w.node.BMC = nil }, false},
		"the site's agent is away":     {func(w *world) { w.siteUp = false }, false},
		"its agent is in another boot": {func(w *world) { w.session.BootID = "boot-2" }, false},
		"no BMC is to be asked":        {func(w *world) { w.flow.Kinds = nil }, false},
		"the step takes it down":       {func(w *world) { w.current().Rejoin = true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.dies(node.PowerOff)
			w.begin("disk.wipe", ``, 2*time.Hour)
			if _, err := w.pass(); !isWaiting(err) {
				t.Fatal(err)
			}
			w.settle() // boot-1 has it now
			test.change(w)
			_, err := w.finish()
			wants(t, name, err, fault.Timeout, "")
			if order := w.commands[w.keys[0]]; order.Status != agentcommand.Running {
				t.Errorf("the order is %s", order.Status)
			}
			if n := w.looks(); (n > 0) != test.looks || n > 70 {
				t.Errorf("its BMC was asked %d times", n)
			}
		})
	}
}

func isWaiting(err error) bool {
	_, waits := steps.IsNotReady(err)
	return waits
}

// An order that nobody took is over too where nobody is in the machine.
func TestAnOrderThatNobodyTook(t *testing.T) {
	w := newWorld(t)
	w.dies(node.PowerOff)
	answer := w.answer
	w.answer = func(s agentcommand.State) (agentcommand.Status, any) {
		if s.Kind == agentcommand.DiskWipe {
			return "", nil
		}
		return answer(s)
	}
	_, err := w.run("disk.wipe", ``)
	wants(t, "wipe", err, fault.DriverError, "machine-off")
	var known *fault.Error
	if !errors.As(err, &known) || known.Remedy == "" {
		t.Errorf("it says %v", err)
	}
	if raw, err := json.Marshal(known.Details); err != nil || !strings.Contains(string(raw), "cmd_") {
		t.Errorf("details %s, %v", raw, err)
	}
}
