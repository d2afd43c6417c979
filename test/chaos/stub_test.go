package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/processmanagers/enginetest"
	"github.com/better-compute/metal/processmanagers/steps"
)

// order is the payload of the stub's agent commands.
type order struct {
	Do string `json:"do,omitempty"`
}

func (*order) Check() []fault.Issue { return nil }

// install is a workflow with every kind of step: a control-plane step that is not ready at first, one that relays two agent
// commands, a destructive agent step that needs a second attempt, a restart that is awaited, and cleanup.
const install = `{"id": "install", "version": 1, "target": "metal", "steps": [
		{"use": "stub.prepare", "id": "prepare"},
		{"use": "stub.boot", "id": "boot", "on": "site"},
		{"use": "stub.write", "id": "write", "with": {"do": "write"}, "retries": 1, "retryDelay": "5s"},
		{"use": "stub.restart", "id": "restart", "await": "rejoin", "timeout": "20m"},
		{"use": "stub.check", "id": "check"}
	], "cleanup": [{"use": "stub.tidy", "id": "tidy", "on": "site"}]}`

func stubs() enginetest.Options {
	payload := func() agentcommand.Payload { return &order{} }
	roles := []agentcommand.Role{agentcommand.RoleSite, agentcommand.RoleRamdisk}
	relay := func(name string, orders ...string) steps.Step {
		return steps.Define(profile.Spec{
			ID: name, Timeout: 10 * time.Minute, Relays: []profile.Where{profile.OnSite}, Sends: []string{"stub.order"},
		}, func(ctx context.Context, c *steps.Context, _ steps.None) (any, error) {
			for _, o := range orders {
				if _, err := c.AwaitCommand(ctx, steps.Order{Kind: "stub.order", Role: agentcommand.RoleSite, Name: o, Payload: order{o}}); err != nil {
					return nil, err
				}
			}
			return len(orders), nil
		})
	}
	onMachine := func(name string, kind agentcommand.KindName, rejoin bool) steps.Step {
		return steps.Agent(profile.Spec{
			ID: name, RunsOn: profile.OnRamdisk, Command: string(kind), Timeout: 10 * time.Minute, Rejoin: rejoin,
		}, steps.Hooks[order]{})
	}
	doc, err := profile.Parse([]byte(install))
	if err != nil {
		panic(err)
	}
	return enginetest.Options{
		Kinds: []agentcommand.Kind{
			{Name: "stub.order", RunsOn: roles, Payload: payload},
			{Name: "stub.write", RunsOn: roles, Destructive: true, Payload: payload},
			{Name: "stub.restart", RunsOn: roles, Destructive: true, SelfTerminating: true, Payload: payload},
		},
		Steps: []steps.Step{
			steps.Define(profile.Spec{ID: "stub.prepare", Timeout: time.Minute},
				func(_ context.Context, c *steps.Context, _ steps.None) (any, error) {
					if c.Now.Before(c.Step.StartedAt.Add(3 * time.Second)) {
						return nil, steps.NotReady(time.Second)
					}
					return "prepared", nil
				}),
			steps.Define(profile.Spec{ID: "stub.check", Timeout: time.Minute},
				func(_ context.Context, c *steps.Context, _ steps.None) (any, error) { return "checked", nil }),
			relay("stub.boot", "device", "cycle"), relay("stub.tidy", "tidy"),
			onMachine("stub.write", "stub.write", false), onMachine("stub.restart", "stub.restart", true),
		},
		Profiles: []profile.Document{doc},
		Answer: func(_ *enginetest.World, c agentcommand.State) enginetest.Answer {
			switch {
			case c.Kind == "stub.write" && c.Attempt == 1:
				return enginetest.Answer{Status: agentcommand.Failed, Reason: "bad sector"}
			case c.Kind == "stub.restart":
				return enginetest.Answer{Boot: "installed", Role: agentcommand.RoleNode}
			}
			return enginetest.Answer{Result: map[string]bool{"done": true}}
		},
	}
}

func begin(t *testing.T, o enginetest.Options) *enginetest.World {
	t.Helper()
	w := enginetest.New(t, o, node.Deploying, "install")
	w.Agents.Open(w.Node, agentcommand.RoleRamdisk, "ramdisk")
	return w
}

// end is what must be the same however often the control plane died on the way.
type end struct {
	Node     node.ProvisionState
	Status   workflow.Status
	Steps    []string
	Requests map[string]int // by key: each agent command was asked for once
}

func endOf(w *enginetest.World) end {
	e := end{Node: w.State().Provision, Status: w.Workflow().Status, Requests: map[string]int{}}
	for _, s := range w.Workflow().Steps {
		e.Steps = append(e.Steps, fmt.Sprintf("%s %s attempt %d: %s", s.ID, s.State, s.Attempt, s.Result))
	}
	for _, r := range w.Events() {
		if a, ok := r.Event.(agentcommand.Requested); ok {
			var what order
			if err := json.Unmarshal(a.Payload, &what); err != nil {
				panic(err)
			}
			e.Requests[fmt.Sprintf("%s %s attempt %d: %s", a.Step, a.Kind, a.Attempt, what.Do)]++
		}
	}
	return e
}

// undisturbed is the run that every other is compared with, and how many appends the control plane made in it.
func undisturbed(t *testing.T) (end, int) {
	t.Helper()
	w := begin(t, stubs())
	w.Run(nil)
	e := endOf(w)
	if e.Node != node.Deployed || e.Status != workflow.Succeeded {
		t.Fatalf("undisturbed, it ends as %+v", e)
	}
	return e, w.Store.Appends
}

func TestDiesAtEveryAppend(t *testing.T) {
	want, appends := undisturbed(t)
	t.Logf("%d appends", appends)
	for at := 1; at <= appends; at++ {
		for _, after := range []bool{false, true} {
			w := begin(t, stubs())
			w.Store.DieAt, w.Store.After = at, after
			w.Run(nil)
			if diff := cmp.Diff(want, endOf(w)); diff != "" {
				t.Errorf("died at append %d (written: %v): %s", at, after, diff)
			}
		}
	}
}

// The process that takes over dies, too, at each of its first appends.
func TestDiesTwice(t *testing.T) {
	want, appends := undisturbed(t)
	for first := 1; first <= appends; first++ {
		for second := 1; second <= 3; second++ {
			w := begin(t, stubs())
			w.Store.DieAt, w.Store.After = first, first%2 == 0
			again := false
			w.Run(func() bool {
				if !again && w.Store.DieAt == 0 {
					again, w.Store.DieAt, w.Store.After = true, second, second%2 == 1
				}
				return false
			})
			if diff := cmp.Diff(want, endOf(w)); diff != "" {
				t.Errorf("died at append %d, then at %d: %s", first, second, diff)
			}
		}
	}
}

// A second worker has the same key at the same time: it makes a whole pass just before each append of the first.
func TestTwoWorkersOnOneKey(t *testing.T) {
	want, appends := undisturbed(t)
	for at := 1; at <= appends; at++ {
		w := begin(t, stubs())
		_, others := w.Process(w.Log)
		w.Store.Before = func(n int) {
			if n != at {
				return
			}
			for _, m := range others {
				if _, err := m.Reconcile(t.Context(), w.Node.String()); err != nil {
					t.Errorf("the second worker, before append %d: %v", at, err)
				}
			}
		}
		w.Run(nil)
		if diff := cmp.Diff(want, endOf(w)); diff != "" {
			t.Errorf("a second worker before append %d: %s", at, diff)
		}
	}
}

// No event wakes anything: the timers are enough.
func TestEveryWakeupIsLost(t *testing.T) {
	want, _ := undisturbed(t)
	o := stubs()
	o.Deaf = true
	w := begin(t, o)
	w.Run(nil)
	if diff := cmp.Diff(want, endOf(w)); diff != "" {
		t.Error(diff)
	}
}

// An agent that never answers holds a step until its deadline, and nothing for ever.
func TestAnAgentNeverAnswers(t *testing.T) {
	want, _ := undisturbed(t)
	for silent := range len(want.Requests) {
		o, n := stubs(), 0
		usual := o.Answer
		o.Answer = func(w *enginetest.World, c agentcommand.State) enginetest.Answer {
			n++
			if n-1 == silent {
				return enginetest.Answer{Silent: true}
			}
			return usual(w, c)
		}
		w := begin(t, o)
		w.Run(nil)
		e := endOf(w)
		if e.Status.Active() || e.Node != node.Failed && e.Node != node.Deployed || w.Now().Sub(enginetest.Began) > time.Hour {
			t.Errorf("request %d is never answered: %+v after %v", silent, e, w.Now().Sub(enginetest.Began))
		}
		if e.Requests["tidy stub.order attempt 1: tidy"] != 1 {
			t.Errorf("request %d is never answered: cleanup was asked for %d times", silent, e.Requests["tidy stub.order attempt 1: tidy"])
		}
		checkNothingIsOut(t, w)
	}
}

// checkNothingIsOut finds agent commands of a workflow that is over.
func checkNothingIsOut(t *testing.T, w *enginetest.World) {
	t.Helper()
	for _, r := range w.Events() {
		asked, ok := r.Event.(agentcommand.Requested)
		if !ok {
			continue
		}
		c, _, err := w.Outside.AgentCommand(t.Context(), asked.AgentCommand)
		if err != nil {
			t.Fatal(err)
		}
		if !c.Status.Settled() {
			t.Errorf("%s of step %s is left %s", c.Kind, c.Step, c.Status)
		}
	}
}

// An operator aborts the node, or its workflow, after each event of the run: it ends cancelled, the node fails once, cleanup
// runs once where anything was started, and nothing of the main steps is asked for afterwards.
func TestAbortsAtEveryEvent(t *testing.T) {
	want, _ := undisturbed(t)
	reference := begin(t, stubs())
	reference.Run(nil)
	last := reference.Len()
	for _, how := range []string{"node", "workflow"} {
		for at := 1; at <= last; at++ {
			w := begin(t, stubs())
			aborted := 0
			w.Run(func() bool {
				if aborted == 0 && w.Len() >= at {
					aborted = abort(t, w, how)
				}
				return false
			})
			if aborted < 0 {
				if diff := cmp.Diff(want, endOf(w)); diff != "" {
					t.Errorf("abort of the %s after event %d was refused: %s", how, at, diff)
				}
				continue
			}
			checkAborted(t, w, fmt.Sprintf("abort of the %s after event %d", how, at), aborted)
		}
	}
}

// abort gives the number of events before the abort; below zero where it was refused.
func abort(t *testing.T, w *enginetest.World, how string) int {
	t.Helper()
	before := w.Len()
	var err error
	if how == "node" {
		_, err = w.Outside.Abort(t.Context(), enginetest.Operator(), w.Node, "not this one")
	} else if wf := w.Workflow(); wf.Exists() {
		_, err = w.Outside.AbortWorkflow(t.Context(), enginetest.Operator(), wf.Workflow, "not this one")
	} else {
		return 0
	}
	switch fault.CodeOf(err) {
	case "":
		return before
	case fault.InvalidState:
		return -1
	}
	t.Fatal(err)
	return 0
}

// over tells whether the workflow had ended by itself before the abort, and only its node had not moved on yet.
func over(w *enginetest.World, from int) bool {
	for _, r := range w.Events()[:from] {
		if e, ok := r.Event.(workflow.Ended); ok {
			return e.Status == workflow.Succeeded
		}
	}
	return false
}

func checkAborted(t *testing.T, w *enginetest.World, what string, from int) {
	t.Helper()
	wf := w.Workflow()
	if wf.Exists() && wf.Status != workflow.Cancelled && !over(w, from) || w.State().Provision != node.Failed {
		t.Errorf("%s: the workflow is %s and the node %s", what, wf.Status, w.State().Provision)
	}
	failed, tidied, began := 0, 0, false
	for i, r := range w.Events() {
		switch e := r.Event.(type) {
		case node.Moved:
			if e.To == node.Failed {
				failed++
			}
		case workflow.StepStarted:
			began = true
			if s := wf.Find(e.Step); i >= from && s.Phase == workflow.Main {
				t.Errorf("%s: main step %s was started afterwards", what, e.Step)
			}
			if e.Step == "tidy" {
				tidied++
			}
		case agentcommand.Requested:
			if i >= from && e.Step != "tidy" {
				t.Errorf("%s: %s of step %s was asked for afterwards", what, e.Kind, e.Step)
			}
		}
	}
	if failed != 1 || tidied > 1 || began && tidied != 1 {
		t.Errorf("%s: the node failed %d times, cleanup ran %d times", what, failed, tidied)
	}
	checkNothingIsOut(t, w)
}

// An operator aborts the node just before each append of the control plane, and a second worker acts on that at once: what the
// first then still asks for, no agent is given.
func TestAbortsBeforeEveryAppend(t *testing.T) {
	_, appends := undisturbed(t)
	for at := 1; at <= appends; at++ {
		w := begin(t, stubs())
		_, others := w.Process(w.Log)
		from := 0
		w.Store.Before = func(n int) {
			if n != at {
				return
			}
			if from = abort(t, w, "node"); from <= 0 {
				return
			}
			for _, m := range others {
				if _, err := m.Reconcile(t.Context(), w.Node.String()); err != nil {
					t.Errorf("the second worker, before append %d: %v", at, err)
				}
			}
		}
		w.Run(nil)
		if from > 0 {
			checkNoneHandedOut(t, w, from, at)
			checkNothingIsOut(t, w)
		}
	}
}

// checkNoneHandedOut finds agent commands of main steps that an agent was given after the abort.
func checkNoneHandedOut(t *testing.T, w *enginetest.World, from, at int) {
	t.Helper()
	steps := map[string]string{}
	for i, r := range w.Events() {
		switch e := r.Event.(type) {
		case agentcommand.Requested:
			steps[r.Stream.ID()] = e.Step
		case agentcommand.HandedOut:
			if step := steps[r.Stream.ID()]; i >= from && step != "tidy" {
				t.Errorf("aborted before append %d: an agent was given the command of step %s afterwards", at, step)
			}
		}
	}
	if in := w.State().Provision; in != node.Failed {
		t.Errorf("aborted before append %d: the node is %s", at, in)
	}
}
