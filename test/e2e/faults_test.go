package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/adapters/sim"
	"github.com/better-compute/metal/adapters/sim/bmcsim"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/test/lab"
)

// Everything that goes wrong with a machine, its controller, its agents and its site, each on a machine of its own, at one time.
func TestFaults(t *testing.T) {
	t.Parallel() // with the other tests that wait for machines
	cases := []struct {
		name string
		run  func(t *testing.T, l *lab.Lab, m sim.Listed)
	}{
		{"a dead disk never becomes ready", deadDisk},
		{"a disk that lies about its erase is found out", lyingErase},
		{"a boot that hangs is tried again", hungBoot},
		{"a machine that never boots fails, and can be recovered", neverBoots},
		{"an OS that does not come back fails its deploy", noRejoin},
		{"a controller that answers 503 and drops connections is survived", badController},
		{"a machine that restarts during the write is found out", restarts},
		{"an image's server that breaks off is asked for the rest", flakyServer},
		{"a power cut during the write is found out", powerCut},
		{"an agent that dies before its wipe", agentDies(false)},
		{"an agent that dies after its wipe, with nobody told", agentDies(true)},
		{"a wrong password is corrected", wrongPassword},
		{"a stolen join token is refused", stolenToken},
		{"an abort in each phase", abortEachPhase},
		{"pause and resume", pauseAndResume},
		{"retry from a step", retryFromStep},
		{"rescue and back", rescueAndBack},
		{"an image that is not there refuses a deploy", missingImage},
		{"an old OS that boots during its release is shut out", oldOS},
	}
	l := lab.Start(t, lab.Options{Machines: len(cases) + 1, RamdiskWithin: 24 * time.Second, WipeWithin: 20 * time.Second})
	impatientProfile(t, l, "no-ramdisk", "metal.ensureRamdisk", "8s")
	impatientProfile(t, l, "no-rejoin", "boot.kexec", "20s") // in which the machine has to be told to start its OS, too
	machines := l.Machines()
	t.Run("side by side", func(t *testing.T) {
		for i, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.run(t, l.On(t), machines[i])
			})
		}
	})
	t.Run("a site agent that is away holds steps", func(t *testing.T) { siteAway(t, l.On(t), machines[len(cases)]) })
	l.Verify()
}

// impatientProfile deploys as image-host does, and gives up at once where one of its steps does not come to its end.
func impatientProfile(t *testing.T, l *lab.Lab, name, use, timeout string) {
	t.Helper()
	l.DeployProfile(name, "host@1", func(step map[string]any) {
		if step["use"] == use {
			step["timeout"] = timeout
			delete(step, "retries")
			delete(step, "retryDelay")
		}
	})
}

func ready(t *testing.T, l *lab.Lab, m sim.Listed) (node string) {
	t.Helper()
	node = l.EnrollOne(m)
	l.WaitState(node, "ready")
	return node
}

func deployed(t *testing.T, l *lab.Lab, m sim.Listed) (node string) {
	t.Helper()
	node = ready(t, l, m)
	l.Deploy(node)
	l.WaitState(node, "deployed")
	return node
}

// failed waits for it and checks the reason.
func failed(t *testing.T, l *lab.Lab, node, from string, code fault.Code, words ...string) contract.Node {
	t.Helper()
	n := l.WaitState(node, "failed")
	if n.FailedFrom != from || n.LastError == nil || n.LastError.Code != string(code) || !n.Maintenance {
		t.Fatalf("%s failed from %s with %+v, maintenance %t; want %s from %s", node, n.FailedFrom, n.LastError, n.Maintenance, code, from)
	}
	for _, w := range words {
		if !strings.Contains(n.LastError.Message, w) {
			t.Errorf("%q does not say %q", n.LastError.Message, w)
		}
	}
	return n
}

// recovered asks for it and waits until the machine is ready.
func recovered(t *testing.T, l *lab.Lab, node, to string) {
	t.Helper()
	recovering(t, l, node, to)
	l.WaitState(node, "ready")
}

// recovering asks for it.
func recovering(t *testing.T, l *lab.Lab, node, to string) {
	t.Helper()
	n, err := l.Client.Recover(t.Context(), node)
	must(t, err)
	if n.Provision != to {
		t.Errorf("recover led to %s, not to %s", n.Provision, to)
	}
}

// neverReady looks at the history: since a position, the machine was not ready.
func neverReady(t *testing.T, l *lab.Lab, node string, since uint64) {
	t.Helper()
	for e, err := range lab.History(t.Context(), l.Client, node) {
		must(t, err)
		if e.Position > since && e.Type == "node.provision.ready" {
			t.Errorf("%s was ready at %d", node, e.Position)
		}
	}
}

func deadDisk(t *testing.T, l *lab.Lab, m sim.Listed) {
	l.Inject(sim.Fault{Machine: m.Name, DeadDisk: &sim.DeadDisk{Disk: 1, Mode: sim.WritesFail}})
	node := l.EnrollOne(m)
	failed(t, l, node, "commissioning", fault.DriverError, "burnin-disk")
	neverReady(t, l, node, 0)
	l.Inject(sim.Fault{Machine: m.Name, Heal: true})
	recovered(t, l, node, "commissioning")
	l.Deploy(node)
	before := l.WaitState(node, "deployed")
	l.Inject(sim.Fault{Machine: m.Name, DeadDisk: &sim.DeadDisk{Disk: 0, Mode: sim.WritesFail}})
	l.Undeploy(node, "quick")
	failed(t, l, node, "releasing", fault.UnverifiedWipe, "wipe")
	neverReady(t, l, node, before.Position)
	isOff(t, l, m)
	l.Inject(sim.Fault{Machine: m.Name, Heal: true})
	recovered(t, l, node, "releasing")
	isReady(t, l, node)
}

// isOff waits: cleanup runs after the failure.
func isOff(t *testing.T, l *lab.Lab, m sim.Listed) {
	t.Helper()
	must(t, lab.Poll(lab.Patience, m.Name+" to be off", func() error {
		if p := l.Machine(m.Name).View.Power; p != "off" {
			return fmt.Errorf("it is %s", p)
		}
		return nil
	}))
}

func lyingErase(t *testing.T, l *lab.Lab, m sim.Listed) {
	node := deployed(t, l, m)
	l.Inject(sim.Fault{Machine: m.Name, DeadDisk: &sim.DeadDisk{Disk: 0, Mode: sim.EraseLies}})
	l.Undeploy(node, "secure-erase")
	n := failed(t, l, node, "releasing", fault.UnverifiedWipe)
	if n.WipeVerified {
		t.Error("the wipe counts as verified")
	}
	isOff(t, l, m)
	l.Inject(sim.Fault{Machine: m.Name, Heal: true})
	recovered(t, l, node, "releasing")
	isReady(t, l, node)
}

func hungBoot(t *testing.T, l *lab.Lab, m sim.Listed) {
	l.Inject(sim.Fault{Machine: m.Name, HungBoots: 1})
	node := l.EnrollOne(m)
	l.WaitState(node, "ready")
	for w, err := range l.Client.NodeWorkflows(t.Context(), node, nil) {
		must(t, err)
		if w.Profile != "metal-inspect" {
			continue
		}
		step := stepOf(t, l, w.ID, "ramdisk")
		if step.State != "succeeded" || step.Attempt == 1 && !strings.Contains(string(step.Result), `"rounds":2`) {
			t.Errorf("the ramdisk came up in %+v %s", step, step.Result)
		}
		return
	}
	t.Error("it was never inspected")
}

func stepOf(t *testing.T, l *lab.Lab, workflow, step string) contract.WorkflowStep {
	t.Helper()
	w, err := l.Client.GetWorkflow(t.Context(), workflow)
	must(t, err)
	i := slices.IndexFunc(w.Steps, func(s contract.WorkflowStep) bool { return s.ID == step })
	if i < 0 {
		t.Fatalf("%s has no step %s", workflow, step)
	}
	return w.Steps[i]
}

func neverBoots(t *testing.T, l *lab.Lab, m sim.Listed) {
	node := ready(t, l, m)
	l.Inject(sim.Fault{Machine: m.Name, HungBoots: 1000})
	_, err := l.Client.Deploy(t.Context(), node, contract.Deploy{Profile: "no-ramdisk", Version: 1})
	must(t, err)
	failed(t, l, node, "deploying", fault.Timeout, "ramdisk")
	l.Inject(sim.Fault{Machine: m.Name, Heal: true})
	recovered(t, l, node, "releasing")
	isReady(t, l, node)
}

func noRejoin(t *testing.T, l *lab.Lab, m sim.Listed) {
	node := ready(t, l, m)
	l.Inject(sim.Fault{Machine: m.Name, NoRejoin: true})
	_, err := l.Client.Deploy(t.Context(), node, contract.Deploy{Profile: "no-rejoin", Version: 1})
	must(t, err)
	failed(t, l, node, "deploying", fault.RejoinTimeout, "start")
	if reset := stepOf(t, l, l.Workflow(node).ID, "reset"); reset.State != "succeeded" {
		t.Errorf("the machine was not reset: %+v", reset)
	}
	l.Inject(sim.Fault{Machine: m.Name, Heal: true})
	recovered(t, l, node, "releasing")
	isReady(t, l, node)
}

func badController(t *testing.T, l *lab.Lab, m sim.Listed) {
	l.Inject(sim.Fault{Machine: m.Name, Rule: &bmcsim.Rule{Nth: 3, Every: 5, Status: 503}})
	l.Inject(sim.Fault{Machine: m.Name, Rule: &bmcsim.Rule{Nth: 4, Every: 7, Drop: bmcsim.DropBefore}})
	l.Inject(sim.Fault{Machine: m.Name, Rule: &bmcsim.Rule{Nth: 5, Every: 11, Drop: bmcsim.DropAfter}})
	node := deployed(t, l, m)
	l.Undeploy(node, "quick")
	l.WaitState(node, "ready")
	isReady(t, l, node)
}

// flakyServer has an image's server break connections off: what was fetched is not fetched again.
func flakyServer(t *testing.T, l *lab.Lab, m sim.Listed) {
	image := sim.OSImage(int(l.Image.Bytes), lab.OSName)
	server := l.Library("flaky", image)
	l.DeployProfile("flaky", "flaky@1", func(map[string]any) {})
	node := ready(t, l, m)
	const breaks, after = 3, 50_000
	server.Break(breaks, after)
	_, err := l.Client.Deploy(t.Context(), node, contract.Deploy{Profile: "flaky", Version: 1})
	must(t, err)
	l.WaitState(node, "deployed")
	want := []string{""}
	for i := range breaks {
		want = append(want, fmt.Sprintf("bytes=%d-", (i+1)*after))
	}
	if asked := server.Asked(); !slices.Equal(asked, want) {
		t.Errorf("it was asked for %q", asked)
	}
	if v := l.Machine(m.Name).View; v.Running != sim.OS || !bytes.Equal(l.Disk(m.Name, 0)[16<<10:len(image)], image[16<<10:]) {
		t.Errorf("it runs %+v, or its disk holds something else than the image", v)
	}
}

// halfWritten has half of an image of its own written to a machine. The other half comes once it is released.
func halfWritten(t *testing.T, l *lab.Lab, m sim.Listed, name string) (node string, release func()) {
	t.Helper()
	server := l.Library(name, sim.OSImage(int(l.Image.Bytes), lab.OSName))
	l.DeployProfile(name, name+"@1", func(map[string]any) {})
	node = ready(t, l, m)
	halfway, release := server.StopOnce(l.Image.Bytes / 2)
	_, err := l.Client.Deploy(t.Context(), node, contract.Deploy{Profile: name, Version: 1})
	must(t, err)
	select {
	case <-halfway:
	case <-time.After(lab.Patience):
		t.Fatal("the image was not fetched")
	}
	return node, release
}

// powerCut takes the power away while an image is being written. Nobody is in the machine to tell: its controller does.
func powerCut(t *testing.T, l *lab.Lab, m sim.Listed) {
	node, release := halfWritten(t, l, m, "cut")
	defer release()
	l.Press(m.Name, bmcsim.ForceOff)
	disk := l.Disk(m.Name, 0)
	for _, end := range [][]byte{disk[:1<<20], disk[len(disk)-1<<20:]} {
		if slices.ContainsFunc(end, func(b byte) bool { return b != 0 }) {
			t.Error("something is left on the disk that may boot")
		}
	}
	n := failed(t, l, node, "deploying", fault.DriverError, "write", "lost its power")
	if n.Power != "off" {
		t.Errorf("the node shows power %s", n.Power)
	}
	w := l.Workflow(node)
	if step := stepOf(t, l, w.ID, "write"); step.Attempt != 1 {
		t.Errorf("it was tried %d times, with nobody in the machine", step.Attempt)
	}
	recovered(t, l, node, "releasing")
	isReady(t, l, node)
}

// restarts has a machine start again while an image is being written, as after a fault of its power supply. It stays on, with nobody
// in it: since when it runs tells that.
func restarts(t *testing.T, l *lab.Lab, m sim.Listed) {
	if m.Personality == bmcsim.HPE || m.Personality == bmcsim.Supermicro {
		t.Fatal("this controller does not tell when its machine was started: give this case another machine")
	}
	node, release := halfWritten(t, l, m, "restart")
	defer release()
	must(t, lab.Poll(lab.Patience, "a start that can be told from the one before", func() error {
		for a, err := range l.Client.Agents(t.Context(), "", node, "ramdisk") {
			if err == nil && a.SessionAt != nil && time.Since(*a.SessionAt) > 5*time.Second {
				return nil
			}
		}
		return errors.New("its agent's session has just begun")
	}))
	l.Press(m.Name, bmcsim.ForceRestart)
	n := failed(t, l, node, "deploying", fault.DriverError, "write", "restarted")
	if n.Power != "on" {
		t.Errorf("the node shows power %s", n.Power)
	}
	recovered(t, l, node, "releasing")
	isReady(t, l, node)
}

// agentDies lets the ramdisk's agent die at its wipe. The machine stays on, with nobody to talk to. The wipe is not ordered again
// under the same attempt; a retry starts the ramdisk afresh.
func agentDies(after bool) func(t *testing.T, l *lab.Lab, m sim.Listed) {
	return func(t *testing.T, l *lab.Lab, m sim.Listed) {
		node := deployed(t, l, m)
		l.Inject(sim.Fault{Machine: m.Name, AgentDiesAt: &sim.Death{Kind: agentcommand.DiskWipe, After: after}})
		wipes := wipesOf(l, m)
		l.Undeploy(node, "quick")
		failed(t, l, node, "releasing", fault.Timeout, "wipe")
		if n := wipesOf(l, m) - wipes; n != 1 {
			t.Errorf("it was ordered to wipe %d times", n)
		}
		if _, err := l.Client.RetryWorkflow(t.Context(), l.Workflow(node).ID, contract.Retry{}); err != nil {
			t.Fatal(err)
		}
		l.WaitState(node, "ready")
		isReady(t, l, node)
	}
}

func wipesOf(l *lab.Lab, m sim.Listed) (n int) {
	for _, o := range l.Orders(m.Name) {
		if o.Kind == agentcommand.DiskWipe {
			n++
		}
	}
	return n
}

// abortEachPhase aborts every kind of workflow while it runs: the node fails at once, its workflow ends cancelled after cleanup
// that ran once, and recover goes where the table says. In each phase something is wrong with the machine that no other phase
// minds, so that it is still in that phase when it is aborted, however late that is.
func abortEachPhase(t *testing.T, l *lab.Lab, m sim.Listed) {
	slow := sim.Fault{Machine: m.Name, Rule: &bmcsim.Rule{Delay: bmcsim.Duration(20 * time.Second)}} // the controller answers nobody
	hung := sim.Fault{Machine: m.Name, Heal: true, HungBoots: 1000}
	busy := sim.Fault{Machine: m.Name, Heal: true, HangsAt: agentcommand.BurninCPU}
	well := sim.Fault{Machine: m.Name, Heal: true}
	l.Inject(slow)
	node := l.EnrollOne(m)
	abort(t, l, node, "enrolling", hung)
	recovering(t, l, node, "enrolling")
	abort(t, l, node, "inspecting", busy)
	recovering(t, l, node, "inspecting")
	abort(t, l, node, "commissioning", well)
	recovered(t, l, node, "commissioning")
	l.Inject(hung)
	l.Deploy(node)
	abort(t, l, node, "deploying", hung)
	recovering(t, l, node, "releasing")
	abort(t, l, node, "releasing", well)
	recovered(t, l, node, "releasing")
	isReady(t, l, node)
}

// abort aborts the workflow of a state; what is wrong with the machine is another thing from then on.
func abort(t *testing.T, l *lab.Lab, node, state string, next sim.Fault) {
	t.Helper()
	_, err := l.Await(t.Context(), l.Client, node, lab.Patience, state+" with a workflow", func(n contract.Node) (bool, error) {
		return n.Provision == state && n.Workflow != "", nil
	})
	must(t, err)
	workflow := running(t, l, node).ID // one that has not begun owes no cleanup
	n, err := l.Client.Abort(t.Context(), node, contract.Reason{Reason: "the wrong rack"})
	must(t, err)
	l.Inject(next)
	if n.Provision != "failed" || n.FailedFrom != state || !n.Maintenance {
		t.Errorf("after an abort: %+v", n)
	}
	must(t, lab.Poll(lab.Patience, "the workflow to be cancelled", func() error {
		w, err := l.Client.GetWorkflow(t.Context(), workflow)
		if err == nil && w.State != "cancelled" {
			err = fmt.Errorf("it is %s", w.State)
		}
		return err
	}))
	w, err := l.Client.GetWorkflow(t.Context(), workflow)
	must(t, err)
	for _, s := range w.Steps {
		if s.Phase == "cleanup" && (s.Attempt > 1 || s.State != "succeeded" && s.State != "skipped") {
			t.Errorf("%s: cleanup %+v", w.Profile, s)
		}
		if s.State == "running" || s.State == "waiting" || s.State == "pending" {
			t.Errorf("%s is cancelled, and its %s is %s", w.Profile, s.ID, s.State)
		}
	}
}

// running waits until a node's workflow has begun.
func running(t *testing.T, l *lab.Lab, node string) (w contract.Workflow) {
	t.Helper()
	must(t, lab.Poll(lab.Patience, "the workflow to run", func() error {
		if w = l.Workflow(node); w.State != "running" {
			return fmt.Errorf("it is %s", w.State)
		}
		return nil
	}))
	return w
}

func pauseAndResume(t *testing.T, l *lab.Lab, m sim.Listed) {
	l.Inject(sim.Fault{Machine: m.Name, HungBoots: 1}) // its inventory takes a while
	node := l.EnrollOne(m)
	_, err := l.Await(t.Context(), l.Client, node, lab.Patience, "inspected", func(n contract.Node) (bool, error) {
		return n.Provision == "inspecting" && n.Workflow != "", nil
	})
	must(t, err)
	w, err := l.Client.PauseWorkflow(t.Context(), running(t, l, node).ID)
	must(t, err)
	must(t, lab.Poll(lab.Patience, "the step in flight to finish", func() error {
		if w, err = l.Client.GetWorkflow(t.Context(), w.ID); err != nil {
			return err
		}
		for _, s := range w.Steps {
			if s.State == "running" || s.State == "waiting" {
				return fmt.Errorf("%s is %s", s.ID, s.State)
			}
		}
		return nil
	}))
	if w.State != "paused" {
		t.Fatalf("it is %s", w.State)
	}
	if _, err := l.Client.PauseWorkflow(t.Context(), w.ID); fault.CodeOf(err) != fault.InvalidState {
		t.Errorf("a second pause: %v", err)
	}
	version := w.Version
	<-time.After(3 * time.Second) // nothing is to happen, for as long as that
	if w, err = l.Client.GetWorkflow(t.Context(), w.ID); err != nil || w.Version != version || w.State != "paused" {
		t.Errorf("a paused workflow went on: %+v, %v", w, err)
	}
	_, err = l.Client.ResumeWorkflow(t.Context(), w.ID)
	must(t, err)
	l.WaitState(node, "ready")
}

// retryFromStep repairs what a burn-in found and goes on from there: what came before is not repeated.
func retryFromStep(t *testing.T, l *lab.Lab, m sim.Listed) {
	l.Inject(sim.Fault{Machine: m.Name, BadMemory: true})
	node := l.EnrollOne(m)
	failed(t, l, node, "commissioning", fault.DriverError, "burnin-memory")
	l.Inject(sim.Fault{Machine: m.Name, Heal: true})
	w := l.Workflow(node)
	if _, err := l.Client.RetryWorkflow(t.Context(), w.ID, contract.Retry{FromStep: "no-such-step"}); fault.CodeOf(err) != fault.InvalidInput {
		t.Errorf("a step that is not there: %v", err)
	}
	_, err := l.Client.RetryWorkflow(t.Context(), w.ID, contract.Retry{FromStep: "burnin-memory"})
	must(t, err)
	l.WaitState(node, "ready")
	counts := map[agentcommand.KindName]int{}
	for _, o := range l.Orders(m.Name) {
		counts[o.Kind]++
	}
	if counts[agentcommand.BurninCPU] != 1 || counts[agentcommand.BurninMemory] != 2 || counts[agentcommand.DiskWipe] != 1 {
		t.Errorf("it carried out %v", counts)
	}
	if again := l.Workflow(node); again.ID != w.ID || again.Run != 2 || again.State != "succeeded" {
		t.Errorf("the retried workflow is %+v", again)
	}
}

// What a deploy would miss is told while the machine is ready, and it stays so.
func missingImage(t *testing.T, l *lab.Lab, m sim.Listed) {
	node := ready(t, l, m)
	l.DeployProfile("withdrawn", "withdrawn@1", func(map[string]any) {})
	l.Library("withdrawn", make([]byte, 1<<10))
	for i, err := range l.Client.Images(t.Context(), "", "withdrawn", false) {
		must(t, err)
		_, err = l.Client.WithdrawImage(t.Context(), i.ID, contract.Reason{Reason: "it has a hole"})
		must(t, err)
	}
	l.DeployProfile("unheard-of", "unheard-of@7", func(map[string]any) {})
	for _, profile := range []string{"withdrawn", "unheard-of"} {
		_, err := l.Client.Deploy(t.Context(), node, contract.Deploy{Profile: profile, Version: 1})
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != fault.InvalidInput || len(f.Issues) != 1 || f.Issues[0].Path != "profile.steps.image" ||
			!strings.Contains(f.Issues[0].Message, profile+"@") || f.Remedy == "" {
			t.Errorf("%s: %v", profile, err)
		}
	}
	if n, err := l.Client.GetNode(t.Context(), node); err != nil || n.Provision != "ready" {
		t.Errorf("the machine is %s, %v", n.Provision, err)
	}
}

func rescueAndBack(t *testing.T, l *lab.Lab, m sim.Listed) {
	node := deployed(t, l, m)
	before := l.Disk(m.Name, 0)
	if _, err := l.Client.Unrescue(t.Context(), node); fault.CodeOf(err) != fault.InvalidState {
		t.Errorf("unrescue of what is not in rescue: %v", err)
	}
	_, err := l.Client.Rescue(t.Context(), node)
	must(t, err)
	_, err = l.Await(t.Context(), l.Client, node, lab.Patience, "up in rescue", func(n contract.Node) (bool, error) {
		if n.Provision == "failed" {
			return false, fmt.Errorf("%+v", n.LastError)
		}
		return n.RescueUp && n.Workflow == "", nil
	})
	must(t, err)
	if v := l.Machine(m.Name).View; v.Running != sim.Ramdisk {
		t.Errorf("in rescue it runs %+v", v)
	}
	_, err = l.Client.Unrescue(t.Context(), node)
	must(t, err)
	l.WaitState(node, "deployed")
	if v := l.Machine(m.Name).View; v.Running != sim.OS || v.OS != lab.OSName {
		t.Errorf("after rescue it runs %+v", v)
	}
	after := l.Disk(m.Name, 0)
	if identity := 16 << 10; !slices.Equal(before[identity:], after[identity:]) {
		t.Error("a rescue has changed the disk")
	}
	l.Undeploy(node, "quick")
	l.WaitState(node, "ready")
}

// oldOS boots the installed OS while its machine is being released. Its certificate is revoked by then: it is told no order and
// decides nothing, and the machine ends wiped.
func oldOS(t *testing.T, l *lab.Lab, m sim.Listed) {
	node := deployed(t, l, m)
	sessions := func() (n int) {
		for e, err := range lab.History(t.Context(), l.Client, node) {
			must(t, err)
			if e.Type == "agent.session.opened" && strings.Contains(string(e.Data), `"role":"node"`) {
				n++
			}
		}
		return n
	}
	before := sessions()
	l.Inject(sim.Fault{Machine: m.Name, HungBoots: 1})
	l.Undeploy(node, "quick")
	must(t, lab.Poll(lab.Patience, "the ramdisk's boot to hang", func() error {
		d := l.Machine(m.Name)
		if !slices.ContainsFunc(d.Console, func(e sim.Entry) bool { return e.Kind == sim.KindFault }) {
			return fmt.Errorf("it runs %+v", d.View)
		}
		return nil
	}))
	l.Press(m.Name, bmcsim.ForceRestart) // the override is spent: it boots its disk
	must(t, lab.Poll(lab.Patience, "the old agent to be turned away", func() error {
		d := l.Machine(m.Name)
		for i, e := range d.Console {
			if e.Kind == sim.KindAgent && strings.HasPrefix(e.Text, "ended") && i > 0 {
				return nil
			}
		}
		return fmt.Errorf("it runs %+v", d.View)
	}))
	l.WaitState(node, "ready")
	if after := sessions(); after != before {
		t.Errorf("the old OS opened %d sessions", after-before)
	}
	isReady(t, l, node)
}

// siteAway kills the site's agent in the middle of a workflow: its steps wait, and finish when it is back.
func siteAway(t *testing.T, l *lab.Lab, m sim.Listed) {
	node := deployed(t, l, m)
	l.SiteAgent.Kill()
	l.Undeploy(node, "quick")
	_, err := l.Await(t.Context(), l.Client, node, lab.Patience, "released by a workflow", func(n contract.Node) (bool, error) {
		return n.Workflow != "", nil
	})
	must(t, err)
	<-time.After(5 * time.Second) // nothing is to happen, for as long as that
	n, err := l.Client.GetNode(t.Context(), node)
	if err != nil || n.Provision != "releasing" {
		t.Fatalf("without its site's agent: %+v, %v", n, err)
	}
	if v := l.Machine(m.Name).View; v.Running != sim.OS {
		t.Errorf("without its site's agent it runs %+v", v)
	}
	l.SiteAgent.Start()
	l.WaitState(node, "ready")
	isReady(t, l, node)
	off := 0
	for e, err := range lab.History(t.Context(), l.Client, node) {
		must(t, err)
		if e.Type == "agentcommand.requested" && strings.Contains(string(e.Data), n.Workflow) && strings.Contains(string(e.Data), "take-down") {
			off++
		}
	}
	if off != 1 {
		t.Errorf("the machine was ordered to switch off %d times", off)
	}
}
