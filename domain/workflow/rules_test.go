package workflow_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/workflow"
)

// history drives one workflow with random commands and keeps, beside the state, what only the events say.
type history struct {
	state    workflow.State
	now      time.Time
	events   int
	inFlight string
	aborted  bool
	begun    map[string]int // attempts of each step in this run
	attempts map[string]bool
	verbs    int // of operators that changed something
}

func TestRandomCommandsKeepTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		for range rapid.IntRange(10, 120).Draw(t, "commands") {
			h.apply(t, h.draw(t))
		}
		h.checkBound(t)
		h.finish(t)
	})
}

func newHistory(t *rapid.T) *history {
	h := &history{now: noon, begun: map[string]int{}, attempts: map[string]bool{}}
	var steps []workflow.StepSpec
	for i := range rapid.IntRange(0, 5).Draw(t, "main") {
		s := drawStep(t, fmt.Sprintf("m%d", i), workflow.Main)
		if i > 0 && rapid.Bool().Draw(t, "needs") {
			s.Needs = fmt.Sprintf("m%d", rapid.IntRange(0, i-1).Draw(t, "needed"))
		}
		steps = append(steps, s)
	}
	for i := range len(steps) {
		if rapid.IntRange(0, 2).Draw(t, "arms") == 0 {
			name := fmt.Sprintf("f%d", i)
			steps[i].OnFailure, steps[i].OnFailureStep = "fail", name
			s := drawStep(t, name, workflow.OnFailure)
			s.ArmedBy = steps[i].ID
			steps = append(steps, s)
		}
	}
	mains := len(steps)
	for i := range rapid.IntRange(0, 3).Draw(t, "cleanup") {
		s := drawStep(t, fmt.Sprintf("c%d", i), workflow.Cleanup)
		if mains > 0 && rapid.Bool().Draw(t, "own") {
			s.ArmedBy = steps[rapid.IntRange(0, mains-1).Draw(t, "armer")].ID
		}
		steps = append(steps, s)
	}
	h.apply(t, create(steps...))
	return h
}

func drawStep(t *rapid.T, name string, phase workflow.Phase) workflow.StepSpec {
	s := step(name)
	if rapid.Bool().Draw(t, "agent") {
		s = agentStep(name)
		s.Rejoin = rapid.Bool().Draw(t, "rejoin")
	}
	s.Phase = phase
	s.Retries = rapid.IntRange(0, 2).Draw(t, "retries")
	s.RetryDelay = time.Duration(rapid.IntRange(0, 1).Draw(t, "delay")) * time.Minute
	s.OnFailure = rapid.SampledFrom([]string{"fail", "fail", "continue", "rescue"}).Draw(t, "policy")
	s.When = rapid.SampledFrom([]string{"", "", "gpu", "!gpu"}).Draw(t, "when")
	return s
}

func (h *history) tick(t *rapid.T) workflow.Tick {
	labels := map[string]string{}
	if rapid.Bool().Draw(t, "gpu") {
		labels["gpu"] = "true"
	}
	return workflow.Tick{Now: h.now, Labels: labels, Jitter: rapid.Float64Range(0, 1).Draw(t, "jitter")}
}

func (h *history) draw(t *rapid.T) workflow.Command {
	h.now = h.now.Add(time.Duration(rapid.IntRange(0, 4).Draw(t, "minutes")) * time.Minute)
	tick := h.tick(t)
	name, attempt := "m0", 1
	if st := h.state.InFlight(); st != nil && rapid.IntRange(0, 9).Draw(t, "stale") > 0 {
		name, attempt = st.ID, st.Attempt
	}
	failure := &workflow.Failure{Code: "DRIVER_ERROR", Message: "no answer"}
	return rapid.SampledFrom([]workflow.Command{
		workflow.Advance{Tick: tick}, workflow.Advance{Tick: tick}, workflow.Advance{Tick: tick},
		workflow.Wait{Step: name, Attempt: attempt}, workflow.Wait{Step: name, Attempt: attempt, Before: &workflow.Boot{BootID: "a"}},
		workflow.Wait{Step: name, Attempt: attempt, AgentCommand: agentCommand(1), Before: &workflow.Boot{BootID: "b"}},
		workflow.Settle{Tick: tick, Step: name, Attempt: attempt, Result: json.RawMessage(`{}`)},
		workflow.Settle{Tick: tick, Step: name, Attempt: attempt, Result: json.RawMessage(`{}`)},
		workflow.Settle{Tick: tick, Step: name, Attempt: attempt, Error: failure},
		workflow.Settle{Tick: tick, Step: name, Attempt: attempt, Error: failure},
		workflow.Abort{Tick: tick, Reason: "stop"}, workflow.Pause{}, workflow.Resume{}, workflow.Resume{},
		workflow.Retry{}, workflow.Retry{FromStep: name}, workflow.Retry{Run: h.state.Run},
	}).Draw(t, "command")
}

// apply decides and holds what follows against the rules.
func (h *history) apply(t *rapid.T, c workflow.Command) {
	events, err := workflow.Decide(h.state, c)
	if err != nil && len(events) > 0 {
		t.Fatalf("%T: both events and an error", c)
	}
	h.checkLegal(t, c, err)
	for _, e := range events {
		before := indented(t, h.state)
		next := workflow.Evolve(h.state, e)
		if after := indented(t, h.state); after != before {
			t.Fatalf("folding %s changed the state it was given:\n%s", e.EventType(), cmp.Diff(before, after))
		}
		h.checkEvent(t, e)
		h.state = next
		h.checkState(t)
	}
	h.events += len(events)
	switch c.(type) {
	case workflow.Advance, workflow.Settle:
		if next := workflow.Next(h.state, h.now).Action; err == nil && next == workflow.Proceed && len(events) < 100 {
			t.Fatalf("%T left something that was due", c)
		}
	case workflow.Abort, workflow.Pause, workflow.Resume, workflow.Retry:
		if len(events) > 0 {
			h.verbs++
		}
	}
}

// checkLegal holds a verb against the table.
func (h *history) checkLegal(t *rapid.T, c workflow.Command, err error) {
	var verb workflow.Verb
	switch c := c.(type) {
	case workflow.Abort:
		verb = workflow.VerbAbort
	case workflow.Pause:
		verb = workflow.VerbPause
		if fault.CodeOf(err) == fault.InvalidState && h.mainSettled() {
			return
		}
	case workflow.Resume:
		verb = workflow.VerbResume
	case workflow.Retry:
		verb = workflow.VerbRetry
		if c.Run == h.state.Run {
			return
		}
	default:
		return
	}
	legal := slices.Contains(workflow.InfoOf(h.state.Status).Legal, verb)
	if refused := fault.CodeOf(err) == fault.InvalidState; refused == legal {
		t.Fatalf("%s while %s: %v", verb, h.state.Status, err)
	}
}

func (h *history) mainSettled() bool {
	return !slices.ContainsFunc(h.state.Steps, func(s workflow.Step) bool {
		return s.Phase == workflow.Main && !s.State.Settled()
	})
}

// checkEvent looks at an event before it is folded.
func (h *history) checkEvent(t *rapid.T, e workflow.Event) {
	switch e := e.(type) {
	case workflow.StepStarted:
		h.started(t, e)
	case workflow.StepDone:
		h.left(t, e.Step, e.Attempt)
	case workflow.StepFaulted:
		h.left(t, e.Step, e.Attempt)
	case workflow.StepRetries:
		h.left(t, e.Step, e.Attempt-1)
	case workflow.StepLeft:
		if h.inFlight == e.Step {
			h.inFlight = ""
		}
	case workflow.AbortAsked:
		h.aborted = true
	case workflow.RetriedRun:
		h.begun = map[string]int{}
	case workflow.Ended:
		h.checkEnd(t, e)
	}
}

func (h *history) started(t *rapid.T, e workflow.StepStarted) {
	st := h.state.Find(e.Step)
	if h.inFlight != "" {
		t.Fatalf("%s starts while %s is in flight", e.Step, h.inFlight)
	}
	if h.state.Status == workflow.Paused {
		t.Fatalf("%s starts in a paused workflow", e.Step)
	}
	if h.aborted && st.Phase != workflow.Cleanup {
		t.Fatalf("P7: %s starts after an abort", e.Step)
	}
	for _, other := range h.state.Steps {
		if phaseOrder(other.Phase) < phaseOrder(st.Phase) && !other.State.Settled() {
			t.Fatalf("%s starts while %s of an earlier phase is %s", e.Step, other.ID, other.State)
		}
	}
	key := fmt.Sprintf("%s#%d", e.Step, e.Attempt)
	if h.attempts[key] {
		t.Fatalf("W15: attempt %s begins twice", key)
	}
	h.attempts[key], h.inFlight = true, e.Step
	if h.begun[e.Step]++; h.begun[e.Step] > st.Retries+1 {
		t.Fatalf("%s begins %d times in one run", e.Step, h.begun[e.Step])
	}
}

func phaseOrder(p workflow.Phase) int {
	return slices.Index([]workflow.Phase{workflow.Main, workflow.OnFailure, workflow.Cleanup}, p)
}

func (h *history) left(t *rapid.T, step string, attempt int) {
	if h.inFlight != step || h.state.Find(step).Attempt != attempt {
		t.Fatalf("attempt %d of %s is settled; in flight is %q", attempt, step, h.inFlight)
	}
	h.inFlight = ""
}

// checkEnd: every started step is settled, every cleanup step that applies has run, an abort ends cancelled.
func (h *history) checkEnd(t *rapid.T, e workflow.Ended) {
	if h.inFlight != "" {
		t.Fatalf("it ended with %s in flight", h.inFlight)
	}
	if h.aborted && e.Status != workflow.Cancelled {
		t.Fatalf("P7: aborted and ended %s", e.Status)
	}
	if h.state.Status == workflow.Pending || h.state.Status == workflow.Failed {
		return // cancelled at once
	}
	for _, st := range h.state.Steps {
		if !st.State.Settled() {
			t.Fatalf("it ended with %s %s", st.ID, st.State)
		}
		ran := h.begun[st.ID] > 0
		armer := h.state.Find(st.ArmedBy)
		armed := armer == nil || armer.Started
		if st.Phase == workflow.Cleanup && armed && !ran && st.When == "" {
			t.Fatalf("P7: cleanup %s did not run", st.ID)
		}
		if st.Phase == workflow.Cleanup && !armed && ran {
			t.Fatalf("cleanup %s ran though %s never started", st.ID, armer.ID)
		}
		if st.Phase == workflow.OnFailure && ran && armer.State != workflow.StepFailed {
			t.Fatalf("on-failure %s ran though %s is %s", st.ID, armer.ID, armer.State)
		}
	}
	failed := slices.ContainsFunc(h.state.Steps, func(st workflow.Step) bool {
		return st.Phase == workflow.Main && st.State == workflow.StepFailed && st.StepSpec.OnFailure != "continue" && h.begun[st.ID] > 0
	})
	if e.Status == workflow.Succeeded && failed || e.Status == workflow.Failed && (!failed || e.Error == nil) {
		t.Fatalf("it ended %s with error %v", e.Status, e.Error)
	}
}

// checkState holds after every event.
func (h *history) checkState(t *rapid.T) {
	flying := 0
	for _, st := range h.state.Steps {
		if st.State == workflow.StepRunning || st.State == workflow.StepWaiting {
			flying++
		}
	}
	if flying > 1 {
		t.Fatalf("%d steps in flight", flying)
	}
	due := workflow.Next(h.state, h.now)
	if due.Action == workflow.Rest && h.state.Status.Active() && h.state.Status != workflow.Paused {
		t.Fatalf("it rests while %s", h.state.Status)
	}
	if !h.state.Status.Active() && due.Action != workflow.Rest {
		t.Fatalf("%s is due though it is %s", due.Action, h.state.Status)
	}
	if due.Action == workflow.Sleep && !due.At.After(h.now) {
		t.Fatal("it sleeps until a time that has passed")
	}
	var again workflow.State
	if err := json.Unmarshal([]byte(indented(t, h.state)), &again); err != nil || indented(t, again) != indented(t, h.state) {
		t.Fatalf("the state does not survive JSON: %v", err)
	}
}

// checkBound: events are written on change only.
func (h *history) checkBound(t *rapid.T) {
	runs, most := h.state.Run, 3
	for _, st := range h.state.Steps {
		most += 5 * (st.Retries + 1) // started, waiting for up to three reasons, settled
	}
	if bound := runs*most + 2*h.verbs; h.events > bound {
		t.Fatalf("%d events in %d runs; at most %d", h.events, runs, bound)
	}
}

// finish: whatever happened, an engine that does what Next says brings the workflow to an end.
func (h *history) finish(t *rapid.T) {
	if h.state.Status == workflow.Paused {
		h.apply(t, workflow.Resume{})
	}
	for range 1000 {
		due := workflow.Next(h.state, h.now)
		switch due.Action {
		case workflow.Rest:
			return
		case workflow.Proceed:
			h.apply(t, workflow.Advance{Tick: h.tick(t)})
		case workflow.Sleep:
			h.now = due.At
		case workflow.Send:
			h.apply(t, workflow.Wait{
				Step: due.Step.ID, Attempt: due.Step.Attempt, AgentCommand: agentCommand(2), Before: &workflow.Boot{},
			})
		case workflow.Look:
			h.now = due.At // nobody answers
		case workflow.Run:
			h.apply(t, workflow.Settle{Tick: h.tick(t), Step: due.Step.ID, Attempt: due.Step.Attempt})
		}
	}
	t.Fatalf("it never ends: %s", indented(t, h.state))
}

func indented(t *rapid.T, s workflow.State) string {
	text, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
