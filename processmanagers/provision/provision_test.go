package provision_test

import (
	"strings"
	"testing"
	"time"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/profile/builtin"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/processmanagers/enginetest"
)

// rig is a machine that waits in a state, with the shipped profiles.
func rig(t *testing.T, in node.ProvisionState, change ...func(*enginetest.Options)) (*enginetest.World, *enginetest.Machine) {
	t.Helper()
	profiles, err := builtin.Profiles()
	if err != nil {
		t.Fatal(err)
	}
	m := &enginetest.Machine{Number: enginetest.Number, Power: node.PowerOff}
	o := enginetest.Options{Profiles: profiles, Config: enginetest.Config(), Answer: m.Answers}
	for _, c := range change {
		c(&o)
	}
	return enginetest.New(t, o, in, "image-host"), m
}

func wantFailed(t *testing.T, w *enginetest.World, code fault.Code, words string) {
	t.Helper()
	n := w.State()
	if n.Provision != node.Failed || n.LastError == nil || n.LastError.Code != string(code) || !strings.Contains(n.LastError.Message, words) {
		t.Errorf("the node is %s with %+v, want failed with %s and %q", n.Provision, n.LastError, code, words)
	}
	for _, err := range w.Errors {
		t.Errorf("a pass failed: %v", err)
	}
}

func TestAProfileThatCantRunFailsTheNode(t *testing.T) {
	w, _ := rig(t, node.Enrolling, func(o *enginetest.Options) { o.Profiles = nil })
	w.Run(nil)
	wantFailed(t, w, fault.NotFound, "metal-enroll")
	if n := w.State(); !id.IsZero(n.FailedWorkflow) {
		t.Errorf("workflow %s was claimed for it", n.FailedWorkflow)
	}

	w, _ = rig(t, node.Commissioning, func(o *enginetest.Options) {
		o.Policy = pool.Policy{Agent: pool.AgentNone}
		o.Profiles = nil
	})
	w.Run(nil)
	wantFailed(t, w, fault.NotFound, "metal-commission-oob")
}

func TestAnAgentlessPoolHasProfilesOfItsOwn(t *testing.T) {
	w, _ := rig(t, node.Inspecting, func(o *enginetest.Options) {
		o.Policy = pool.Policy{Agent: pool.AgentNone, UnverifiedRelease: pool.AllowUnverifiedRelease}
	})
	w.Run(nil)
	n := w.State()
	if n.Provision != node.Ready || !n.ReleaseUnverified || n.LastProfile == nil || n.LastProfile.ID != "metal-commission-oob" {
		t.Errorf("the node is %s by %+v (%+v)", n.Provision, n.LastProfile, n.LastError)
	}
}

// Ready needs a proven wipe: a profile of the tenant's own that leaves it out ends in failed.
func TestNoWipeIsNotReady(t *testing.T) {
	lazy, err := profile.Parse([]byte(`{"id": "metal-commission", "version": 1, "target": "metal", "steps": [{"use": "bmc.identify", "on": "site"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	w, _ := rig(t, node.Commissioning, func(o *enginetest.Options) { o.Profiles = []profile.Document{lazy} })
	w.Run(nil)
	wantFailed(t, w, fault.UnverifiedWipe, "there is no in-band inventory")
}

func TestPowerVerb(t *testing.T) {
	away := func(o *enginetest.Options) {
		o.Answer = func(*enginetest.World, agentcommand.State) enginetest.Answer { return enginetest.Answer{Silent: true} }
	}
	refuses := func(o *enginetest.Options) {
		o.Answer = func(*enginetest.World, agentcommand.State) enginetest.Answer {
			return enginetest.Answer{Status: agentcommand.Failed, Reason: "no power supply"}
		}
	}
	usual := func(*enginetest.Options) {}
	for name, test := range map[string]struct {
		world func(*enginetest.Options)
		site  bool
		code  fault.Code
		words string
	}{
		"done":           {usual, true, "", ""},
		"refused":        {refuses, true, fault.DriverError, "no power supply"},
		"never answered": {away, true, fault.Timeout, "within the time"},
		"no site agent":  {usual, false, fault.Timeout, "within the time"},
	} {
		t.Run(name, func(t *testing.T) {
			w, m := rig(t, node.Ready, test.world)
			w.Agents.Site = test.site
			if _, err := w.Outside.Power(t.Context(), enginetest.Operator(), w.Node, node.ActionCycle); err != nil {
				t.Fatal(err)
			}
			w.Run(nil)
			n := w.State()
			if n.PowerAction != "" || n.Provision != node.Ready {
				t.Errorf("%s is still asked for, in %s", n.PowerAction, n.Provision)
			}
			switch {
			case test.code == "" && (n.PowerError != nil || n.Power != node.PowerOn || m.Power != node.PowerOn):
				t.Errorf("the machine is %s, observed %s, with %+v", m.Power, n.Power, n.PowerError)
			case test.code != "" && (n.PowerError == nil || n.PowerError.Code != string(test.code) || !strings.Contains(n.PowerError.Message, test.words)):
				t.Errorf("it failed with %+v, want %s and %q", n.PowerError, test.code, test.words)
			}
			if took := w.Now().Sub(enginetest.Began); took > 11*time.Minute {
				t.Errorf("it took %v", took)
			}
			for _, err := range w.Errors {
				t.Errorf("a pass failed: %v", err)
			}
		})
	}
}

// What an operator finds on a machine that failed tells what to do next, as whoever found the fault knows it.
func TestFailuresSayWhatToDo(t *testing.T) {
	w, _ := rig(t, node.Enrolling, func(o *enginetest.Options) {
		o.Answer = func(*enginetest.World, agentcommand.State) enginetest.Answer {
			return enginetest.Answer{
				Status: agentcommand.Failed, Code: string(fault.DriverError), Reason: "the certificate is another",
				Details: []byte(`{"reason":"certificate-changed","remedy":"trust the new one: metalctl trust-bmc"}`),
			}
		}
	})
	w.Run(nil)
	wantFailed(t, w, fault.DriverError, "the certificate is another; what to do: trust the new one: metalctl trust-bmc")
	if _, err := w.Outside.Power(t.Context(), enginetest.Operator(), w.Node, node.ActionOn); err != nil {
		t.Fatal(err)
	}
	w.Run(nil)
	if e := w.State().PowerError; e == nil || !strings.HasSuffix(e.Message, "what to do: trust the new one: metalctl trust-bmc") {
		t.Errorf("the power action failed with %+v", e)
	}
}

// A machine that is put to work is not cycled any more by what was asked before.
func TestPowerGivesWayToWork(t *testing.T) {
	w, m := rig(t, node.Ready, func(o *enginetest.Options) {
		usual := o.Answer
		o.Answer = func(w *enginetest.World, c agentcommand.State) enginetest.Answer {
			if id.IsZero(c.Workflow) {
				return enginetest.Answer{Silent: true}
			}
			return usual(w, c)
		}
	})
	if _, err := w.Outside.Power(t.Context(), enginetest.Operator(), w.Node, node.ActionCycle); err != nil {
		t.Fatal(err)
	}
	key := w.State().PowerKey
	asked := func() bool {
		_, _, err := w.Outside.AgentCommand(t.Context(), agentcommand.IDOf(key))
		return err == nil
	}
	w.Run(asked)
	if !asked() || m.Power != node.PowerOff {
		t.Fatal("the power action was not sent")
	}
	if _, err := w.Outside.Provide(t.Context(), enginetest.Operator(), w.Node); err != nil {
		t.Fatal(err)
	}
	w.Run(nil)
	c, _, err := w.Outside.AgentCommand(t.Context(), agentcommand.IDOf(key))
	if err != nil || c.Status != agentcommand.Cancelled {
		t.Errorf("the power command is %s (%v)", c.Status, err)
	}
	if n := w.State(); n.Provision != node.Ready || n.PowerAction != "" {
		t.Errorf("the node is %s with %+v, %s", n.Provision, n.LastError, n.PowerAction)
	}
}

// powered is a machine whose BMC answers the power actions of operators only when the test says so.
type powered struct {
	*enginetest.World
	*enginetest.Machine
	t       *testing.T
	answers bool
}

func newPowered(t *testing.T, in node.ProvisionState) *powered {
	p := &powered{t: t}
	p.World, p.Machine = rig(t, in, func(o *enginetest.Options) {
		usual := o.Answer
		o.Answer = func(w *enginetest.World, c agentcommand.State) enginetest.Answer {
			if id.IsZero(c.Workflow) && !p.answers {
				return enginetest.Answer{Silent: true}
			}
			return usual(w, c)
		}
	})
	return p
}

// ask asks for a power action, and gives the key of the agent command that carries it out.
func (p *powered) ask(a node.PowerAction) (key string) {
	p.t.Helper()
	if _, err := p.Outside.Power(p.t.Context(), enginetest.Operator(), p.Node, a); err != nil {
		p.t.Fatal(err)
	}
	return p.World.State().PowerKey
}

// sent runs until the agent command of a key was sent.
func (p *powered) sent(key string) {
	p.t.Helper()
	is := func() bool { return p.status(key) != "" }
	p.Run(is)
	if !is() {
		p.t.Fatalf("%s was not sent", key)
	}
}

func (p *powered) status(key string) agentcommand.Status {
	c, _, err := p.Outside.AgentCommand(p.t.Context(), agentcommand.IDOf(key))
	if fault.CodeOf(err) == fault.NotFound {
		return ""
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return c.Status
}

// Of two power actions the newest counts: the one before must not come late and undo it.
func TestANewerPowerActionTakesTheOlderOneBack(t *testing.T) {
	p := newPowered(t, node.Ready)
	first := p.ask(node.ActionCycle)
	p.sent(first)
	second := p.ask(node.ActionOn)
	p.sent(second)
	if is := p.status(first); is != agentcommand.Cancelled {
		t.Errorf("the older one is %s when the newer one is sent", is)
	}
	third := p.ask(node.ActionOff)
	p.sent(third)
	p.answers = true
	p.Run(nil)
	if a, b := p.status(second), p.status(third); a != agentcommand.Cancelled || b != agentcommand.Succeeded {
		t.Errorf("the second is %s, the third %s", a, b)
	}
	if n := p.World.State(); n.Power != node.PowerOff || n.PowerAction != "" || n.PowerError != nil || len(n.PowerReplaced) > 0 {
		t.Errorf("the node is %s, with %s (%+v) and %v", n.Power, n.PowerAction, n.PowerError, n.PowerReplaced)
	}
}

// The cleanup of an aborted workflow switches the machine off. What the operator has asked for meanwhile is carried out then.
func TestCleanupDoesNotAnswerAPowerAction(t *testing.T) {
	p := newPowered(t, node.Releasing)
	p.answers = true
	p.Run(func() bool { s := p.Workflow().Find("inspect"); return s != nil && s.Started })
	if _, err := p.Outside.Abort(t.Context(), enginetest.Operator(), p.Node, ""); err != nil {
		t.Fatal(err)
	}
	key := p.ask(node.ActionOn)
	p.Run(nil)
	n := p.World.State()
	if is := p.status(key); is != agentcommand.Succeeded {
		t.Errorf("the power action is %q", is)
	}
	if n.Power != node.PowerOn || n.PowerAction != "" || n.PowerError != nil {
		t.Errorf("the machine is seen %s, with %s (%+v)", n.Power, n.PowerAction, n.PowerError)
	}
}

// A worker that has decided to send a power action just before the machine was put to work takes it back.
func TestAPowerActionThatIsSentTooLateIsTakenBack(t *testing.T) {
	p := newPowered(t, node.Ready)
	key := p.ask(node.ActionCycle)
	_, others := p.Process(p.Log)
	p.Store.Before = func(int) {
		p.Store.Before = nil
		if _, err := p.Outside.Provide(t.Context(), enginetest.Operator(), p.Node); err != nil {
			t.Error(err)
		}
		if _, err := others[0].Reconcile(t.Context(), p.Node.String()); err != nil {
			t.Error(err)
		}
		if n := p.World.State(); n.PowerAction != "" || n.Workflow == nil {
			t.Errorf("the other worker left %q, with workflow %+v", n.PowerAction, n.Workflow)
		}
	}
	p.sent(key)
	p.Run(nil)
	if is := p.status(key); is != agentcommand.Cancelled {
		t.Errorf("the power command is %s", is)
	}
	if n := p.World.State(); n.Provision != node.Ready {
		t.Errorf("the node is %s with %+v", n.Provision, n.LastError)
	}
	for _, err := range p.Errors {
		t.Errorf("a pass failed: %v", err)
	}
}

func TestAMachineThatIsGivenUpIsNotSwitchedAnyMore(t *testing.T) {
	p := newPowered(t, node.Enrolling)
	p.Run(func() bool { return p.World.State().Workflow != nil })
	if _, err := p.Outside.Abort(t.Context(), enginetest.Operator(), p.Node, ""); err != nil {
		t.Fatal(err)
	}
	key := p.ask(node.ActionOn)
	p.sent(key)
	if _, err := p.Outside.Abandon(t.Context(), enginetest.Operator(), p.Node, "sold"); err != nil {
		t.Fatal(err)
	}
	p.Run(nil)
	if is := p.status(key); is != agentcommand.Cancelled {
		t.Errorf("the power command is %s", is)
	}
	if n := p.World.State(); n.Provision != node.Retired || n.PowerAction != "" || n.PowerError == nil {
		t.Errorf("the node is %s, with %s (%+v)", n.Provision, n.PowerAction, n.PowerError)
	}
}

func TestAJoinedMachineIsAcceptedOnceItsAgentIsThere(t *testing.T) {
	w, _ := rig(t, node.Joined)
	w.Run(func() bool { return w.Now().After(enginetest.Began.Add(time.Minute)) })
	if in := w.State().Provision; in != node.Joined {
		t.Fatalf("without its agent it is %s", in)
	}
	w.Agents.Open(w.Node, agentcommand.RoleNode, "boot")
	w.Run(nil)
	if in := w.State().Provision; in != node.Adopted {
		t.Errorf("it is %s", in)
	}
}

func TestRescueAndBack(t *testing.T) {
	w, m := rig(t, node.Deploying)
	w.Run(nil)
	if in := w.State().Provision; in != node.Deployed || !m.Installed {
		t.Fatalf("it is %s (%+v)", in, w.State().LastError)
	}
	if _, err := w.Outside.Rescue(t.Context(), enginetest.Operator(), w.Node); err != nil {
		t.Fatal(err)
	}
	w.Run(nil)
	if n := w.State(); n.Provision != node.Rescue || !n.RescueUp {
		t.Fatalf("it is %s (%+v)", n.Provision, n.LastError)
	}
	if _, err := w.Outside.Unrescue(t.Context(), enginetest.Operator(), w.Node); err != nil {
		t.Fatal(err)
	}
	told := w.State().UnrescueWorkflow
	w.Run(nil)
	if n := w.State(); n.Provision != node.Deployed || n.LastWorkflow != told || !m.Installed {
		t.Errorf("it is %s by %s (%+v), and was told %s", n.Provision, n.LastWorkflow, n.LastError, told)
	}
}

// At most one workflow is active on a node: what follows an abort waits until the aborted one has tidied up.
func TestWhatFollowsAnAbortWaitsForItsCleanup(t *testing.T) {
	held := true
	w, _ := rig(t, node.Inspecting, func(o *enginetest.Options) {
		usual := o.Answer
		o.Answer = func(w *enginetest.World, c agentcommand.State) enginetest.Answer {
			if held && (c.Kind == agentcommand.InspectHardware || c.Kind == agentcommand.BootEntryClear) {
				return enginetest.Answer{Silent: true}
			}
			return usual(w, c)
		}
	})
	at := func(step string) func() bool {
		return func() bool {
			for _, s := range w.Workflow().Steps {
				if s.ID == step && s.Started {
					return true
				}
			}
			return false
		}
	}
	w.Run(at("inspect"))
	first := w.Workflow().Workflow
	if _, err := w.Outside.Abort(t.Context(), enginetest.Operator(), w.Node, "wrong rack"); err != nil {
		t.Fatal(err)
	}
	w.Run(at("clear-boot-entry"))
	if _, err := w.Outside.Recover(t.Context(), enginetest.Operator(), w.Node); err != nil {
		t.Fatal(err)
	}
	held = false
	w.Run(nil)
	if n := w.State(); n.Provision != node.Ready {
		t.Errorf("the node is %s (%+v)", n.Provision, n.LastError)
	}
	over, second := false, false
	for _, r := range w.Events() {
		switch e := r.Event.(type) {
		case workflow.Ended:
			over = over || e.Workflow == first
		case node.WorkflowStarted:
			if e.Workflow != first {
				second = true
				if !over {
					t.Errorf("%s was started while %s still ran", e.Workflow, first)
				}
			}
		}
	}
	if !second {
		t.Error("no other workflow was started")
	}
}

// The node decides on a retry first; where the process died before the workflow heard of it, whoever looks next goes on.
func TestARetryThatOnlyTheNodeKnowsOf(t *testing.T) {
	broken := true
	w, _ := rig(t, node.Enrolling, func(o *enginetest.Options) {
		usual := o.Answer
		o.Answer = func(w *enginetest.World, c agentcommand.State) enginetest.Answer {
			if broken {
				return enginetest.Answer{Status: agentcommand.Failed, Reason: "no route to the BMC"}
			}
			return usual(w, c)
		}
	})
	w.Run(nil)
	wantFailed(t, w, fault.DriverError, "no route to the BMC")
	failed := w.Workflow().Workflow
	broken = false
	dying, _ := w.Process(&enginetest.Mortal{Store: w.Log, DieAt: 1, After: true})
	if _, err := dying.RetryWorkflow(t.Context(), enginetest.Operator(), failed, ""); err == nil || w.State().Provision != node.Enrolling {
		t.Fatalf("the node is %s, and the verb says %v", w.State().Provision, err)
	}
	w.Run(nil)
	if n := w.State(); n.Provision != node.Ready {
		t.Errorf("the node is %s (%+v)", n.Provision, n.LastError)
	}
	again, _, err := w.Outside.Workflow(t.Context(), failed)
	if err != nil || again.Run != 2 || again.Status != workflow.Succeeded {
		t.Errorf("the workflow is %s in run %d (%v)", again.Status, again.Run, err)
	}
}
