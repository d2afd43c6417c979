package workflow_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/workflow"
)

func TestStepsRunOneByOne(t *testing.T) {
	r := begin(t, step("a"), agentStep("b"), cleanup("z"))
	r.next(workflow.Proceed)
	r.advance().is(workflow.Running, "a=running", "b=pending", "z=pending")
	if due := r.next(workflow.Run); due.Step.ID != "a" || !due.At.Equal(noon.Add(10*time.Minute)) {
		t.Fatalf("got %+v", due)
	}
	r.do(workflow.Wait{Step: "a", Attempt: 1}).is(workflow.Running, "a=waiting")
	r.next(workflow.Run) // it is not ready: it runs again
	r.done("a").is(workflow.Running, "a=succeeded", "b=running")
	if last := r.names()[len(r.log)-2:]; !slices.Equal(last, []string{"workflow.step.succeeded", "workflow.step.started"}) {
		t.Fatalf("settling and starting took %v", last)
	}
	r.next(workflow.Send)
	r.do(workflow.Wait{Step: "b", Attempt: 1, AgentCommand: agentCommand(1)})
	r.next(workflow.Look)
	r.done("b").is(workflow.Running, "a=succeeded", "b=succeeded", "z=running").done("z").is(workflow.Succeeded)
	r.next(workflow.Rest)
	if r.state.EndedAt.IsZero() || string(r.state.Find("b").Result) != `{"of":"b"}` {
		t.Fatalf("got %+v", r.state)
	}
}

func TestNothingToDo(t *testing.T) {
	r := begin(t).advance().is(workflow.Succeeded)
	if !slices.Equal(r.names(), []string{"workflow.created", "workflow.started", "workflow.succeeded"}) {
		t.Fatalf("got %v", r.names())
	}
}

func TestWhen(t *testing.T) {
	gpu, none, blank := step("gpu"), step("none"), step("blank")
	gpu.When, none.When, blank.When = "gpu.vendor=nvidia", "gpu.vendor!=nvidia", " "
	begin(t, none, gpu, blank).advance().is(workflow.Running, "none=skipped", "gpu=running").done("gpu").
		is(workflow.Succeeded, "none=skipped", "gpu=succeeded", "blank=skipped")
}

func TestAFailureCancelsTheRestOfMain(t *testing.T) {
	second, reset := step("b"), step("reset")
	second.OnFailure, second.OnFailureStep = "fail", "reset"
	reset.Phase, reset.ArmedBy = workflow.OnFailure, "b"
	other := step("other")
	other.Phase, other.ArmedBy = workflow.OnFailure, "a"
	own, unborn := cleanup("own"), cleanup("unborn")
	own.ArmedBy, unborn.ArmedBy = "b", "c"
	r := begin(t, step("a"), second, step("c"), other, reset, cleanup("z"), own, unborn).advance().done("a").failed("b")
	r.is(workflow.Failing, "a=succeeded", "b=failed", "c=cancelled", "other=skipped", "reset=running", "z=pending")
	// Neither a failing on-failure step nor a failing cleanup stops the rest.
	r.failed("reset").failed("z").
		is(workflow.Failing, "a=succeeded", "b=failed", "c=cancelled", "other=skipped", "reset=failed", "z=failed", "own=running")
	r.done("own").is(workflow.Failed)
	if s := r.state.Find("unborn"); s.State != workflow.StepSkipped {
		t.Fatalf("a cleanup whose step never started is %s", s.State)
	}
	want := &workflow.Failure{Code: "DRIVER_ERROR", Message: "b (do.b): no carrier"}
	if diff := cmp.Diff(want, r.state.Error); diff != "" {
		t.Fatal(diff)
	}
	end := r.log[len(r.log)-1].(workflow.Ended)
	if end.Owner != "provision" || !cmp.Equal(end.Error, want) {
		t.Fatalf("got %+v", end)
	}
}

func TestPolicies(t *testing.T) {
	goOn := step("a")
	goOn.OnFailure = "continue"
	r := begin(t, goOn, step("b")).advance().failed("a").is(workflow.Running, "a=failed", "b=running").done("b")
	if r.is(workflow.Succeeded); r.state.Error != nil {
		t.Fatalf("got %+v", r.state.Error)
	}
	rescue := step("a")
	rescue.OnFailure = "rescue"
	r = begin(t, rescue, step("b")).advance().failed("a").is(workflow.Failed, "a=failed", "b=cancelled")
	if !r.state.Error.Rescue || r.state.Find("a").Error.Rescue {
		t.Fatalf("got %+v", r.state.Error)
	}
}

func TestRetriesPauseWithJitter(t *testing.T) {
	a := agentStep("a")
	a.Retries, a.RetryDelay = 2, time.Minute
	r := begin(t, a).advance().do(workflow.Wait{Step: "a", Attempt: 1, AgentCommand: agentCommand(1)})
	first := r.state.Key(*r.state.Find("a"))
	r.failed("a").is(workflow.Running, "a=pending")
	if due := r.next(workflow.Sleep); !due.At.Equal(noon.Add(time.Minute)) {
		t.Fatalf("got %+v", due)
	}
	if n := len(r.log); len(r.advance().log) != n {
		t.Fatal("an attempt began before its time")
	}
	r.after(time.Minute).advance().is(workflow.Running, "a=running")
	if st := r.state.Find("a"); st.Attempt != 2 || !st.Deadline.Equal(r.now.Add(a.Timeout)) || !id.IsZero(st.AgentCommand) {
		t.Fatalf("got %+v", st)
	}
	if second := r.state.Key(*r.state.Find("a")); second != first+"#2" {
		t.Fatalf("got %s after %s", second, first)
	}
	r.next(workflow.Send) // of the new attempt: nothing of the first one is left
	r.do(workflow.Settle{Tick: workflow.Tick{Now: r.now, Jitter: 1}, Step: "a", Attempt: 2, Error: &workflow.Failure{Code: "TIMEOUT"}})
	if due := r.next(workflow.Sleep); !due.At.Equal(r.now.Add(90 * time.Second)) {
		t.Fatalf("got %+v", due)
	}
	r.after(2*time.Minute).advance().failed("a").is(workflow.Failed, "a=failed")
	if _, err := workflow.Decide(r.state, workflow.Settle{Tick: r.tick(), Step: "a", Attempt: 1}); fault.CodeOf(err) != fault.Conflict {
		t.Fatalf("a late result of the first attempt: %v", err)
	}
}

func TestDeadlines(t *testing.T) {
	back := agentStep("b")
	back.Rejoin = true
	r := begin(t, step("a"), back).advance().after(10*time.Minute - 1)
	r.next(workflow.Run)
	r.after(1).next(workflow.Proceed)
	r.advance().is(workflow.Failed, "a=failed", "b=cancelled")
	if r.state.Error.Code != "TIMEOUT" {
		t.Fatalf("got %+v", r.state.Error)
	}
	r = begin(t, back).advance()
	if _, err := workflow.Decide(r.state, workflow.Wait{Step: "b", Attempt: 1, AgentCommand: agentCommand(1)}); err == nil {
		t.Fatal("waits for a rejoin without the boot that it must differ from")
	}
	r.do(workflow.Wait{Step: "b", Attempt: 1, AgentCommand: agentCommand(1), Before: &workflow.Boot{BootID: "x", Role: "ramdisk"}})
	r.failed("b").is(workflow.Running, "b=waiting") // whatever the command itself reported
	r.after(time.Hour).advance().is(workflow.Failed)
	if r.state.Error.Code != "REJOIN_TIMEOUT" {
		t.Fatalf("got %+v", r.state.Error)
	}
}

func TestPause(t *testing.T) {
	a := step("a")
	a.Retries, a.RetryDelay = 1, time.Second
	r := begin(t, a, step("b"), cleanup("z")).advance().do(workflow.Pause{}).is(workflow.Paused, "a=running")
	r.next(workflow.Run) // the step in flight finishes
	r.failed("a").is(workflow.Paused, "a=pending").after(time.Hour).next(workflow.Rest)
	r.advance().is(workflow.Paused, "a=pending").do(workflow.Resume{})
	r.next(workflow.Proceed)
	r.advance().is(workflow.Running, "a=running").do(workflow.Pause{}).failed("a").is(workflow.Paused, "a=failed", "b=pending")
	r.do(workflow.Resume{}).advance().is(workflow.Failing, "a=failed", "b=cancelled", "z=running")

	r = begin(t, step("a"), cleanup("z")).advance().do(workflow.Pause{}).after(time.Hour)
	r.next(workflow.Proceed) // a deadline holds for a paused workflow too
	r.advance().is(workflow.Paused, "a=failed").next(workflow.Rest)
}

func TestAbort(t *testing.T) {
	own := cleanup("own")
	own.ArmedBy = "b"
	steps := []workflow.StepSpec{step("a"), step("b"), cleanup("z"), own}
	tests := map[string]struct {
		until func(*run) *run
		then  []string // how the steps stand right after the abort
		ends  []string // what is left to settle
	}{
		"in the first step": {func(r *run) *run { return r },
			[]string{"a=cancelled", "b=cancelled", "z=running", "own=pending"}, []string{"z"}},
		"in the last step": {func(r *run) *run { return r.done("a") },
			[]string{"a=succeeded", "b=cancelled", "z=running", "own=pending"}, []string{"z", "own"}},
		"in cleanup after success": {func(r *run) *run { return r.done("a").done("b") },
			[]string{"a=succeeded", "b=succeeded", "z=running", "own=pending"}, []string{"z", "own"}},
		"in cleanup after a failure": {func(r *run) *run { return r.failed("a") },
			[]string{"a=failed", "b=cancelled", "z=running", "own=pending"}, []string{"z"}},
		"while paused": {func(r *run) *run { return r.do(workflow.Pause{}).done("a") },
			[]string{"a=succeeded", "b=cancelled", "z=running", "own=pending"}, []string{"z"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := tt.until(begin(t, steps...).advance())
			r.abort().is(workflow.Cancelling, tt.then...)
			n := len(r.log)
			if r.abort(); len(r.log) != n {
				t.Fatal("a second abort changed something")
			}
			if _, err := workflow.Decide(r.state, workflow.Settle{Tick: r.tick(), Step: "b", Attempt: 1}); fault.CodeOf(err) != fault.Conflict {
				t.Fatalf("a result after the abort: %v", err)
			}
			for _, s := range tt.ends {
				r.done(s)
			}
			r.is(workflow.Cancelled).abort().is(workflow.Cancelled)
			if r.state.Reason != "wrong rack" {
				t.Fatalf("got %q", r.state.Reason)
			}
		})
	}
}

// Of an abort and the result of the last step, whichever is recorded first wins.
func TestAbortAndTheLastStepInBothOrders(t *testing.T) {
	begin(t, step("a")).advance().abort().is(workflow.Cancelled, "a=cancelled")
	r := begin(t, step("a")).advance().done("a").is(workflow.Succeeded)
	if _, err := workflow.Decide(r.state, workflow.Abort{Tick: r.tick()}); fault.CodeOf(err) != fault.InvalidState {
		t.Fatalf("got %v", err)
	}
}

func TestAbortAtOnce(t *testing.T) {
	r := begin(t, step("a"), cleanup("z")).abort().is(workflow.Cancelled, "a=cancelled", "z=cancelled")
	if len(r.log) != 2 {
		t.Fatalf("got %v", r.names())
	}
	r = begin(t, step("a"), cleanup("z")).advance().failed("a").done("z").is(workflow.Failed).abort()
	r.is(workflow.Cancelled, "a=failed", "z=succeeded")
}

func TestRetry(t *testing.T) {
	c := step("c")
	c.OnFailureStep = "reset"
	reset := step("reset")
	reset.Phase, reset.ArmedBy = workflow.OnFailure, "c"
	r := begin(t, step("a"), step("b"), c, step("d"), reset, cleanup("z")).advance().
		done("a").done("b").failed("c").done("reset").done("z").is(workflow.Failed)
	r.do(workflow.Retry{Run: 2}).
		is(workflow.Running, "a=succeeded", "b=succeeded", "c=pending", "d=pending", "reset=pending", "z=pending")
	n := len(r.log)
	if r.do(workflow.Retry{Run: 2}); len(r.log) != n || r.state.Run != 2 || r.state.Error != nil {
		t.Fatalf("the same run again: %v", r.names())
	}
	r.advance()
	attempts := map[string]int{}
	for _, st := range r.state.Steps {
		attempts[st.ID] = st.Attempt
	}
	if diff := cmp.Diff(map[string]int{"a": 1, "b": 1, "c": 2, "d": 1, "reset": 2, "z": 2}, attempts); diff != "" {
		t.Fatal(diff)
	}
	r.done("c").failed("d").is(workflow.Failing, "a=succeeded", "b=succeeded", "c=succeeded", "d=failed", "reset=skipped", "z=running")
	r.done("z").is(workflow.Failed).do(workflow.Retry{FromStep: "b"}).advance().is(workflow.Running, "a=succeeded", "b=running")
	if r.state.Run != 3 {
		t.Fatalf("run %d", r.state.Run)
	}
}

// Cleanup may have switched the machine off: what a step needs is brought up again, and nothing else in between is repeated.
func TestARetryBringsUpWhatItsStepsNeed(t *testing.T) {
	wipe := agentStep("wipe")
	wipe.Needs = "ramdisk"
	r := begin(t, step("ramdisk"), step("burnin"), wipe, step("off"), cleanup("z")).advance().
		done("ramdisk").done("burnin").failed("wipe").done("z").is(workflow.Failed)
	r.do(workflow.Retry{}).advance().is(workflow.Running, "ramdisk=running", "burnin=succeeded", "wipe=pending", "off=pending")
	r.done("ramdisk").is(workflow.Running, "ramdisk=succeeded", "burnin=succeeded", "wipe=running").done("wipe").failed("off").done("z")
	r.do(workflow.Retry{}).advance().is(workflow.Running, "ramdisk=succeeded", "burnin=succeeded", "wipe=succeeded", "off=running")
}

func TestARetryHasItsRetriesAgain(t *testing.T) {
	a := step("a")
	a.Retries = 1
	r := begin(t, a).advance().failed("a").is(workflow.Running, "a=running").failed("a").is(workflow.Failed)
	r.do(workflow.Retry{}).advance().failed("a").is(workflow.Running, "a=running").failed("a").is(workflow.Failed)
	if got := r.state.Find("a").Attempt; got != 4 {
		t.Fatalf("attempt %d", got)
	}
}

func TestRefusals(t *testing.T) {
	running := func(t *testing.T) *run { return begin(t, step("a"), cleanup("z")).advance() }
	failed := func(t *testing.T) *run { return running(t).failed("a").done("z") }
	early := func(t *testing.T) *run { return begin(t, step("a"), step("b")).advance().failed("a") }
	tests := map[string]struct {
		given func(*testing.T) *run
		when  workflow.Command
		err   fault.Code
	}{
		"a workflow that is not there": {func(t *testing.T) *run { return &run{t: t} }, workflow.Pause{}, fault.NotFound},
		"pause while pending":          {func(t *testing.T) *run { return begin(t, step("a")) }, workflow.Pause{}, fault.InvalidState},
		"pause while paused":           {func(t *testing.T) *run { return running(t).do(workflow.Pause{}) }, workflow.Pause{}, fault.InvalidState},
		"pause in cleanup":             {func(t *testing.T) *run { return running(t).done("a") }, workflow.Pause{}, fault.InvalidState},
		"pause while failing":          {func(t *testing.T) *run { return running(t).failed("a") }, workflow.Pause{}, fault.InvalidState},
		"resume while running":         {running, workflow.Resume{}, fault.InvalidState},
		"retry while running":          {running, workflow.Retry{Run: 2}, fault.InvalidState},
		"retry from nowhere":           {failed, workflow.Retry{FromStep: "x"}, fault.InvalidInput},
		"retry from cleanup":           {failed, workflow.Retry{FromStep: "z"}, fault.InvalidInput},
		"retry past what failed":       {early, workflow.Retry{FromStep: "b"}, fault.InvalidInput},
		"retry of an older run":        {func(t *testing.T) *run { return failed(t).do(workflow.Retry{Run: 3}) }, workflow.Retry{Run: 2}, fault.Conflict},
		"a result of an unknown step":  {running, workflow.Settle{Step: "x", Attempt: 1}, fault.Conflict},
		"a result of a later attempt":  {running, workflow.Settle{Step: "a", Attempt: 2}, fault.Conflict},
		"waiting for a settled step":   {failed, workflow.Wait{Step: "a", Attempt: 1}, fault.Conflict},
		"a long reason":                {running, workflow.Abort{Reason: strings.Repeat("ü", 513)}, fault.InvalidInput},
		"a reason with an escape":      {running, workflow.Abort{Reason: "a\x1bb"}, fault.InvalidInput},
		"another workflow of the id":   {running, workflow.Create{Facts: workflow.Created{Ref: workflow.Ref{Profile: "x"}}}, fault.Conflict},
		"a step twice":                 {func(t *testing.T) *run { return &run{t: t} }, create(step("a"), cleanup("a")), fault.InvalidConfig},
		"a step without a timeout":     {func(t *testing.T) *run { return &run{t: t} }, create(workflow.StepSpec{ID: "a", Phase: workflow.Main}), fault.InvalidConfig},
		"too many steps":               {func(t *testing.T) *run { return &run{t: t} }, create(make([]workflow.StepSpec, 513)...), fault.InvalidConfig},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			events, err := workflow.Decide(tt.given(t).state, tt.when)
			if fault.CodeOf(err) != tt.err || len(events) > 0 {
				t.Fatalf("got %v and error %v, want %q", events, err, tt.err)
			}
		})
	}
}

func TestIllegalTellsWhatIsLegal(t *testing.T) {
	_, err := workflow.Decide(begin(t, step("a")).advance().state, workflow.Resume{})
	var f *fault.Error
	if !errors.As(err, &f) || f.Details["state"] != "running" || !cmp.Equal(f.Details["legal"], []string{"pause", "abort"}) {
		t.Fatalf("got %#v", err)
	}
}

func TestTheSameWorkflowIsCreatedOnce(t *testing.T) {
	r := begin(t, step("a"))
	if r.do(create(step("a"))); len(r.log) != 1 {
		t.Fatalf("got %v", r.names())
	}
}

func TestWhatAStepLeavesIsBounded(t *testing.T) {
	r := begin(t, step("a")).advance()
	r.do(workflow.Settle{Tick: r.tick(), Step: "a", Attempt: 1, Error: &workflow.Failure{
		Code: "made up", Message: "x\xff" + strings.Repeat("é", 1<<20), Details: json.RawMessage("{"),
	}})
	got := r.state.Find("a").Error
	if len(got.Message) > workflow.MaxError || !utf8.ValidString(got.Message) || !strings.HasSuffix(got.Message, "[cut]") {
		t.Fatalf("%d bytes", len(got.Message))
	}
	if got.Code != "INTERNAL" || got.Details != nil || len(r.state.Error.Message) > workflow.MaxError {
		t.Fatalf("got %s, %s", got.Code, got.Details)
	}
	for _, result := range []string{`"` + strings.Repeat("x", workflow.MaxResult) + `"`, "{"} {
		r = begin(t, step("a")).advance()
		r.do(workflow.Settle{Tick: r.tick(), Step: "a", Attempt: 1, Result: json.RawMessage(result)}).is(workflow.Failed, "a=failed")
		if r.state.Error.Code != "INVALID_CONFIG" {
			t.Fatalf("got %+v", r.state.Error)
		}
	}
}

func TestManyStepsTakeSeveralAppends(t *testing.T) {
	var steps []workflow.StepSpec
	for i := range workflow.MaxSteps {
		steps = append(steps, step("s"+strings.Repeat("x", i)))
	}
	r := begin(t, steps...).advance()
	appends := 0
	for n := len(r.log); r.state.Status != workflow.Cancelled; n = len(r.log) {
		if r.state.Status == workflow.Running {
			r.abort()
		} else {
			r.next(workflow.Proceed)
			r.advance()
		}
		if grown := len(r.log) - n; grown > 199 {
			t.Fatalf("%d events in one append", grown)
		}
		if appends++; appends > 10 {
			t.Fatal("it never ends")
		}
	}
}

// A failure that no retry can help spends the retries: a controller locks an account after a few rejected logins.
func TestAFinalFailureIsNotRetried(t *testing.T) {
	a := agentStep("a")
	a.Retries = 3
	r := begin(t, a).advance().do(workflow.Wait{Step: "a", Attempt: 1, AgentCommand: agentCommand(1)})
	r.do(workflow.Settle{Tick: r.tick(), Step: "a", Attempt: 1, Error: &workflow.Failure{
		Code: "DRIVER_ERROR", Message: "the login was rejected", Final: true,
	}}).is(workflow.Failed, "a=failed")
	if !r.state.Error.Final {
		t.Errorf("got %+v", r.state.Error)
	}
}
