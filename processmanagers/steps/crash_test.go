package steps_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/processmanagers/steps"
)

// A worker that is killed right after it sent any of a step's agent commands is followed by one that sends none of them
// again, and comes to the same result.
func TestKilledAfterEveryAgentCommand(t *testing.T) {
	off := func(w *world) { w.session = steps.Session{Role: agentcommand.RoleRamdisk, Connected: true} }
	for _, test := range []struct {
		action, with string
		prepare      func(*world)
	}{
		{"bmc.verify", ``, func(w *world) { identified(w, `{"systemId":"1","power":"on"}`) }},
		{"power.setPower", `{"action":"cycle"}`, nil},
		{"management.setBootDevice", `{"device":"disk","persistent":true}`, nil},
		{"media.insert", `{"url":"http://cache/x.iso"}`, nil},
		{"media.eject", ``, off},
		{"boot.entry", ``, nil},
		{"boot.clear", ``, nil},
		{"metal.ensureRamdisk", ``, func(w *world) { w.boots(0, time.Minute) }},
		{"metal.ensureRamdisk", ``, func(w *world) { w.boots(1, time.Minute) }},
		{"metal.ensureRamdisk", `{"device":"cd"}`, func(w *world) { w.bootsByMedia(1) }},
		{"inspect.outOfBand", ``, nil},
		{"inspect.hardware", ``, func(w *world) { w.says(`{"cores":1}`) }},
		{"burnin.memory", ``, func(w *world) { w.says(`{"parts":[]}`) }},
		{"disk.wipe", ``, func(w *world) {
			w.node.Hardware.InBand = twoDisks
			w.says(bothWiped)
		}},
		{"http.viaSite", `{"url":"http://10.0.0.1/"}`, func(w *world) { w.says(`{"status":204}`) }},
	} {
		world := func(crashAt int) *world {
			w := newWorld(t)
			if test.prepare != nil {
				test.prepare(w)
			}
			w.crashAt = crashAt
			return w
		}
		calm := world(0)
		want, err := calm.run(test.action, test.with)
		wants(t, test.action, err, "", "")
		for n := 1; n <= len(calm.keys); n++ {
			w := world(n)
			got, err := w.run(test.action, test.with)
			wants(t, test.action, err, "", "")
			if diff := cmp.Diff(calm.names(), w.names()); diff != "" || w.sent != len(calm.keys) {
				t.Errorf("%s killed after %d: sent %d times\n%s", test.action, n, w.sent, diff)
			}
			if string(got) != string(want) {
				t.Errorf("%s killed after %d: %s, want %s", test.action, n, got, want)
			}
			if diff := cmp.Diff(calm.events, w.events); diff != "" {
				t.Errorf("%s killed after %d, the node's events:\n%s", test.action, n, diff)
			}
		}
	}
}

// Two workers on one step send one agent command, also where they know different things of the machine.
func TestTwoWorkersSendOneAgentCommand(t *testing.T) {
	w := newWorld(t)
	w.begin("bmc.identify", ``, 0)
	_, err := w.pass()
	if _, waits := steps.IsNotReady(err); !waits {
		t.Fatal(err)
	}
	key := w.keys[0]
	first := *w.commands[key]
	// The second one looks before the first has sent, and asks after it.
	late := &lateFinder{world: w}
	w.node.Learned = node.BMCLearned{Quirks: []byte(`{"other":1}`)}
	step := shippedStep(t, "bmc.identify")
	c := &steps.Context{Workflow: w.flow, Step: *w.current(), Key: w.flow.Key(*w.current()), Deadline: w.current().Deadline, Now: w.now, Node: w.node}
	c.Ports = steps.Ports{Commands: late, Agents: w, Nodes: w}
	_, err = step.Run(t.Context(), c)
	if _, waits := steps.IsNotReady(err); !waits || len(w.keys) != 1 {
		t.Fatalf("%v; sent %v", err, w.keys)
	}
	if diff := cmp.Diff(string(raw(first)), string(raw(*w.commands[key]))); diff != "" {
		t.Errorf("the order changed:\n%s", diff)
	}
}

// lateFinder does not see, at its first look, what another worker is about to send.
type lateFinder struct {
	*world
	looked bool
}

// Find implements steps.AgentCommands.
func (l *lateFinder) Find(ctx context.Context, key string) (agentcommand.State, error) {
	if !l.looked {
		l.looked = true
		return agentcommand.State{}, nil
	}
	return l.world.Find(ctx, key)
}
