package workflow_test

import (
	"context"
	"encoding/json"
	"errors"
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

// job is an agent command kind of a host application.
type job struct {
	Do string `json:"do,omitempty"`
}

func (*job) Check() []fault.Issue { return nil }

func kinds() []agentcommand.Kind {
	payload := func() agentcommand.Payload { return &job{} }
	everywhere := []agentcommand.Role{agentcommand.RoleSite, agentcommand.RoleRamdisk, agentcommand.RoleNode}
	return []agentcommand.Kind{
		{Name: "test.job", RunsOn: everywhere, Payload: payload},
		{Name: "test.erase", RunsOn: everywhere, Destructive: true, Payload: payload},
		{Name: "test.restart", RunsOn: everywhere, SelfTerminating: true, Payload: payload},
	}
}

func parsed(t *testing.T, text string) profile.Document {
	t.Helper()
	doc, err := profile.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// code is a control-plane step.
func code(name string, run func(ctx context.Context, c *steps.Context) (any, error)) steps.Step {
	return steps.Define(profile.Spec{ID: name, Timeout: time.Minute},
		func(ctx context.Context, c *steps.Context, _ steps.None) (any, error) { return run(ctx, c) })
}

// relay is a control-plane step that sends agent commands, one after another.
func relay(name string, kind agentcommand.KindName, names ...string) steps.Step {
	spec := profile.Spec{ID: name, Timeout: time.Minute, Relays: []profile.Where{profile.OnSite}, Sends: []string{string(kind)}}
	return steps.Define(spec, func(ctx context.Context, c *steps.Context, _ steps.None) (any, error) {
		for _, n := range names {
			if _, err := c.AwaitCommand(ctx, steps.Order{Kind: kind, Role: agentcommand.RoleSite, Name: n, Payload: job{Do: n}}); err != nil {
				return nil, err
			}
		}
		return map[string]int{"sent": len(names)}, nil
	})
}

func agentStep(name string, kind agentcommand.KindName, on profile.Where) steps.Step {
	return steps.Agent(profile.Spec{
		ID: name, RunsOn: on, Command: string(kind), Timeout: time.Minute, Rejoin: kind == "test.restart",
	}, steps.Hooks[job]{})
}

func ok(context.Context, *steps.Context) (any, error) { return map[string]string{"it": "worked"}, nil }

// deploying is a world with a machine that deploys the profile.
func deploying(t *testing.T, o enginetest.Options, text string) *enginetest.World {
	t.Helper()
	doc := parsed(t, text)
	o.Kinds, o.Profiles = kinds(), []profile.Document{doc}
	return enginetest.New(t, o, node.Deploying, doc.ID)
}

func find(t *testing.T, w *enginetest.World, step string) workflow.Step {
	t.Helper()
	state := w.Workflow()
	st := state.Find(step)
	if st == nil {
		t.Fatalf("no step %s in %+v", step, state)
	}
	return *st
}

// asked counts the agent commands that were asked for, by what they do.
func asked(w *enginetest.World) map[string]int {
	counts := map[string]int{}
	for _, r := range w.Events() {
		if a, isOne := r.Event.(agentcommand.Requested); isOne {
			var payload job
			_ = json.Unmarshal(a.Payload, &payload)
			counts[string(a.Kind)+" "+payload.Do]++
		}
	}
	return counts
}

func wantEnd(t *testing.T, w *enginetest.World, status workflow.Status, in node.ProvisionState) {
	t.Helper()
	if got := w.Workflow(); got.Status != status || w.State().Provision != in {
		t.Fatalf("the workflow is %s (%+v), the node %s; want %s and %s", got.Status, got.Error, w.State().Provision, status, in)
	}
	for _, err := range w.Errors {
		t.Errorf("a pass failed: %v", err)
	}
}

func TestEveryKindOfStep(t *testing.T) {
	runs := 0
	w := deploying(t, enginetest.Options{Steps: []steps.Step{
		code("test.code", func(ctx context.Context, c *steps.Context) (any, error) {
			if runs++; runs < 3 {
				return nil, steps.NotReady(time.Second)
			}
			return ok(ctx, c)
		}),
		relay("test.relay", "test.job", "first", "second"),
		agentStep("test.agent", "test.erase", profile.OnRamdisk),
	}}, `{"id": "p", "version": 1, "target": "metal", "role": "dedicated",
		"steps": [
			{"use": "test.code", "id": "code"},
			{"use": "test.relay", "id": "relay", "on": "site"},
			{"use": "test.agent", "id": "agent", "with": {"do": "everything"}},
			{"use": "test.code", "id": "skipped", "when": "rack=7"},
			{"use": "power.get", "on": "site", "id": "driver"}
		], "cleanup": [{"use": "test.relay", "id": "tidy"}]}`)
	w.Agents.Open(w.Node, agentcommand.RoleRamdisk, "boot-1")
	w.Run(nil)
	wantEnd(t, w, workflow.Succeeded, node.Deployed)
	if role := w.State().Role; role != node.RoleDedicated {
		t.Errorf("the role is %s", role)
	}
	for step, want := range map[string]workflow.StepState{
		"code": workflow.StepSucceeded, "relay": workflow.StepSucceeded, "agent": workflow.StepSucceeded,
		"skipped": workflow.StepSkipped, "driver": workflow.StepSucceeded, "tidy": workflow.StepSucceeded,
	} {
		if got := find(t, w, step); got.State != want {
			t.Errorf("%s is %s (%+v), want %s", step, got.State, got.Error, want)
		}
	}
	if got := asked(w); got["test.job first"] != 2 || got["test.job second"] != 2 || got["test.erase everything"] != 1 {
		t.Errorf("asked for %v", got)
	}
	if runs != 3 {
		t.Errorf("the step that was not ready ran %d times", runs)
	}
	if took := w.Now().Sub(enginetest.Began); took > 10*time.Second {
		t.Errorf("it took %v, though agents answered at once", took)
	}
}

// An event is written on change only: a step that waits for an hour adds none.
func TestWaitingWritesNothing(t *testing.T) {
	w := deploying(t, enginetest.Options{Steps: []steps.Step{
		code("test.never", func(context.Context, *steps.Context) (any, error) { return nil, steps.NotReady(time.Second) }),
	}}, `{"id": "p", "version": 1, "target": "metal", "steps": [{"use": "test.never", "id": "never", "timeout": "1h"}]}`)
	w.Run(func() bool { return w.Now().Sub(enginetest.Began) > time.Minute })
	before := len(w.Events())
	w.Run(func() bool { return w.Now().Sub(enginetest.Began) > 59*time.Minute })
	if after := len(w.Events()); after != before {
		t.Errorf("%d events while it waits", after-before)
	}
	w.Run(nil)
	wantEnd(t, w, workflow.Failed, node.Failed)
	if got := find(t, w, "never"); got.Error == nil || got.Error.Code != string(fault.Timeout) {
		t.Errorf("it failed with %+v", got.Error)
	}
	if at := w.Now().Sub(enginetest.Began); at < time.Hour || at > time.Hour+time.Minute {
		t.Errorf("it timed out after %v", at)
	}
	if f := w.State().LastError; f == nil || f.Code != string(fault.Timeout) || !strings.HasPrefix(f.Message, "never (test.never): ") {
		t.Errorf("the node's error is %+v", f)
	}
}

func TestFailureRetriesOnFailureAndCleanup(t *testing.T) {
	tries := 0
	w := deploying(t, enginetest.Options{
		Steps: []steps.Step{
			relay("test.erase", "test.erase", "disk"), relay("test.reset", "test.job", "reset"), relay("test.tidy", "test.job", "tidy"),
			code("test.ok", ok),
		},
		Answer: func(_ *enginetest.World, c agentcommand.State) enginetest.Answer {
			if c.Kind != "test.erase" {
				return enginetest.Answer{}
			}
			tries++
			return enginetest.Answer{Status: agentcommand.Failed, Code: "TIMEOUT", Reason: "the disk does not answer"}
		},
	}, `{"id": "p", "version": 1, "target": "metal", "steps": [
			{"use": "test.erase", "id": "erase", "retries": 2, "retryDelay": "30s", "onFailure": {"use": "test.reset", "id": "reset"}},
			{"use": "test.ok", "id": "after"}
		], "cleanup": [{"use": "test.tidy", "id": "tidy"}]}`)
	w.Run(nil)
	wantEnd(t, w, workflow.Failed, node.Failed)
	erase := find(t, w, "erase")
	if tries != 3 || erase.Attempt != 3 || erase.Error == nil || erase.Error.Code != string(fault.DriverError) ||
		!strings.Contains(erase.Error.Message, "the disk does not answer") || !strings.Contains(string(erase.Error.Details), "TIMEOUT") {
		t.Errorf("%d tries, %+v with %+v %s", tries, erase, erase.Error, erase.Error.Details)
	}
	if after := find(t, w, "after"); after.State != workflow.StepCancelled || after.Started {
		t.Errorf("the step after it is %+v", after)
	}
	if got := asked(w); got["test.erase disk"] != 3 || got["test.job reset"] != 1 || got["test.job tidy"] != 1 {
		t.Errorf("asked for %v", got)
	}
	// The node's retry decides first, then the workflow runs again from the failed step.
	w.Options.Answer = nil
	if _, err := w.Outside.RetryWorkflow(t.Context(), enginetest.Operator(), w.Workflow().Workflow, ""); err != nil {
		t.Fatal(err)
	}
	w.Run(nil)
	wantEnd(t, w, workflow.Succeeded, node.Deployed)
	if run := w.Workflow().Run; run != 2 {
		t.Errorf("it is run %d", run)
	}
}

func TestRejoin(t *testing.T) {
	text := `{"id": "p", "version": 1, "target": "metal", "steps": [
		{"use": "test.restart", "id": "restart", "await": "rejoin", "timeout": "20m", "onFailure": {"use": "test.reset", "id": "reset"}}]}`
	parts := []steps.Step{agentStep("test.restart", "test.restart", profile.OnRamdisk), relay("test.reset", "test.job", "reset")}
	for name, test := range map[string]struct {
		answer enginetest.Answer
		want   workflow.Status
		code   fault.Code
	}{
		"comes back":                  {enginetest.Answer{Boot: "boot-2", Role: agentcommand.RoleNode}, workflow.Succeeded, ""},
		"says no and comes back":      {enginetest.Answer{Boot: "boot-2", Role: agentcommand.RoleNode, Status: agentcommand.Failed}, workflow.Succeeded, ""},
		"says yes and never comes":    {enginetest.Answer{}, workflow.Failed, fault.RejoinTimeout},
		"says no and never comes":     {enginetest.Answer{Status: agentcommand.Failed}, workflow.Failed, fault.RejoinTimeout},
		"says nothing, never comes":   {enginetest.Answer{Silent: true}, workflow.Failed, fault.RejoinTimeout},
		"comes back in the same boot": {enginetest.Answer{Boot: "boot-1", Role: agentcommand.RoleRamdisk}, workflow.Failed, fault.RejoinTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			w := deploying(t, enginetest.Options{Steps: parts, Answer: func(_ *enginetest.World, c agentcommand.State) enginetest.Answer {
				if c.Kind == "test.restart" {
					return test.answer
				}
				return enginetest.Answer{}
			}}, text)
			w.Agents.Open(w.Node, agentcommand.RoleRamdisk, "boot-1")
			w.Run(nil)
			in := node.Deployed
			if test.want == workflow.Failed {
				in = node.Failed
			}
			wantEnd(t, w, test.want, in)
			got, resets := find(t, w, "restart"), asked(w)["test.job reset"]
			switch {
			case test.code == "" && (string(got.Result) != `{"bootId":"boot-2","role":"node"}` || resets != 0):
				t.Errorf("the result is %s after %d resets", got.Result, resets)
			case test.code != "" && (got.Error == nil || got.Error.Code != string(test.code) || resets != 1):
				t.Errorf("it failed with %+v after %d resets", got.Error, resets)
			}
			c, _, err := w.Outside.AgentCommand(t.Context(), agentcommand.IDOf(w.Workflow().Key(got)))
			if err != nil || !c.Status.Settled() {
				t.Errorf("the command is left %s (%v)", c.Status, err)
			}
		})
	}
}

// What the step was handed as a secret is in nothing that it leaves behind.
func TestSecretsStayOut(t *testing.T) {
	mint := func(ctx context.Context, c *steps.Context) string {
		_, token, err := c.Ports.Tokens.Mint(ctx, steps.JoinToken{Key: c.Key})
		if err != nil {
			panic(err)
		}
		return token
	}
	for name, run := range map[string]func(ctx context.Context, c *steps.Context) (any, error){
		"a result": func(ctx context.Context, c *steps.Context) (any, error) {
			return map[string]any{"list": []string{"token=" + mint(ctx, c)}}, nil
		},
		"bytes of a result": func(ctx context.Context, c *steps.Context) (any, error) {
			return map[string][]byte{"document": []byte(mint(ctx, c))}, nil
		},
		"what was put away": func(ctx context.Context, c *steps.Context) (any, error) {
			_, err := c.Ports.Secrets.Put(ctx, c.Key, []byte("correct horse\n"), c.Deadline)
			return "correct horse", err
		},
		"an error": func(ctx context.Context, c *steps.Context) (any, error) {
			return nil, errors.New("refused: " + mint(ctx, c))
		},
		"details of an error": func(ctx context.Context, c *steps.Context) (any, error) {
			return nil, fault.New(fault.DriverError, "refused").WithDetail("sent", mint(ctx, c))
		},
		"a payload": func(ctx context.Context, c *steps.Context) (any, error) {
			return c.AwaitCommand(ctx, steps.Order{Kind: "test.job", Role: agentcommand.RoleSite, Payload: job{Do: mint(ctx, c)}})
		},
		"a panic": func(ctx context.Context, c *steps.Context) (any, error) { panic(mint(ctx, c)) },
	} {
		t.Run(name, func(t *testing.T) {
			step := code("test.leak", run)
			step.Sends = []string{"test.job"}
			w := deploying(t, enginetest.Options{Steps: []steps.Step{step}},
				`{"id": "p", "version": 1, "target": "metal", "steps": [{"use": "test.leak", "id": "leak"}]}`)
			w.Run(nil)
			wantEnd(t, w, workflow.Failed, node.Failed)
			for _, r := range w.Events() {
				for _, secret := range []string{"metaljoin-", "bWV0YWxqb2luL", "correct horse"} {
					if strings.Contains(string(r.Data), secret) {
						t.Errorf("%s holds it: %s", r.Type, r.Data)
					}
				}
			}
		})
	}
}

// No definition looks at the input of a driver's operation: a reference in it, however written, reaches no agent.
func TestAReferenceOfAProfileGoesNowhere(t *testing.T) {
	w := deploying(t, enginetest.Options{}, `{"id": "p", "version": 1, "target": "metal", "drivers": {"power": "redfish"}, "steps": [
		{"use": "power.blink", "id": "blink", "on": "site", "with": {"as": "\u0073ecret:5a1f0c5e-0000-4000-8000-000000000001"}}]}`)
	w.Run(nil)
	wantEnd(t, w, workflow.Failed, node.Failed)
	if failed := find(t, w, "blink").Error; failed == nil || failed.Code != string(fault.InvalidConfig) {
		t.Errorf("it failed with %+v", failed)
	}
	if out := asked(w); len(out) > 0 {
		t.Errorf("agents were asked for %v", out)
	}
}

// What an agent was handed in an earlier look at the step is taken out of what it says later.
func TestSecretsOfAnEarlierLookStayOut(t *testing.T) {
	relay := steps.Define(profile.Spec{
		ID: "test.relay", Timeout: time.Minute, Relays: []profile.Where{profile.OnSite}, Sends: []string{"test.job"},
	}, func(ctx context.Context, c *steps.Context, _ steps.None) (any, error) {
		return c.AwaitCommand(ctx, steps.Order{Kind: "test.job", Role: agentcommand.RoleSite, Make: func() (any, error) {
			_, token, err := c.Ports.Tokens.Mint(ctx, steps.JoinToken{Key: c.Key})
			if err != nil {
				return nil, err
			}
			_, err = c.Ports.Secrets.Put(ctx, c.Key, []byte(token), c.Deadline)
			return job{Do: "boot"}, err
		}})
	})
	var token string
	w := deploying(t, enginetest.Options{Steps: []steps.Step{relay}, Answer: func(w *enginetest.World, _ agentcommand.State) enginetest.Answer {
		for _, minted := range w.Secrets.Minted {
			token = minted
		}
		return enginetest.Answer{Status: agentcommand.Failed, Reason: "no such token: " + token}
	}}, `{"id": "p", "version": 1, "target": "metal", "steps": [{"use": "test.relay", "id": "relay", "on": "site"}]}`)
	w.Run(nil)
	wantEnd(t, w, workflow.Failed, node.Failed)
	if token == "" {
		t.Fatal("no token was minted")
	}
	for _, r := range w.Events() {
		if r.Stream.Category() != agentcommand.Category && strings.Contains(string(r.Data), token) {
			t.Errorf("%s holds it: %s", r.Type, r.Data)
		}
	}
	if got := find(t, w, "relay"); !strings.Contains(got.Error.Message, "no such token: [redacted]") {
		t.Errorf("the error is %q", got.Error.Message)
	}
}

// A workflow that a newer version has made is left to that version.
func TestAStepOfANewerVersionIsLeftToIt(t *testing.T) {
	text := `{"id": "p", "version": 1, "target": "metal", "steps": [{"use": "test.new", "id": "new"}]}`
	w := deploying(t, enginetest.Options{Steps: []steps.Step{code("test.new", ok)}}, text)
	w.Run(func() bool { return w.Workflow().Exists() })
	older := w.Older(t)
	again, err := older.Reconcile(t.Context(), w.Node.String())
	if err != nil || again <= 0 {
		t.Errorf("the older version looks again in %v, with %v", again, err)
	}
	w.Run(nil)
	wantEnd(t, w, workflow.Succeeded, node.Deployed)
}

func TestWhatAStepMayNotDo(t *testing.T) {
	undeclared := code("test.sly", func(ctx context.Context, c *steps.Context) (any, error) {
		c.Step.Sends = []string{"test.erase"}
		return c.AwaitCommand(ctx, steps.Order{Kind: "test.erase", Role: agentcommand.RoleSite, Payload: job{}})
	})
	panics := code("test.panics", func(context.Context, *steps.Context) (any, error) { panic("index out of range") })
	notJSON := code("test.odd", func(context.Context, *steps.Context) (any, error) { return func() {}, nil })
	for use, want := range map[string]fault.Code{
		"test.sly": fault.InvalidConfig, "test.panics": fault.Internal, "test.odd": fault.InvalidConfig,
	} {
		w := deploying(t, enginetest.Options{Steps: []steps.Step{undeclared, panics, notJSON}},
			`{"id": "p", "version": 1, "target": "metal", "steps": [{"use": "`+use+`", "id": "s"}]}`)
		w.Run(nil)
		wantEnd(t, w, workflow.Failed, node.Failed)
		if got := find(t, w, "s"); got.Error == nil || got.Error.Code != string(want) {
			t.Errorf("%s failed with %+v, want %s", use, got.Error, want)
		}
		if n := len(asked(w)); n > 0 {
			t.Errorf("%s sent %v", use, asked(w))
		}
	}
}

// What is away is not the step's failure: it is tried again until the deadline.
func TestWhatIsAwayIsTriedAgain(t *testing.T) {
	runs := 0
	w := deploying(t, enginetest.Options{Steps: []steps.Step{
		code("test.away", func(ctx context.Context, c *steps.Context) (any, error) {
			if runs++; runs < 4 {
				return nil, fault.New(fault.Unavailable, "the image store is away")
			}
			return ok(ctx, c)
		}),
	}}, `{"id": "p", "version": 1, "target": "metal", "steps": [{"use": "test.away", "id": "away"}]}`)
	w.Run(nil)
	wantEnd(t, w, workflow.Succeeded, node.Deployed)
	if got := find(t, w, "away"); got.Attempt != 1 {
		t.Errorf("it took %d attempts", got.Attempt)
	}
}
