package workflow_test

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/workflow"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func numbered(n int) uuid.UUID { return uuid.NewSHA1(uuid.NameSpaceOID, []byte(strconv.Itoa(n))) }

func agentCommand(n int) id.AgentCommand { return id.Of[id.AgentCommand](numbered(n)) }

func step(name string) workflow.StepSpec {
	return workflow.StepSpec{
		ID: name, Phase: workflow.Main, Action: "do." + name, RunsOn: workflow.ControlPlane, Timeout: 10 * time.Minute,
		OnFailure: "fail",
	}
}

func cleanup(name string) workflow.StepSpec {
	s := step(name)
	s.Phase = workflow.Cleanup
	return s
}

func agentStep(name string) workflow.StepSpec {
	s := step(name)
	s.RunsOn, s.Command = workflow.Ramdisk, "disk.wipe"
	return s
}

func create(steps ...workflow.StepSpec) workflow.Command {
	return workflow.Create{Facts: workflow.Created{
		Ref: workflow.Ref{
			Workflow: id.Of[id.Workflow](numbered(1)), Node: id.Of[id.Node](numbered(2)), Profile: "metal-release", Version: 1,
		},
		Tenant: id.Of[id.Tenant](numbered(3)), Owner: "provision", Document: json.RawMessage(`{"id":"metal-release"}`),
		StepSpecs: steps, At: noon,
	}}
}

// run is one workflow with the time at which it stands.
type run struct {
	t     *testing.T
	state workflow.State
	now   time.Time
	log   []workflow.Event
}

func begin(t *testing.T, steps ...workflow.StepSpec) *run {
	t.Helper()
	r := &run{t: t, now: noon}
	return r.do(create(steps...))
}

func (r *run) tick() workflow.Tick {
	return workflow.Tick{Now: r.now, Labels: map[string]string{"gpu.vendor": "nvidia"}}
}

// do applies a command that must succeed.
func (r *run) do(c workflow.Command) *run {
	r.t.Helper()
	events, err := workflow.Decide(r.state, c)
	if err != nil {
		r.t.Fatalf("%T: %v", c, err)
	}
	r.log = append(r.log, events...)
	r.state = workflow.Decider.Fold(r.state, events...)
	return r
}

func (r *run) advance() *run { r.t.Helper(); return r.do(workflow.Advance{Tick: r.tick()}) }

func (r *run) after(d time.Duration) *run {
	r.now = r.now.Add(d)
	return r
}

func (r *run) done(step string) *run {
	r.t.Helper()
	return r.do(workflow.Settle{
		Tick: r.tick(), Step: step, Attempt: r.state.Find(step).Attempt, Result: json.RawMessage(`{"of":"` + step + `"}`),
	})
}

func (r *run) failed(step string) *run {
	r.t.Helper()
	return r.do(workflow.Settle{
		Tick: r.tick(), Step: step, Attempt: r.state.Find(step).Attempt,
		Error: &workflow.Failure{Code: "DRIVER_ERROR", Message: "no carrier"},
	})
}

func (r *run) abort() *run {
	r.t.Helper()
	return r.do(workflow.Abort{Tick: r.tick(), Reason: "wrong rack"})
}

// is holds the workflow against a status and what became of each step, as a=succeeded.
func (r *run) is(status workflow.Status, steps ...string) *run {
	r.t.Helper()
	if r.state.Status != status {
		r.t.Fatalf("the workflow is %s, not %s: %v", r.state.Status, status, r.names())
	}
	for i, want := range steps {
		if got := r.state.Steps[i].ID + "=" + string(r.state.Steps[i].State); got != want {
			r.t.Fatalf("step %d: got %s, want %s: %v", i, got, want, r.names())
		}
	}
	return r
}

func (r *run) next(want workflow.Action) workflow.Due {
	r.t.Helper()
	due := workflow.Next(r.state, r.now)
	if due.Action != want {
		r.t.Fatalf("next is %s, not %s: %v", due.Action, want, r.names())
	}
	return due
}

func (r *run) names() []string {
	names := make([]string, len(r.log))
	for i, e := range r.log {
		names[i] = e.EventType()
	}
	return names
}
