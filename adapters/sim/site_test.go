package sim_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/better-compute/metal/adapters/agent"
	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/adapters/sim"
	"github.com/better-compute/metal/adapters/sim/bmcsim"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/node"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what should be there soon, on a busy computer.
const patience = time.Minute

// started is one start of an agent. It runs until its context ends.
type started struct {
	ctx context.Context
	o   agent.Options
}

// agents takes the place of the agent runtime, and hands out what was started.
type agents chan started

func (a agents) run(ctx context.Context, o agent.Options) error {
	a <- started{ctx, o}
	<-ctx.Done()
	return nil
}

func (a agents) next(t *testing.T) started {
	t.Helper()
	select {
	case s := <-a:
		return s
	case <-time.After(patience):
		t.Fatal("no agent has started")
		return started{}
	}
}

func (a agents) none(t *testing.T) {
	t.Helper()
	select {
	case s := <-a:
		t.Fatalf("an agent has started as %s", s.o.Role)
	default:
	}
}

func site(t testing.TB, c sim.Config) (*sim.Site, agents) {
	t.Helper()
	started := make(agents, 16)
	if c.Run == nil {
		c.Run = started.run
	}
	if c.Count == 0 && c.Machines == nil {
		c.Count = 1
	}
	s, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, started
}

func reset(t *testing.T, m *sim.Machine, r bmcsim.ResetType) {
	t.Helper()
	if err := m.Reset(r); err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, m *sim.Machine, what string, wanted func(sim.View) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := m.Await(ctx, wanted); err != nil {
		t.Fatalf("%s: never %s: %+v\n%s", m.Name(), what, m.View(), console(m))
	}
}

func console(m *sim.Machine) string {
	var b strings.Builder
	for _, e := range m.Console() {
		fmt.Fprintf(&b, "%s: %s\n", e.Kind, e.Text)
	}
	return b.String()
}

func off(v sim.View) bool { return v.Power == node.PowerOff }

const userData = `#cloud-config
users: []
write_files:
- path: /etc/motd
  content: hello
- path: /etc/bcd/agent.json
  permissions: "0600"
  content: |
    {"gateway": "https://gw.example:7443", "caSha256": "abcd", "token": "join-me"}
`

// install puts an OS on a disk, as a deployment does.
func install(t *testing.T, d disk.Device, config *disk.Config) {
	t.Helper()
	image := sim.OSImage(1<<20, "testos 1")
	digest := sha256.Sum256(image)
	_, err := disk.WriteImage(t.Context(), d, bytes.NewReader(image), disk.Image{
		Digest: "sha256:" + hex.EncodeToString(digest[:]), Format: "raw", Bytes: int64(len(image)), ReadBack: true, Config: config,
	}, func(float64, string) {})
	if err != nil {
		t.Fatal(err)
	}
}

// installed is a machine with an OS on its first disk, started, and the agent of that OS.
func installed(t *testing.T, c sim.Config) (*sim.Machine, agents, started) {
	t.Helper()
	s, runs := site(t, c)
	m := s.Machines()[0]
	install(t, m.Disk(0), &disk.Config{UserData: []byte(userData), Hostname: "web-1"})
	reset(t, m, bmcsim.On)
	return m, runs, runs.next(t)
}

func TestTheSeedDecides(t *testing.T) {
	var told [2][]any
	for i := range told {
		s, _ := site(t, sim.Config{Count: 12, Seed: 7})
		for _, m := range s.Machines() {
			told[i] = append(told[i], m.Spec(), m.Fingerprint())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(told[0], told[1]); d != "" {
		t.Error(d)
	}
	other, _ := site(t, sim.Config{Count: 1, Seed: 8})
	if cmp.Equal(other.Machines()[0].Spec(), told[0][0]) {
		t.Error("another seed gives the same machine")
	}
	seen := map[string]string{}
	s, _ := site(t, sim.Config{Count: 200, Seed: 7})
	for _, m := range s.Machines() {
		spec := m.Spec()
		for _, v := range append(m.MACs(), spec.Serial, spec.UUID, m.Fingerprint(), m.BMC(), spec.Disks[0].Info.WWN, spec.Disks[1].Info.Key()) {
			if at := seen[v]; at != "" {
				t.Errorf("%s has %s of %s", m.Name(), v, at)
			}
			seen[v] = m.Name()
		}
	}
}

func TestTheSameRequestsGiveTheSameConsole(t *testing.T) {
	var consoles [2]string
	for i := range consoles {
		m, runs, first := installed(t, sim.Config{Seed: 3})
		reset(t, m, bmcsim.ForceRestart)
		if again := runs.next(t); again.o.BootID == first.o.BootID {
			t.Error("the same boot id twice")
		}
		reset(t, m, bmcsim.ForceOff)
		consoles[i] = console(m)
	}
	if d := cmp.Diff(consoles[0], consoles[1]); d != "" {
		t.Error(d)
	}
}

func TestAnEmptyMachineBootsNothing(t *testing.T) {
	s, runs := site(t, sim.Config{})
	m := s.Machines()[0]
	reset(t, m, bmcsim.On)
	await(t, m, "idle", func(v sim.View) bool { return v.Power == node.PowerOn && v.Running == sim.Nothing })
	runs.none(t)
	reset(t, m, bmcsim.GracefulShutdown) // nothing listens
	if m.Power() != node.PowerOn {
		t.Error("a machine without a system obeys the power button")
	}
	reset(t, m, bmcsim.ForceOff)
	if m.Power() != node.PowerOff {
		t.Error("on")
	}
}

func TestTheInstalledOSRunsItsAgent(t *testing.T) {
	for name, config := range map[string]*disk.Config{
		"cloud-init": {UserData: []byte(userData), Hostname: "web-1"},
		"ignition": {Kind: disk.KindIgnition, UserData: []byte(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/bcd/agent.json",
			"contents":{"source":"data:,%7B%22gateway%22%3A%22https%3A%2F%2Fgw.example%3A7443%22%2C%22caSha256%22%3A%22abcd%22%2C%22token%22%3A%22join-me%22%7D"}}]}}`)},
	} {
		t.Run(name, func(t *testing.T) {
			s, runs := site(t, sim.Config{})
			m := s.Machines()[0]
			install(t, m.Disk(0), config)
			reset(t, m, bmcsim.On)
			a := runs.next(t)
			if a.o.Gateway != "https://gw.example:7443" || a.o.CA != "abcd" || a.o.Token != "join-me" || a.o.Role != agentcommand.RoleNode {
				t.Errorf("%+v", a.o)
			}
			if want := map[string]string{"cloud-init": "web-1", "ignition": m.Name()}[name]; a.o.Name != want {
				t.Errorf("the host is called %s", a.o.Name)
			}
			if v := m.View(); v.Running != sim.OS || v.OS != "testos 1" || v.BootID != a.o.BootID {
				t.Errorf("%+v", v)
			}
		})
	}
}

func TestAnIdentityGoesWithTheDisk(t *testing.T) {
	m, runs, first := installed(t, sim.Config{})
	id := agent.Identity{AgentID: "agent_1", NodeID: "node_1", Key: bytes.Repeat([]byte{7}, 48), NotAfter: time.Unix(1, 0).UTC()}
	if err := first.o.State.Save(id); err != nil {
		t.Fatal(err)
	}
	reset(t, m, bmcsim.PowerCycle)
	got, ok, err := runs.next(t).o.State.Load()
	if d := cmp.Diff(id, got); d != "" || !ok || err != nil {
		t.Errorf("after a restart: %v %v %s", ok, err, d)
	}
	install(t, m.Disk(0), &disk.Config{UserData: []byte(userData)})
	reset(t, m, bmcsim.PowerCycle)
	if _, ok, _ := runs.next(t).o.State.Load(); ok {
		t.Error("the identity has outlived the image")
	}
	if err := m.Disk(0).SecureErase(t.Context(), func(float64, string) {}); err != nil {
		t.Fatal(err)
	}
	reset(t, m, bmcsim.PowerCycle)
	await(t, m, "idle", func(v sim.View) bool { return v.Power == node.PowerOn && v.Running == sim.Nothing })
	runs.none(t)
}

func TestHowAProgramEnds(t *testing.T) {
	for name, test := range map[string]struct {
		end     func(*sim.Machine, started) error
		off     bool
		tell    bool // the agent may say good-bye
		newBoot bool
	}{
		"force off":     {func(m *sim.Machine, _ started) error { return m.Reset(bmcsim.ForceOff) }, true, false, false},
		"shutdown":      {func(m *sim.Machine, _ started) error { return m.Reset(bmcsim.GracefulShutdown) }, true, true, false},
		"button":        {func(m *sim.Machine, _ started) error { return m.Reset(bmcsim.PushPowerButton) }, true, true, false},
		"force restart": {func(m *sim.Machine, _ started) error { return m.Reset(bmcsim.ForceRestart) }, false, false, true},
		"restart":       {func(m *sim.Machine, _ started) error { return m.Reset(bmcsim.GracefulRestart) }, false, true, true},
		"agent off":     {func(_ *sim.Machine, a started) error { return a.o.Machine.PowerOff(a.ctx) }, true, true, false},
		"agent reboot":  {func(_ *sim.Machine, a started) error { return a.o.Machine.Reboot(a.ctx) }, false, true, true},
		"agent kexec":   {func(_ *sim.Machine, a started) error { return a.o.Machine.Kexec(a.ctx, "") }, false, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			m, runs, first := installed(t, sim.Config{})
			if err := test.end(m, first); err != nil {
				t.Fatal(err)
			}
			<-first.ctx.Done()
			if gone := errors.Is(context.Cause(first.ctx), agent.ErrGone); gone == test.tell {
				t.Errorf("the agent's context ended with %v", context.Cause(first.ctx))
			}
			if test.newBoot {
				if again := runs.next(t); again.o.BootID == first.o.BootID {
					t.Error("the boot id is the same")
				}
			}
			if test.off {
				await(t, m, "off", off)
			}
		})
	}
}

func TestNothingReachesADiskAfterACut(t *testing.T) {
	m, _, a := installed(t, sim.Config{})
	disks, err := a.o.Machine.Disks(t.Context())
	if err != nil || len(disks) != 2 {
		t.Fatal(disks, err)
	}
	if _, err := disks[1].WriteAt([]byte("before"), 0); err != nil {
		t.Fatal(err)
	}
	reset(t, m, bmcsim.ForceOff)
	if _, err := disks[1].WriteAt([]byte("after!"), 0); err == nil {
		t.Error("a write without power")
	}
	if b, _ := m.ReadDisk(1, 0, 6); string(b) != "before" {
		t.Errorf("%q", b)
	}
}

func TestOverrides(t *testing.T) {
	for _, test := range []struct {
		enabled  string
		wantOnce bool
	}{{"Once", true}, {"Continuous", false}} {
		t.Run(test.enabled, func(t *testing.T) {
			m, runs, _ := installed(t, sim.Config{})
			m.SetBoot(bmcsim.Boot{Enabled: test.enabled, Target: "BiosSetup", Mode: "UEFI"})
			reset(t, m, bmcsim.ForceRestart)
			await(t, m, "in setup", func(v sim.View) bool { return strings.HasSuffix(console(m), "boot: setup\n") })
			runs.none(t)
			reset(t, m, bmcsim.ForceRestart)
			if test.wantOnce {
				if a := runs.next(t); a.o.Role != agentcommand.RoleNode || m.View().Boot.Enabled != "Disabled" {
					t.Errorf("%+v", m.View())
				}
				return
			}
			await(t, m, "in setup again", func(v sim.View) bool { return strings.Count(console(m), "boot: setup\n") == 2 })
			if got := m.View().Boot.Target; got != "BiosSetup" {
				t.Errorf("override %s", got)
			}
		})
	}
}

// steps is a clock on which sleeping takes until the test says so.
type steps struct {
	mu    sync.Mutex
	slept []time.Duration
	go1   chan struct{}
}

func (c *steps) Now() time.Time { return time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC) }

func (c *steps) Sleep(ctx context.Context, d time.Duration) error {
	c.mu.Lock()
	c.slept = append(c.slept, d)
	c.mu.Unlock()
	select {
	case <-c.go1:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestDelays(t *testing.T) {
	clock := &steps{go1: make(chan struct{})}
	s, runs := site(t, sim.Config{Clock: clock, Delays: sim.Delays{POST: time.Minute, Boot: 30 * time.Second, Shutdown: 5 * time.Second}})
	m := s.Machines()[0]
	install(t, m.Disk(0), &disk.Config{UserData: []byte(userData)})
	reset(t, m, bmcsim.On)
	await(t, m, "in POST", func(sim.View) bool { return m.State().Posting })
	runs.none(t)
	clock.go1 <- struct{}{}
	await(t, m, "booting", func(v sim.View) bool { return v.Running == sim.OS })
	runs.none(t)
	clock.go1 <- struct{}{}
	a := runs.next(t)
	reset(t, m, bmcsim.GracefulShutdown)
	if a.ctx.Err() != nil {
		t.Error("a shutdown takes no time")
	}
	clock.go1 <- struct{}{}
	await(t, m, "off", off)
	if d := cmp.Diff([]time.Duration{time.Minute, 30 * time.Second, 5 * time.Second}, clock.slept); d != "" {
		t.Error(d)
	}
}

func TestWrongConfigurations(t *testing.T) {
	for name, c := range map[string]sim.Config{
		"both":        {Count: 1, Machines: []sim.MachineSpec{{}}},
		"negative":    {Count: -1},
		"personality": {Count: 1, Personalities: []bmcsim.Name{"toaster"}},
		"listen":      {Count: 1, Listen: "nowhere"},
		"twice":       {Machines: []sim.MachineSpec{{Name: "a"}, {Name: "a"}}},
		"spec":        {Machines: []sim.MachineSpec{{Personality: "toaster"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if s, err := sim.New(c); err == nil {
				_ = s.Close()
				t.Error("no error")
			}
		})
	}
}

func TestTwoHundredMachinesAreSmall(t *testing.T) {
	s, _ := site(t, sim.Config{Count: 200})
	for _, m := range s.Machines() {
		reset(t, m, bmcsim.On)
	}
	for _, m := range s.Machines() {
		await(t, m, "idle", func(v sim.View) bool { return v.Power == node.PowerOn && v.Running == sim.Nothing })
	}
	t.Logf("200 machines: %d MiB", small(t))
}

// small holds this process to half of a GiB of live memory, so that it keeps within one whatever the collector does. It
// gives the MiB.
func small(t *testing.T) int {
	t.Helper()
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	mib := int((m.HeapAlloc + m.StackInuse) >> 20)
	if mib > 512 {
		t.Errorf("%d MiB are in use", mib)
	}
	return mib
}

func TestDisksInFilesOutliveTheSite(t *testing.T) {
	dir := t.TempDir()
	config := sim.Config{Count: 1, DiskDir: dir, Seed: 4}
	m, runs, first := installed(t, config)
	if err := first.o.State.Save(agent.Identity{AgentID: "agent_1"}); err != nil {
		t.Fatal(err)
	}
	reset(t, m, bmcsim.ForceOff)
	_ = runs

	again, runs := site(t, config) // as after the first was killed
	m = again.Machines()[0]
	reset(t, m, bmcsim.On)
	if id, ok, err := runs.next(t).o.State.Load(); !ok || err != nil || id.AgentID != "agent_1" {
		t.Errorf("%+v %v %v", id, ok, err)
	}
	reset(t, m, bmcsim.ForceOff)
	config.DiskBytes = 32 << 20
	if s, err := sim.New(config); err == nil {
		_ = s.Close()
		t.Error("a disk of another size is taken")
	}
}

// TestDisksAreAlike holds a disk in a file to what one in memory does.
func TestDisksAreAlike(t *testing.T) {
	quiet := func(float64, string) {}
	ctx := t.Context()
	var told [2]string
	for i, dir := range []string{"", t.TempDir()} {
		s, _ := site(t, sim.Config{DiskDir: dir, DiskBytes: 8 << 20})
		m := s.Machines()[0]
		note := func(what string, d disk.Device, err error) {
			b := make([]byte, 8<<20)
			n, readErr := d.ReadAt(b, 0)
			told[i] += fmt.Sprintf("%s: %v; %d %v %x\n", what, err, n, readErr, sha256.Sum256(b))
		}
		for number := range 2 {
			d := m.Disk(number)
			_, err := d.WriteAt(bytes.Repeat([]byte("x"), 3<<20), 1000)
			note("write", d, err)
			_, err = d.WriteAt([]byte("12345678"), d.Info().Bytes-4)
			note("write over the end", d, err)
			_, err = d.ReadAt(make([]byte, 8), d.Info().Bytes-4)
			note("read over the end", d, err)
			zero, err := d.Discard(ctx, 4096, 1<<20)
			note(fmt.Sprintf("discard %v", zero), d, err)
			note("zero", d, d.(interface {
				WriteZeroes(context.Context, int64, int64) error
			}).WriteZeroes(ctx, 5000, 70000))
			inject(t, m, sim.Fault{DeadDisk: &sim.DeadDisk{Disk: number, Mode: sim.EraseLies}})
			note("erase, a lie", d, d.SecureErase(ctx, quiet))
			inject(t, m, sim.Fault{Heal: true})
			note("erase", d, d.SecureErase(ctx, quiet))
			note("sync", d, d.Sync(ctx))
			inject(t, m, sim.Fault{DeadDisk: &sim.DeadDisk{Disk: number, Mode: sim.WritesFail}})
			_, err = d.WriteAt([]byte("x"), 0)
			note("broken", d, err)
			note("crypto", d, d.CryptoErase(ctx, quiet))
		}
	}
	if d := cmp.Diff(told[0], told[1]); d != "" {
		t.Error(d)
	}
}
