package sim_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/agent"
	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/adapters/bmc/redfish"
	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/adapters/netboot"
	"github.com/better-compute/metal/adapters/sim"
	"github.com/better-compute/metal/adapters/sim/bmcsim"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/node"
)

// estate is a simulated site with everything around it: the real driver, the real agents, a boot server, images.
type estate struct {
	site    *sim.Site
	plane   *plane
	entries *netboot.Entries
	driver  *redfish.Driver
	image   []byte
	digest  string
	url     string
}

func newEstate(t testing.TB, c sim.Config) *estate {
	t.Helper()
	e := &estate{plane: newPlane(t), entries: netboot.NewEntries(time.Now), image: sim.OSImage(256<<10, "testos 2")}
	digest := sha256.Sum256(e.image)
	e.digest = "sha256:" + hex.EncodeToString(digest[:])
	boots := &netboot.Server{Entries: e.entries, Gateway: e.plane.url, CA: e.plane.ca, Logger: slog.New(slog.DiscardHandler)}
	mux := http.NewServeMux()
	mux.Handle("/boot/", boots.Handler())
	mux.HandleFunc("/os.raw", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(e.image) })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	boots.URL, e.url = server.URL, server.URL
	c.BootURL, c.Run = server.URL, agent.Run
	e.site, _ = site(t, c)
	e.driver = redfish.New(redfish.Options{Poll: 250 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() {
		if err := e.driver.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return e
}

func (e *estate) open(ctx context.Context, m *sim.Machine) (bmc.Machine, error) {
	spec := m.Spec()
	return e.driver.Open(ctx, bmc.Target{
		Address: m.BMC(), Username: spec.Username, Password: spec.Password, TLS: node.TLSPolicy{Mode: node.TLSPinned, Fingerprint: m.Fingerprint()},
	})
}

// ramdisk boots a machine into the ramdisk. It is off when its entry is made: a boot that is under way would take the token.
func (e *estate) ramdisk(ctx context.Context, m *sim.Machine, opened bmc.Machine) (boot string, err error) {
	e.plane.mu.Lock()
	last := e.plane.boots[m.Name()]
	e.plane.mu.Unlock()
	power := opened.(bmc.Powerer)
	if _, err := power.SetPower(ctx, node.ActionOff, bmc.PowerOptions{Force: true}); err != nil {
		return "", err
	}
	if err := e.entries.Set(netboot.Entry{
		NodeID: m.Name(), MACs: m.MACs(), Kernel: "vmlinuz", Initrd: "initrd", Token: m.Name(), ExpiresAt: time.Now().Add(time.Hour),
	}); err != nil {
		return "", err
	}
	if _, err := opened.(bmc.Booter).SetBootDevice(ctx, bmc.BootOverride{Device: bmc.BootNetwork}); err != nil {
		return "", err
	}
	if _, err := power.SetPower(ctx, node.ActionOn, bmc.PowerOptions{}); err != nil {
		return "", err
	}
	return e.plane.member(ctx, m.Name(), agentcommand.RoleRamdisk, last)
}

// deploy wipes a machine, writes the OS and starts it.
func (e *estate) deploy(ctx context.Context, m *sim.Machine, ramdisk string) (boot string, err error) {
	for kind, payload := range map[agentcommand.KindName]any{agentcommand.InspectHardware: agentcommand.Inspect{}} {
		if _, err := e.plane.order(ctx, m.Name(), kind, payload); err != nil {
			return "", err
		}
	}
	if _, err := e.plane.order(ctx, m.Name(), agentcommand.DiskWipe, agentcommand.WipeDisks{Method: "quick"}); err != nil {
		return "", err
	}
	if _, err := e.plane.order(ctx, m.Name(), agentcommand.ImageWrite, agentcommand.WriteImage{
		URL: e.url + "/os.raw", Digest: e.digest, Format: "raw", Bytes: int64(len(e.image)), UserDataRef: "secret:1", Hostname: "host-" + m.Name(), ReadBack: true,
	}); err != nil {
		return "", err
	}
	if _, err := e.plane.order(ctx, m.Name(), agentcommand.BootKexec, agentcommand.Kexec{}); err != nil {
		return "", err
	}
	return e.plane.member(ctx, m.Name(), agentcommand.RoleNode, ramdisk)
}

// live is one life: from off to a deployed OS, rebooted, and wiped again.
func (e *estate) live(ctx context.Context, m *sim.Machine) error {
	opened, err := e.open(ctx, m)
	if err != nil {
		return err
	}
	defer func() { _ = opened.Close(ctx) }()
	ramdisk, err := e.ramdisk(ctx, m, opened)
	if err != nil {
		return err
	}
	os, err := e.deploy(ctx, m, ramdisk)
	if err != nil {
		return err
	}
	if v := m.View(); v.Running != sim.OS || v.OS != "testos 2" {
		return fmt.Errorf("%s runs %+v", m.Name(), v)
	}
	if _, err := e.plane.order(ctx, m.Name(), agentcommand.NodeReboot, agentcommand.Reboot{}); err != nil {
		return err
	}
	if _, err := e.plane.member(ctx, m.Name(), agentcommand.RoleNode, os); err != nil {
		return err
	}
	if _, err = e.ramdisk(ctx, m, opened); err != nil {
		return err
	}
	if _, err := e.plane.order(ctx, m.Name(), agentcommand.DiskWipe, agentcommand.WipeDisks{Method: "quick"}); err != nil {
		return err
	}
	if _, err := opened.(bmc.Powerer).SetPower(ctx, node.ActionOff, bmc.PowerOptions{Force: true}); err != nil {
		return err
	}
	return nil
}

// everyLife lets every machine of an estate live once, so many at a time.
func (e *estate) everyLife(ctx context.Context, atOnce int) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	slots := make(chan struct{}, atOnce)
	for _, m := range e.site.Machines() {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, 5*patience)
			defer cancel()
			if err := e.live(ctx, m); err != nil {
				mu.Lock()
				failed = errors.Join(failed, fmt.Errorf("%s (%s): %w\n%s", m.Name(), m.Spec().Personality, err, console(m)))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return failed
}

func TestALifeOnEveryPersonality(t *testing.T) {
	e := newEstate(t, sim.Config{Count: len(bmcsim.Names())})
	if err := e.everyLife(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	machines := len(e.site.Machines())
	if e.plane.joins != 3*machines { // two ramdisks and an OS, whose reboot keeps its identity
		t.Errorf("%d joins of %d machines", e.plane.joins, machines)
	}
	for _, m := range e.site.Machines() {
		if b, err := m.ReadDisk(0, 0, 1<<20); err != nil || strings.Trim(string(b), "\x00") != "" {
			t.Errorf("%s: the disk is not empty: %v", m.Name(), err)
		}
	}
}

// BenchmarkLives is how quickly whole lives go: simulator, agents, driver and the small control plane together.
func BenchmarkLives(b *testing.B) {
	e := newEstate(b, sim.Config{Count: 64})
	lives := 0
	for b.Loop() {
		if err := e.everyLife(b.Context(), 16); err != nil {
			b.Fatal(err)
		}
		lives += len(e.site.Machines())
	}
	b.ReportMetric(float64(lives)/b.Elapsed().Minutes(), "lives/min")
}

func TestTheAgentDiesInTheWipe(t *testing.T) {
	e := newEstate(t, sim.Config{})
	m := e.site.Machines()[0]
	inject(t, m, sim.Fault{AgentDiesAt: &sim.Death{Kind: agentcommand.DiskWipe}})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	opened, err := e.open(ctx, m)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = opened.Close(ctx) }()
	boot, err := e.ramdisk(ctx, m, opened)
	if err != nil {
		t.Fatal(err)
	}
	impatient, stop := context.WithCancel(ctx)
	answered := make(chan error, 1)
	go func() {
		_, err := e.plane.order(impatient, m.Name(), agentcommand.DiskWipe, agentcommand.WipeDisks{Method: "quick"})
		answered <- err
	}()
	await(t, m, "without its agent", func(sim.View) bool { return strings.HasSuffix(console(m), "agent: ended\n") })
	stop()
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Fatalf("a dead agent answers: %v", err)
	}
	e.plane.mu.Lock()
	reason, closed := e.plane.closed[boot]
	delete(e.plane.orders, m.Name())
	e.plane.mu.Unlock()
	if closed {
		t.Errorf("a dead agent says good-bye: %s", reason)
	}
	if _, err := e.ramdisk(ctx, m, opened); err != nil {
		t.Fatal(err)
	}
	if _, err := e.plane.order(ctx, m.Name(), agentcommand.DiskWipe, agentcommand.WipeDisks{Method: "quick"}); err != nil {
		t.Error(err)
	}
}

func TestAWipeThatADiskLiesAbout(t *testing.T) {
	for mode, want := range map[sim.DiskMode]string{
		sim.WritesFail: "input/output error", sim.ReadsGarbage: "not proven", sim.EraseLies: "not proven",
	} {
		t.Run(string(mode), func(t *testing.T) {
			e := newEstate(t, sim.Config{})
			m := e.site.Machines()[0]
			if err := m.WriteDisk(0, 0, sim.OSImage(0, "old")); err != nil {
				t.Fatal(err)
			}
			inject(t, m, sim.Fault{DeadDisk: &sim.DeadDisk{Disk: 0, Mode: mode}})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			opened, err := e.open(ctx, m)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = opened.Close(ctx) }()
			if _, err := e.ramdisk(ctx, m, opened); err != nil {
				t.Fatal(err)
			}
			result, err := e.plane.order(ctx, m.Name(), agentcommand.DiskWipe, agentcommand.WipeDisks{Method: "crypto-erase"})
			if err == nil || !strings.Contains(err.Error()+string(result.Details), want) {
				t.Errorf("%v %s", err, result.Details)
			}
			var told struct{ Disks []node.WipedDisk }
			if err := json.Unmarshal(result.Result, &told); err != nil || len(told.Disks) != 2 || told.Disks[0].ReadBack {
				t.Errorf("%s %v", result.Result, err)
			}
		})
	}
}

func TestTwoHundredDeployedMachinesAreSmall(t *testing.T) {
	e := newEstate(t, sim.Config{Count: 200})
	ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
	defer cancel()
	runtime.GC()
	before := runtime.NumGoroutine()
	for _, m := range e.site.Machines() {
		install(t, m.Disk(0), &disk.Config{UserData: []byte(e.plane.userData(m.Name()))})
		reset(t, m, bmcsim.On)
		if _, err := e.plane.member(ctx, m.Name(), agentcommand.RoleNode, ""); err != nil {
			t.Fatalf("%v\n%s", err, console(m))
		}
	}
	const most = 8 // two of them are the small control plane's
	each := func() float64 { return float64(runtime.NumGoroutine()-before) / 200 }
	for end := time.Now().Add(patience); each() > most; <-time.After(10 * time.Millisecond) { // those of the boots go away
		if time.Now().After(end) {
			t.Fatalf("%.1f goroutines a machine", each())
		}
	}
	mib := small(t)
	t.Logf("200 deployed machines: %d MiB, %.1f goroutines each", mib, each())
}

// TestPowerIsCutAnywhere cuts the power of machines all the time while they are deployed: afterwards each can live as if
// nothing had been.
func TestPowerIsCutAnywhere(t *testing.T) {
	e := newEstate(t, sim.Config{Count: 5})
	var wg sync.WaitGroup
	for i, m := range e.site.Machines() {
		wg.Go(func() {
			resets := []bmcsim.ResetType{bmcsim.ForceOff, bmcsim.ForceRestart, bmcsim.PowerCycle, bmcsim.GracefulShutdown}
			for cut := range 12 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(3+11*((7*cut+i)%13))*time.Millisecond)
				_ = e.live(ctx, m) // it gets as far as it gets
				cancel()
				if err := m.Reset(resets[(cut+i)%len(resets)]); err != nil {
					t.Logf("%s: %v", m.Name(), err) // a restart of what is off
				}
				e.plane.mu.Lock()
				delete(e.plane.orders, m.Name())
				e.plane.mu.Unlock()
			}
		})
	}
	wg.Wait()
	if err := e.everyLife(t.Context(), 5); err != nil {
		t.Error(err)
	}
}
