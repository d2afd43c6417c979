package commands_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/tenant"
	"github.com/better-compute/metal/domain/workflow"
)

func metaOf(t id.Tenant) event.Meta {
	return event.Meta{Tenant: t.String(), At: at("2026-11-29T12:00:00Z")}
}

// running is an enrolled node whose workflow runs its first step.
func (w *world) running(t *testing.T, p node.Profile) (id.Node, id.Workflow) {
	t.Helper()
	ctx := context.Background()
	n := w.enrolled(t, machine(w.pool, "10.0.0.10", "b8:ce:f6:00:00:01")).State.ID
	started, err := w.StartWorkflow(ctx, system(), n, p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.CreateWorkflow(ctx, system(), started.State, "provision"); err != nil {
		t.Fatal(err)
	}
	wf := started.State.Workflow.ID
	w.advance(t, wf)
	return n, wf
}

func (w *world) advance(t *testing.T, wf id.Workflow) workflow.State {
	t.Helper()
	done, err := w.AdvanceWorkflow(context.Background(), system(), wf, workflow.Tick{Now: w.clock.read()})
	if err != nil {
		t.Fatal(err)
	}
	return done.State
}

// fails settles the first step well and the next one with an error, until the workflow has failed.
func (w *world) fails(t *testing.T, wf id.Workflow) workflow.State {
	t.Helper()
	for range 100 {
		state := w.advance(t, wf)
		if state.Status == workflow.Failed {
			return state
		}
		if step := state.InFlight(); step != nil {
			var failure *workflow.Failure
			if step.ID != state.Steps[0].ID {
				failure = &workflow.Failure{Code: "DRIVER_ERROR", Message: "no answer"}
			}
			w.settle(t, wf, *step, failure)
		}
		w.clock.advance(time.Minute)
	}
	t.Fatal("it does not fail")
	return workflow.State{}
}

func (w *world) settle(t *testing.T, wf id.Workflow, step workflow.Step, failure *workflow.Failure) {
	t.Helper()
	_, err := w.SettleWorkflow(context.Background(), system(), wf, workflow.Settle{
		Tick: workflow.Tick{Now: w.clock.read()}, Step: step.ID, Attempt: step.Attempt, Error: failure,
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) nodeOf(t *testing.T, n id.Node) node.State {
	t.Helper()
	state, _, err := w.Node(context.Background(), n)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func (w *world) workflowOf(t *testing.T, wf id.Workflow) workflow.State {
	t.Helper()
	state, _, err := w.Workflow(context.Background(), wf)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

var enrollProfile = node.Profile{ID: "metal-enroll", Version: 1}

func TestCreateWorkflowKeepsWhatItRuns(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t).equip(t)
	own := profile.Document{ID: "mine", Version: 1, Target: profile.TargetMetal, Steps: []profile.Step{
		{Use: "disk.wipe", On: profile.OnRamdisk}, {Use: "power.setPower", With: json.RawMessage(`{"action":"off"}`)},
	}}
	if _, err := w.CreateProfile(ctx, of(tenant.Root), tenant.Root, own); err != nil {
		t.Fatal(err)
	}
	n, wf := w.running(t, node.Profile{ID: "mine", Version: 1})
	state := w.workflowOf(t, wf)
	if !slices.Equal(state.Kinds, []string{"disk.wipe", "driver.invoke"}) || state.Node != n || state.Owner != "provision" {
		t.Fatalf("got %+v", state.Facts)
	}
	var kept profile.Document
	if err := json.Unmarshal(state.Document, &kept); err != nil || len(kept.Steps) != 2 {
		t.Fatalf("got %s, %v", state.Document, err)
	}
	// The version is in use now; the workflow is made once.
	own.Description = "other"
	if _, err := w.CreateProfile(ctx, of(tenant.Root), tenant.Root, own); fault.CodeOf(err) != fault.Conflict {
		t.Fatalf("a version in use was replaced: %v", err)
	}
	_, before, err := w.Workflow(ctx, wf)
	if err != nil {
		t.Fatal(err)
	}
	again, err := w.CreateWorkflow(ctx, system(), w.nodeOf(t, n), "provision")
	if err != nil || again.Version != before {
		t.Fatalf("got version %d after %d, %v", again.Version, before, err)
	}
}

// missing looks whether a profile has a step, which is said to miss what it needs.
type missing struct{ step string }

func (m missing) Check(_ context.Context, _ node.State, _ profile.Document, steps []profile.Resolved) error {
	for _, s := range steps {
		if s.ID == m.step {
			return fault.Invalid(fault.Issue{Path: "profile.steps." + s.ID, Message: "there is no image"})
		}
	}
	return nil
}

// What can't run, or installs nothing, is refused while the machine is ready: once it is deploying, only a wipe leads back.
func TestDeployRefusesWhatCannotRun(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t).equip(t)
	stray := profile.Document{ID: "stray", Version: 1, Target: profile.TargetMetal, Steps: []profile.Step{{Use: "a.b"}}}
	if _, err := w.CreateProfile(ctx, of(tenant.Root), tenant.Root, stray); err != nil {
		t.Fatal(err)
	}
	n := w.enrolled(t, machine(w.pool, "10.0.0.10")).State.ID
	early := node.Profile{ID: "nowhere", Version: 1}
	if _, err := w.Deploy(ctx, system(), n, early); fault.CodeOf(err) != fault.InvalidState {
		t.Fatalf("the state comes first: %v", err)
	}
	w.ready(t, n)
	for profileID, want := range map[string]fault.Code{
		"stray": fault.InvalidInput, "nowhere": fault.NotFound, "metal-rescue": fault.InvalidInput, "metal-unrescue-oob": fault.InvalidInput,
	} {
		if _, err := w.Deploy(ctx, system(), n, node.Profile{ID: profileID, Version: 1}); fault.CodeOf(err) != want {
			t.Errorf("%s: got %v", profileID, err)
		}
	}
	w.LookBefore(missing{"image"})
	if _, err := w.Deploy(ctx, system(), n, imageHost); fault.CodeOf(err) != fault.InvalidInput {
		t.Errorf("a step that misses something: %v", err)
	}
	if w.count(t, "node.provision.deploying") != 0 {
		t.Fatal("it left ready")
	}
	w.LookBefore(missing{"nothing"})
	if _, err := w.Deploy(ctx, system(), n, imageHost); err != nil {
		t.Fatal(err)
	}
}

func TestWorkflowsThatCannotBeCreated(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t).equip(t)
	for _, doc := range []profile.Document{
		{ID: "stray", Version: 1, Target: profile.TargetMetal, Steps: []profile.Step{{Use: "a.b"}, {Use: "power.setPower"}}},
		{ID: "adopt", Version: 1, Target: profile.TargetAdopt},
	} {
		if _, err := w.CreateProfile(ctx, of(tenant.Root), tenant.Root, doc); err != nil {
			t.Fatal(err)
		}
	}
	n := w.enrolled(t, machine(w.pool, "10.0.0.10", "b8:ce:f6:00:00:01")).State
	if _, err := w.CreateWorkflow(ctx, system(), n, ""); fault.CodeOf(err) != fault.Conflict {
		t.Fatalf("without an active workflow: %v", err)
	}
	for profileID, want := range map[string]fault.Code{
		"stray": fault.InvalidInput, "adopt": fault.InvalidInput, "nowhere": fault.NotFound,
	} {
		pin := node.Profile{ID: profileID, Version: 1}
		if err := w.CheckProfile(ctx, n, pin); fault.CodeOf(err) != want {
			t.Errorf("%s: got %v", profileID, err)
		}
		n.Workflow = &node.Workflow{ID: id.Of[id.Workflow](fresh()), Profile: pin, Run: 1}
		if _, err := w.CreateWorkflow(ctx, system(), n, ""); fault.CodeOf(err) != want {
			t.Errorf("%s: got %v", profileID, err)
		}
	}
	// What could not run is not in use.
	found, err := w.CreateProfile(ctx, of(tenant.Root), tenant.Root, draft("stray", "", false))
	if err != nil || found.State.Used {
		t.Fatalf("got %+v, %v", found.State, err)
	}
	n.Workflow, n.HardwareProfile = &node.Workflow{ID: id.Of[id.Workflow](fresh()), Profile: enrollProfile, Run: 1}, "even"
	if _, err := w.CreateWorkflow(ctx, system(), n, ""); fault.CodeOf(err) != fault.InvalidInput {
		t.Fatalf("with an unknown hardware profile: %v", err)
	}
}

func TestAbortOfANodeStopsItsWorkflow(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t).equip(t)
	n, wf := w.running(t, enrollProfile)
	call := of(tenant.Root)
	for range 2 { // the second is the same request again
		done, err := w.Abort(ctx, call, n, "wrong rack")
		if err != nil || done.State.Provision != node.Failed || done.State.FailedWorkflow != wf {
			t.Fatalf("got %+v, %v", done.State, err)
		}
	}
	if state := w.workflowOf(t, wf); state.Status != workflow.Cancelled || state.Reason != "wrong rack" {
		t.Fatalf("got %s, %q", state.Status, state.Reason)
	}
	_, before, _ := w.Node(ctx, n)
	if _, err := w.Fail(ctx, system(), n, wf, "", "the workflow was aborted"); err != nil {
		t.Fatal(err)
	}
	if _, after, _ := w.Node(ctx, n); after != before {
		t.Fatal("the node failed twice")
	}
}

func TestAbortOfAWorkflowFailsItsNodeOnce(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t).equip(t)
	n, wf := w.running(t, enrollProfile)
	done, err := w.AbortWorkflow(ctx, of(tenant.Root), wf, "wrong rack")
	if err != nil || done.State.Status != workflow.Cancelled {
		t.Fatalf("got %s, %v", done.State.Status, err)
	}
	if w.nodeOf(t, n).Provision != node.Enrolling {
		t.Fatal("the node does not wait for the workflow's end")
	}
	if _, err := w.Fail(ctx, system(), n, wf, "", "aborted"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Abort(ctx, of(tenant.Root), n, "again"); fault.CodeOf(err) != fault.InvalidState {
		t.Fatalf("got %v", err)
	}
}

func TestRetryGoesThroughTheNode(t *testing.T) {
	ctx := context.Background()
	for name, told := range map[string]bool{"after the node was told": true, "before the node was told": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).equip(t)
			n, wf := w.running(t, enrollProfile)
			state := w.fails(t, wf)
			if told {
				if _, err := w.Fail(ctx, system(), n, wf, fault.Code(state.Error.Code), state.Error.Message); err != nil {
					t.Fatal(err)
				}
			}
			call := of(tenant.Root)
			for range 2 { // the second is the same request again
				done, err := w.RetryWorkflow(ctx, call, wf, "verify")
				if err != nil || done.State.Run != 2 || done.State.Status != workflow.Running {
					t.Fatalf("got %+v, %v", done.State, err)
				}
			}
			now := w.nodeOf(t, n)
			if now.Provision != node.Enrolling || now.Workflow == nil || now.Workflow.ID != wf || now.Workflow.Run != 2 {
				t.Fatalf("got %s, %+v", now.Provision, now.Workflow)
			}
			if step := w.advance(t, wf).InFlight(); step == nil || step.ID != "verify" {
				t.Fatalf("got %+v", step)
			}
		})
	}
}

// A crash between the node's decision and the workflow's is finished by whoever looks next, from the step that was asked for.
func TestARetryCutShortIsContinued(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t).equip(t)
	n, wf := w.running(t, enrollProfile)
	w.fails(t, wf)
	if _, err := w.Fail(ctx, system(), n, wf, fault.DriverError, "no answer"); err != nil {
		t.Fatal(err)
	}
	meta, call := metaOf(tenant.Root), of(tenant.Root)
	meta.Command = call.Command
	moved, err := node.Decide(w.nodeOf(t, n), node.Retry{Workflow: wf, FromStep: "verify"})
	if err != nil {
		t.Fatal(err)
	}
	_, version, _ := w.Node(ctx, n)
	if _, err := w.log.Append(ctx, node.StreamOf(n), version, meta, moved[0], moved[1]); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		done, err := w.ContinueWorkflow(ctx, system(), wf, 2)
		if err != nil || done.State.Run != 2 {
			t.Fatalf("got %+v, %v", done.State, err)
		}
	}
	if step := w.advance(t, wf).InFlight(); step == nil || step.ID != "verify" {
		t.Fatalf("got %+v", step)
	}
	// The operator's own request, sent again, succeeds; another one is refused.
	if done, err := w.RetryWorkflow(ctx, call, wf, "verify"); err != nil || done.State.Run != 2 {
		t.Fatalf("got %+v, %v", done.State, err)
	}
	if _, err := w.RetryWorkflow(ctx, of(tenant.Root), wf, ""); fault.CodeOf(err) != fault.InvalidState {
		t.Fatalf("got %v", err)
	}
}

func TestRetriesThatAreRefusedLeaveTheNodeAlone(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t).equip(t)
	n, wf := w.running(t, enrollProfile)
	if _, err := w.RetryWorkflow(ctx, of(tenant.Root), wf, ""); fault.CodeOf(err) != fault.InvalidState {
		t.Fatalf("while it runs: %v", err)
	}
	w.fails(t, wf)
	if _, err := w.Fail(ctx, system(), n, wf, fault.DriverError, "no answer"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.RetryWorkflow(ctx, of(tenant.Root), wf, "nowhere"); fault.CodeOf(err) != fault.InvalidInput {
		t.Fatalf("from a step that is not there: %v", err)
	}
	if w.nodeOf(t, n).Provision != node.Failed {
		t.Fatal("a refused retry moved the node")
	}
	if _, err := w.Recover(ctx, of(tenant.Root), n); err != nil {
		t.Fatal(err)
	}
	if _, err := w.StartWorkflow(ctx, system(), n, enrollProfile); err != nil {
		t.Fatal(err)
	}
	if _, err := w.RetryWorkflow(ctx, of(tenant.Root), wf, ""); fault.CodeOf(err) != fault.Conflict {
		t.Fatalf("while another workflow is active: %v", err)
	}
}

func TestPauseAndResume(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t).equip(t)
	_, wf := w.running(t, enrollProfile)
	call := of(tenant.Root)
	seen := event.Version(1)
	call.IfMatch = &seen
	if _, err := w.PauseWorkflow(ctx, call, wf); fault.CodeOf(err) != fault.Conflict {
		t.Fatalf("on a version that has passed: %v", err)
	}
	if done, err := w.PauseWorkflow(ctx, of(tenant.Root), wf); err != nil || done.State.Status != workflow.Paused {
		t.Fatalf("got %v", err)
	}
	if done, err := w.ResumeWorkflow(ctx, of(tenant.Root), wf); err != nil || done.State.Status != workflow.Running {
		t.Fatalf("got %v", err)
	}
}

func TestWorkflowsOfOthersDoNotExist(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t).equip(t)
	_, wf := w.running(t, enrollProfile)
	stranger := of(w.newTenant(t))
	missing := id.Of[id.Workflow](fresh())
	verbs := map[string]func(id.Workflow) error{
		"abort":  func(wf id.Workflow) error { _, err := w.AbortWorkflow(ctx, stranger, wf, ""); return err },
		"pause":  func(wf id.Workflow) error { _, err := w.PauseWorkflow(ctx, stranger, wf); return err },
		"resume": func(wf id.Workflow) error { _, err := w.ResumeWorkflow(ctx, stranger, wf); return err },
		"retry":  func(wf id.Workflow) error { _, err := w.RetryWorkflow(ctx, stranger, wf, ""); return err },
	}
	for name, verb := range verbs {
		hidden, gone := verb(wf), verb(missing)
		if fault.CodeOf(hidden) != fault.NotFound || fault.CodeOf(gone) != fault.NotFound {
			t.Errorf("%s: got %v and %v", name, hidden, gone)
		}
		if hidden.Error() != "NOT_FOUND: there is no workflow "+wf.String() {
			t.Errorf("%s: a hidden workflow reads otherwise: %v", name, hidden)
		}
	}
	if _, err := w.AdvanceWorkflow(ctx, of(tenant.Root), wf, workflow.Tick{}); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("a person advances a workflow: %v", err)
	}
	if _, err := w.CreateWorkflow(ctx, of(tenant.Root), node.State{Workflow: &node.Workflow{ID: missing, Profile: enrollProfile}}, ""); err == nil {
		t.Error("a person creates a workflow")
	}
}

func TestOfTwoSettlementsOneWins(t *testing.T) {
	w := newWorld(t).equip(t)
	_, wf := w.running(t, enrollProfile)
	step := *w.workflowOf(t, wf).InFlight()
	replica := w.over(w.log)
	results := make(chan error, 2)
	for _, s := range []*commands.Service{w.Service, replica} {
		go func() {
			_, err := s.SettleWorkflow(context.Background(), system(), wf, workflow.Settle{
				Tick: workflow.Tick{Now: w.clock.read()}, Step: step.ID, Attempt: step.Attempt,
			})
			results <- err
		}()
	}
	codes := []string{string(fault.CodeOf(<-results)), string(fault.CodeOf(<-results))}
	slices.Sort(codes)
	if !slices.Equal(codes, []string{"", "CONFLICT"}) {
		t.Fatalf("got %v", codes)
	}
}
