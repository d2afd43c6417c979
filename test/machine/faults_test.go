//go:build qemu

package machine

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/adapters/netboot"
	"github.com/better-compute/metal/adapters/sim/bmcsim"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/test/lab"
	"github.com/better-compute/metal/test/machine/nbd"
	"github.com/better-compute/metal/test/machine/qemu"
)

// What goes wrong with real machines, two of them side by side.
func TestFaults(t *testing.T) {
	b := Start(t)
	disk := filepath.Join(shortDir(t), "disk")
	first := b.Add(func(s *qemu.Spec) { s.Disks[0].Bus, s.Disks[0].Drive = qemu.NVMe, nbd.Drive(disk) })
	liar, err := nbd.Serve(disk, first.DiskFile(0))
	b.must(err)
	t.Cleanup(func() { b.must(liar.Close()) })
	second := b.Add(func(s *qemu.Spec) { s.Disks[0].Drive = ignoresDiscard }) // a quick wipe does not rely on it
	flaky, cut, dead := b.Library("flaky", b.image), b.Library("cut", b.image), b.Library("dead", broken(t, b))
	for _, name := range []string{"flaky", "cut"} {
		b.DeployProfile(name, name+"@1", func(map[string]any) {})
	}
	b.DeployProfile("dead", "dead@1", func(step map[string]any) {
		if step["use"] == "boot.kexec" {
			step["timeout"] = "20s"
		}
	})
	t.Run("side by side", func(t *testing.T) {
		t.Run("a network and a wipe", func(t *testing.T) {
			t.Parallel()
			b := b.on(t)
			ready(t, b, first)
			linkDrops(t, b, first, flaky)
			wipeLies(t, b, first, liar)
		})
		t.Run("a power cut and an image", func(t *testing.T) {
			t.Parallel()
			b := b.on(t)
			ready(t, b, second)
			powerIsCut(t, b, second, cut)
			imageIsDead(t, b, second, dead)
		})
	})
	b.Verify()
}

// on is the same bench for another test: what goes wrong is that one's fault.
func (b *Bench) on(t *testing.T) *Bench {
	other := *b
	other.Lab = b.Lab.On(t)
	return &other
}

// shortDir is a directory whose name is short enough for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lab-") //nolint:usetesting // the test's own is too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// broken is the OS's image, its kernel damaged behind the part that says what it is: it is started, and goes nowhere.
func broken(t *testing.T, b *Bench) []byte {
	t.Helper()
	image := bytes.Clone(b.image)
	at := bytes.Index(image, []byte("HdrS"))
	if at < 0 {
		t.Fatal("the image has no kernel")
	}
	clear(image[at+2<<20:][:1<<20])
	return image
}

// reached waits until an image's server has sent as much as it was to.
func (b *Bench) reached(m *Machine, halfway <-chan struct{}) {
	b.T.Helper()
	select {
	case <-halfway:
	case <-time.After(patience):
		b.T.Fatalf("%s has not fetched half of its image\n%s", m.Name, m.Story(60))
	}
}

// says waits until a machine has said something on its console, behind what it had said before.
func (b *Bench) says(m *Machine, before int, text string) {
	b.T.Helper()
	b.await(m.Name+" to say "+text, func() bool { return strings.Contains(b.said(m)[before:], text) })
}

func (b *Bench) said(m *Machine) string {
	b.T.Helper()
	text, err := os.ReadFile(m.ConsoleFile())
	b.must(err)
	return string(text)
}

func (b *Bench) deploy(m *Machine, profile string) {
	b.T.Helper()
	_, err := b.Client.Deploy(b.T.Context(), m.Node, contract.Deploy{Profile: profile, Version: 1})
	b.must(err)
}

// failed waits for it and checks the reason.
func failed(t *testing.T, b *Bench, m *Machine, from string, code fault.Code, words ...string) contract.Node {
	t.Helper()
	n := b.WaitState(m.Node, "failed")
	if n.FailedFrom != from || n.LastError == nil || n.LastError.Code != string(code) || !n.Maintenance {
		t.Fatalf("%s failed from %s with %+v; want %s from %s\n%s", m.Name, n.FailedFrom, n.LastError, code, from, m.Story(40))
	}
	for _, w := range words {
		if !strings.Contains(n.LastError.Message, w) {
			t.Errorf("%q does not say %q", n.LastError.Message, w)
		}
	}
	return n
}

// recovered has a failed machine wiped and waits until it is ready.
func recovered(t *testing.T, b *Bench, m *Machine) {
	t.Helper()
	n, err := b.Client.Recover(t.Context(), m.Node)
	b.must(err)
	if n.Provision != "releasing" {
		t.Errorf("recover led to %s", n.Provision)
	}
	b.WaitState(m.Node, "ready")
	isOff(t, m)
	isWiped(t, b, m)
	proven(t, b, m)
}

// neverReady looks at the history: since a position, the machine was not ready.
func neverReady(t *testing.T, b *Bench, m *Machine, since uint64) {
	t.Helper()
	for e, err := range lab.History(t.Context(), b.Client, m.Node) {
		b.must(err)
		if e.Position > since && e.Type == "node.provision.ready" {
			t.Errorf("%s was ready at %d", m.Name, e.Position)
		}
	}
}

// The cable is pulled while the image is on its way, and comes back after the machine has noticed: the rest is fetched, and no
// byte of it twice.
func linkDrops(t *testing.T, b *Bench, m *Machine, image *lab.Library) {
	t.Helper()
	halfway, release := image.StopOnce(imageMiB / 2 << 20)
	defer release()
	before, asked := len(b.said(m)), len(image.Asked())
	b.deploy(m, "flaky")
	b.reached(m, halfway)
	b.must(m.Tell("set_link", map[string]any{"name": "net0", "up": false}))
	release() // what is sent from now on arrives nowhere
	b.says(m, before, "an image's download is tried again")
	b.must(m.Tell("set_link", map[string]any{"name": "net0", "up": true}))
	b.WaitState(m.Node, "deployed")
	isDeployed(t, b, m)
	ranges := image.Asked()[asked:]
	if len(ranges) < 2 || ranges[0] != "" || slices.Contains(ranges[1:], "") {
		t.Errorf("%s asked for %q", m.Name, ranges)
	}
	var from int64
	if _, err := fmt.Sscanf(ranges[len(ranges)-1], "bytes=%d-", &from); err != nil || from < imageMiB/4<<20 {
		t.Errorf("%s went on at %q", m.Name, ranges[len(ranges)-1])
	}
}

// A disk that says that it erased itself, and did nothing, is found out: the machine is not ready, however often it is asked.
func wipeLies(t *testing.T, b *Bench, m *Machine, liar *nbd.Disk) {
	t.Helper()
	n, err := b.Client.GetNode(t.Context(), m.Node)
	b.must(err)
	left := b.Disk(m, 0)
	liar.Lie(true)
	b.Undeploy(m.Node, "secure-erase")
	failed(t, b, m, "releasing", fault.UnverifiedWipe, "wipe", "not proven empty")
	// It holds what it held, but for the canaries that were planted to find that out.
	if changed := blocksThatDiffer(left, b.Disk(m, 0)); liar.Lies() == 0 || changed > 128 {
		t.Errorf("the disk has lied %d times, and %d of its blocks are not as they were", liar.Lies(), changed)
	}
	if now, err := b.Client.GetNode(t.Context(), m.Node); err != nil || now.WipeVerified {
		t.Errorf("its wipe counts as proven: %+v, %v", now, err)
	}
	neverReady(t, b, m, n.Position)
	b.await(m.Name+" to be off", func() bool { return !m.State().On }) // cleanup runs after the failure
	liar.Lie(false)
	recovered(t, b, m)
}

// blocksThatDiffer counts the blocks of 4 KiB in which two disks differ.
func blocksThatDiffer(a, b []byte) (n int) {
	const block = 4 << 10
	for at := 0; at < len(a); at += block {
		if !bytes.Equal(a[at:at+block], b[at:at+block]) {
			n++
		}
	}
	return n
}

// The power goes away while an image is being written over an older OS. Nothing on the disk boots, the control plane finds out
// by itself, and the machine can be had again.
func powerIsCut(t *testing.T, b *Bench, m *Machine, image *lab.Library) {
	t.Helper()
	soil(t, b, m)
	halfway, release := image.StopOnce(imageMiB / 2 << 20)
	defer release()
	b.deploy(m, "cut")
	b.reached(m, halfway)
	b.must(m.Reset(bmcsim.ForceOff))
	cut := time.Now()
	disk := b.Disk(m, 0)
	for _, end := range [][]byte{disk[:1<<20], disk[len(disk)-1<<20:]} {
		if i := bytes.IndexFunc(end, func(r rune) bool { return r != 0 }); i >= 0 {
			t.Errorf("%s may boot: there is something at %d of an end of its disk", m.Name, i)
		}
	}
	starts := m.State().Boots
	n := failed(t, b, m, "deploying", fault.DriverError, "write", "lost its power")
	t.Logf("found out after %s", time.Since(cut).Round(time.Second))
	if n.Power != "off" || m.State().On || m.State().Boots != starts {
		t.Errorf("the node shows power %s; the machine: %+v", n.Power, m.State())
	}
	recovered(t, b, m)
}

// An image that is whole, and whose OS does not start: the machine is waited for, reset once, and given up for what it is.
func imageIsDead(t *testing.T, b *Bench, m *Machine, image *lab.Library) {
	t.Helper()
	b.deploy(m, "dead")
	failed(t, b, m, "deploying", fault.RejoinTimeout, "start (boot.kexec)", "did not come back within 20s")
	w := b.Workflow(m.Node)
	i := slices.IndexFunc(w.Steps, func(s contract.WorkflowStep) bool { return s.ID == "reset" })
	if i < 0 || w.Steps[i].State != "succeeded" || !strings.Contains(m.Story(0), "reset ForceRestart") {
		t.Errorf("it was not reset: %+v\n%s", w.Steps, m.Story(0))
	}
	const from, to = 1 << 20, (imageMiB - 2) << 20
	if disk, dead := b.Disk(m, 0), broken(t, b); !bytes.Equal(disk[from:to], dead[from:to]) {
		t.Error("the disk holds something else than the image")
	}
	if said := osSaid(b, m); strings.HasPrefix(said, "labos") {
		t.Errorf("the OS says %q", said)
	}
	agents, err := client.Collect(b.Client.Agents(t.Context(), "", m.Node, "node"), 0)
	b.must(err)
	for _, a := range agents {
		if a.Connected {
			t.Errorf("an agent is connected: %+v", a)
		}
	}
	if asked := image.Asked(); len(asked) != 1 {
		t.Errorf("it was fetched as %q", asked)
	}
	b.must(m.Reset(bmcsim.ForceOff)) // whatever its firmware does with such a disk, it takes a processor
}

// The control plane is killed at three moments of a machine's life, one in each part of it, and started again.
func TestTheControlPlaneIsKilled(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	b := StartUser(t, nil)
	m := b.Add(func(s *qemu.Spec) { s.Network = "user,bootfile=" + netboot.ScriptURL(b.Boot, s.MAC) })
	soil(t, b, m)
	for _, part := range []struct {
		begin  func()
		end    string
		events int // about as many as there are of it
	}{
		{func() { b.Enroll(m) }, "ready", 90},
		{func() { b.Deploy(m.Node) }, "deployed", 50},
		{func() { b.Undeploy(m.Node, "quick") }, "ready", 45},
	} {
		after, err := b.Client.Position(t.Context())
		b.must(err)
		part.begin()
		b.killedAt(m, after, 1+random.IntN(part.events), "node.provision."+part.end)
		b.WaitState(m.Node, part.end)
		if part.end == "deployed" {
			isDeployed(t, b, m)
			continue
		}
		isOff(t, m)
		isWiped(t, b, m)
		proven(t, b, m)
	}
	b.await("four starts of metald", func() bool { return strings.Count(b.Planes[0].Said(), "authority=") == 4 })
	b.Verify()
}

// killedAt kills metald as soon as so many things have happened to a machine behind a position, or the last of them, and starts
// it again.
func (b *Bench) killedAt(m *Machine, after uint64, events int, last string) {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(b.T.Context(), patience)
	defer cancel()
	seen := 0
	for e, err := range b.Client.Follow(ctx, client.Feed{After: &after, Node: m.Node}) {
		b.must(err)
		if seen++; seen == events || e.Type == last {
			b.T.Logf("killed after %d events, at %s", seen, e.Type)
			b.Planes[0].Kill()
			b.Planes[0].Start()
			return
		}
	}
	b.T.Fatalf("%d events happened in %s, not %d\n%s", seen, patience, events, b.story())
}
