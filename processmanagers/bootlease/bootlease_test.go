package bootlease_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/agentcommand"
	lease "github.com/better-compute/metal/domain/bootlease"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/processmanagers/bootlease"
	"github.com/better-compute/metal/processmanagers/enginetest"
	"github.com/better-compute/metal/processmanagers/steps"
)

// world is a machine whose workflow sets a boot entry and then waits for an agent that says nothing.
type world struct {
	*enginetest.World
	t       *testing.T
	manager *bootlease.Manager
	spent   bool
	silent  bool // the site's agent too
	extra   func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	doc, err := profile.Parse([]byte(`{"id": "p", "version": 1, "target": "metal", "steps": [
		{"use": "boot.entry", "on": "site", "id": "entry"}, {"use": "inspect.hardware", "on": "ramdisk", "id": "wait", "timeout": "1h"}]}`))
	fatal(t, err)
	w := &world{t: t}
	w.World = enginetest.New(t, enginetest.Options{
		Profiles: []profile.Document{doc}, Config: steps.Config{Kernel: "vmlinuz", Initrd: "initramfs"},
		Answer: func(_ *enginetest.World, c agentcommand.State) enginetest.Answer {
			return enginetest.Answer{Silent: c.Kind == agentcommand.InspectHardware || w.silent, Result: map[string]any{}}
		},
	}, node.Deploying, doc.ID)
	w.manager = bootlease.New(w.Outside, w, w.Now, nil)
	return w
}

// WorkflowsAt implements bootlease.Sites.
func (w *world) WorkflowsAt(context.Context, id.Site, time.Time) ([]id.Workflow, error) {
	return []id.Workflow{w.Workflow().Workflow}, nil
}

// TokenSpent implements bootlease.Sites. What else happens meanwhile happens here.
func (w *world) TokenSpent(context.Context, string) (bool, error) {
	if w.extra != nil {
		w.extra()
	}
	return w.spent, nil
}

func fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func agentOf(n int) id.Agent {
	return id.Of[id.Agent](uuid.NewSHA1(uuid.Nil, []byte("agent "+strconv.Itoa(n))))
}

// until runs the world until a step is in a state.
func (w *world) until(step string, is workflow.StepState) workflow.Step {
	w.t.Helper()
	w.Run(func() bool {
		s := w.Workflow().Find(step)
		return s != nil && s.State == is
	})
	return *w.Workflow().Find(step)
}

// takes gives an agent the lease of a term.
func (w *world) takes(n int, term int64) {
	w.t.Helper()
	_, err := w.Outside.OnBootLease(w.t.Context(), enginetest.Operator(), enginetest.Site, lease.Take{Facts: lease.Taken{
		Site: enginetest.Site, Tenant: enginetest.Tenant, Agent: agentOf(n), Term: term, At: w.Now().Add(time.Second),
	}})
	fatal(w.t, err)
}

func (w *world) look() time.Duration {
	w.t.Helper()
	again, err := w.manager.Reconcile(w.t.Context(), enginetest.Site.String())
	fatal(w.t, err)
	return again
}

func (w *world) lease() lease.State {
	w.t.Helper()
	s, err := w.Outside.BootLease(w.t.Context(), enginetest.Site)
	fatal(w.t, err)
	return s
}

// completed is the newest event that says so.
func (w *world) completed() (found lease.Completed) {
	for _, r := range w.Events() {
		if e, is := r.Event.(lease.Completed); is {
			found = e
		}
	}
	return found
}

// again is the nth order of a takeover for the entry that the workflow has set.
func (w *world) again(term, n int) agentcommand.State {
	w.t.Helper()
	set := agentcommand.IDOf(w.Workflow().Key(*w.Workflow().Find("entry")))
	key := "bootlease:" + enginetest.Site.String() + ":" + strconv.Itoa(term) + ":" + set.String() + ":" + strconv.Itoa(n)
	s, _, err := w.Outside.AgentCommand(w.t.Context(), agentcommand.IDOf(key))
	fatal(w.t, err)
	return s
}

// carriesOut has an agent take an order, fetch its token under it, and settle it.
func (w *world) carriesOut(n int, s agentcommand.State) {
	w.t.Helper()
	boot := "boot-" + strconv.Itoa(n)
	_, err := w.Outside.HandOutAgentCommand(w.t.Context(), enginetest.Operator(), s.AgentCommand, agentOf(n), boot)
	fatal(w.t, err)
	fatal(w.t, w.Outside.FetchSecret(w.t.Context(), enginetest.Operator(), s.AgentCommand, agentOf(n), boot, s.Secrets[0]))
	_, err = w.Outside.SettleAgentCommand(w.t.Context(), enginetest.Operator(), s.AgentCommand, agentcommand.Settle{
		Agent: agentOf(n), BootID: boot, Status: agentcommand.Succeeded,
	})
	fatal(w.t, err)
}

// The new holder is asked for the entry once, with the token that the first was given; then, and not before, it has everything.
func TestANewHolderGetsEveryEntry(t *testing.T) {
	w := newWorld(t)
	w.until("wait", workflow.StepWaiting)
	w.takes(2, 1)
	for range 3 { // however often it is looked at
		if w.look() == 0 || w.lease().Complete {
			t.Fatal("the holder is said to have what it has not")
		}
	}
	asked := w.again(1, 1)
	first, _, err := w.Outside.AgentCommand(t.Context(), agentcommand.IDOf(w.Workflow().Key(*w.Workflow().Find("entry"))))
	fatal(t, err)
	if string(asked.Payload) != string(first.Payload) || asked.Workflow != first.Workflow || asked.Step != "entry" || len(asked.Secrets) != 1 {
		t.Errorf("it is asked for as %+v, not %+v", asked.Requested, first.Requested)
	}
	w.carriesOut(2, asked)
	before := w.Len()
	if again := w.look(); again != 0 || !w.lease().Complete || w.completed().Entries != 1 {
		t.Errorf("again in %s: %+v, %+v", again, w.lease(), w.completed())
	}
	if w.look(); w.Len() != before+1 {
		t.Errorf("%d events more", w.Len()-before)
	}

	w.takes(3, 2) // which does not live to set it, twice
	for n := 1; n <= 2; n++ {
		w.look()
		s := w.again(2, n)
		if _, err := w.Outside.HandOutAgentCommand(t.Context(), enginetest.Operator(), s.AgentCommand, agentOf(3), strconv.Itoa(n)); err != nil {
			t.Fatal(err)
		}
		_, err := w.Outside.ExpireAgentCommand(t.Context(), enginetest.Operator(), s.AgentCommand, "next", "its boot is over")
		fatal(t, err)
	}
	w.look()
	w.carriesOut(3, w.again(2, 3))
	if w.look() != 0 || w.completed().Entries != 1 || w.completed().Term != 2 {
		t.Errorf("%+v", w.completed())
	}
}

// What a machine has no use for any more is not set again.
func TestEntriesThatAreOver(t *testing.T) {
	for name, over := range map[string]func(*testing.T, *world){
		"the machine has joined": func(_ *testing.T, w *world) { w.spent = true },
		"the workflow is aborted": func(t *testing.T, w *world) {
			_, err := w.Outside.AbortWorkflow(t.Context(), enginetest.Operator(), w.Workflow().Workflow, "enough")
			fatal(t, err)
		},
		"the lease was given back": func(t *testing.T, w *world) {
			_, err := w.Outside.OnBootLease(t.Context(), enginetest.Operator(), enginetest.Site, lease.Release{Facts: lease.Released{
				Site: enginetest.Site, Agent: agentOf(2), Term: 1,
			}})
			fatal(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.until("wait", workflow.StepWaiting)
			w.takes(2, 1)
			over(t, w)
			if again := w.look(); again != 0 || w.completed().Entries != 0 {
				t.Errorf("again in %s: %+v", again, w.completed())
			}
			for _, r := range w.Events() {
				if a, is := r.Event.(agentcommand.Requested); is && a.Kind == agentcommand.BootEntrySet && a.Step != "entry" {
					t.Errorf("asked for: %+v", a)
				}
			}
		})
	}
}

// A machine may boot by what it was given again, and be done with it, before anybody looks: it was given it all the same.
func TestAnEntryThatWasUsedAtOnce(t *testing.T) {
	w := newWorld(t)
	w.until("wait", workflow.StepWaiting)
	w.takes(2, 1)
	w.look()
	w.carriesOut(2, w.again(1, 1))
	w.spent = true
	_, err := w.Outside.AbortWorkflow(t.Context(), enginetest.Operator(), w.Workflow().Workflow, "nobody wants it any more")
	fatal(t, err)
	if again := w.look(); again != 0 || w.completed() != (lease.Completed{Site: enginetest.Site, Term: 1, Entries: 1}) {
		t.Errorf("again in %s: %+v", again, w.completed())
	}
}

// A workflow that takes its entry away while it is set again has it taken away once more.
func TestAnEntryThatIsClearedMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.until("wait", workflow.StepWaiting)
	w.takes(2, 1)
	w.extra = func() {
		_, err := w.Outside.AbortWorkflow(t.Context(), enginetest.Operator(), w.Workflow().Workflow, "enough")
		fatal(t, err)
	}
	w.look()
	if s := w.again(1, 1); s.Status != agentcommand.Cancelled {
		t.Errorf("it is %s", s.Status)
	}
	undone, _, err := w.Outside.AgentCommand(t.Context(), agentcommand.IDOf(w.again(1, 1).Key+":clear"))
	if err != nil || undone.Kind != agentcommand.BootEntryClear {
		t.Errorf("%+v, %v", undone, err)
	}
}

// What the former holder had in hand ends, and the step asks the new one; what the new one has goes on.
func TestOrdersInTheHandsOfTheFormerHolder(t *testing.T) {
	w := newWorld(t)
	w.silent = true
	entry := w.until("entry", workflow.StepWaiting)
	first := agentcommand.IDOf(w.Workflow().Key(entry))
	_, err := w.Outside.HandOutAgentCommand(t.Context(), enginetest.Operator(), first, agentOf(1), "boot-1")
	fatal(t, err)
	w.takes(2, 2)
	if again := w.look(); again != 0 {
		t.Errorf("again in %s", again)
	}
	s, _, err := w.Outside.AgentCommand(t.Context(), first)
	if err != nil || s.Status != agentcommand.Expired || s.Reason != agentcommand.LeaseLost {
		t.Fatalf("%+v, %v", s, err)
	}
	second := agentcommand.IDOf(w.Workflow().Key(entry) + ":again-1")
	w.Run(func() bool {
		s, _, err := w.Outside.AgentCommand(t.Context(), second)
		return err == nil && s.Exists()
	})
	s, _, err = w.Outside.AgentCommand(t.Context(), second)
	fatal(t, err)
	w.carriesOut(2, s)
	w.silent = false
	w.until("wait", workflow.StepWaiting)
	if _, _, err := w.Outside.AgentCommand(t.Context(), agentcommand.IDOf(w.Workflow().Key(entry)+":again-2")); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("asked once more: %v", err)
	}
	if s := w.Workflow().Find("entry"); s.State != workflow.StepSucceeded || s.Attempt != 1 {
		t.Errorf("the step is %s at attempt %d", s.State, s.Attempt)
	}
}
