package sim_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/better-compute/metal/adapters/agent"
	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/adapters/sim"
	"github.com/better-compute/metal/adapters/sim/bmcsim"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

func inject(t *testing.T, m *sim.Machine, f sim.Fault) {
	t.Helper()
	if err := m.Inject(f); err != nil {
		t.Fatal(err)
	}
}

func TestHungBoots(t *testing.T) {
	m, runs, _ := installed(t, sim.Config{})
	inject(t, m, sim.Fault{HungBoots: 2})
	for range 2 {
		reset(t, m, bmcsim.ForceRestart)
		await(t, m, "hung", func(sim.View) bool { return strings.HasSuffix(console(m), "hung after the self-test\n") })
		runs.none(t)
	}
	reset(t, m, bmcsim.ForceRestart)
	runs.next(t)
}

func TestNoRejoin(t *testing.T) {
	m, runs, _ := installed(t, sim.Config{})
	inject(t, m, sim.Fault{NoRejoin: true})
	reset(t, m, bmcsim.ForceRestart)
	await(t, m, "without an agent", func(v sim.View) bool {
		return v.Running == sim.OS && strings.HasSuffix(console(m), "the agent does not start\n")
	})
	runs.none(t)
	reset(t, m, bmcsim.GracefulShutdown) // the OS itself is well
	await(t, m, "off", off)
}

func TestADeafMachine(t *testing.T) {
	m, _, a := installed(t, sim.Config{})
	inject(t, m, sim.Fault{IgnoresShutdown: true})
	reset(t, m, bmcsim.GracefulShutdown)
	if m.Power() != node.PowerOn || a.ctx.Err() != nil {
		t.Error("it listens")
	}
}

func TestWrongNICOrder(t *testing.T) {
	m, runs, _ := installed(t, sim.Config{})
	inject(t, m, sim.Fault{WrongNICOrder: true})
	reset(t, m, bmcsim.ForceRestart)
	hardware, err := runs.next(t).o.Machine.Hardware(t.Context())
	if err != nil || hardware.NICs[0].Name != m.Spec().NICs[0].Name || hardware.NICs[0].MAC != m.MACs()[1] {
		t.Errorf("%v %v", hardware.NICs, err)
	}
}

func TestBadMemory(t *testing.T) {
	m, _, a := installed(t, sim.Config{})
	inject(t, m, sim.Fault{BadMemory: true})
	for kind, want := range map[agentcommand.KindName]bool{agentcommand.BurninMemory: true, agentcommand.BurninCPU: false} {
		out, err := a.o.Machine.Burn(t.Context(), kind, agentcommand.Burnin{}, func(float64, string) {})
		if err != nil || len(out.Parts) != 1 || (out.Parts[0].Errors > 0) != want {
			t.Errorf("%s: %+v %v", kind, out, err)
		}
	}
}

func TestDeadDisks(t *testing.T) {
	quiet := func(float64, string) {}
	for _, test := range []struct {
		mode sim.DiskMode
		show func(ctx context.Context, d disk.Device) bool // the fault shows
	}{
		{sim.WritesFail, func(_ context.Context, d disk.Device) bool { _, err := d.WriteAt([]byte{1}, 0); return err != nil }},
		{sim.ReadsFail, func(_ context.Context, d disk.Device) bool { _, err := d.ReadAt(make([]byte, 1), 0); return err != nil }},
		{sim.ReadsGarbage, func(_ context.Context, d disk.Device) bool {
			b := make([]byte, 64)
			_, err := d.ReadAt(b, 4096)
			return err == nil && !bytes.Equal(b, make([]byte, 64))
		}},
		{sim.DiscardLies, func(ctx context.Context, d disk.Device) bool {
			zeroes, err := d.Discard(ctx, 0, 1<<20)
			return err == nil && zeroes && kept(d)
		}},
		{sim.EraseLies, func(ctx context.Context, d disk.Device) bool { return d.CryptoErase(ctx, quiet) == nil && kept(d) }},
		{sim.EraseFails, func(ctx context.Context, d disk.Device) bool { return d.SecureErase(ctx, quiet) != nil && kept(d) }},
	} {
		t.Run(string(test.mode), func(t *testing.T) {
			m, runs, _ := installed(t, sim.Config{})
			inject(t, m, sim.Fault{NoRejoin: false, DeadDisk: &sim.DeadDisk{Disk: 0, Mode: test.mode}})
			reset(t, m, bmcsim.ForceOff)
			if err := m.WriteDisk(1, 0, sim.OSImage(0, "other")); err != nil {
				t.Fatal(err)
			}
			_ = runs
			if !test.show(t.Context(), m.Disk(0)) {
				t.Error("the fault does not show")
			}
			inject(t, m, sim.Fault{Heal: true})
			if _, err := m.Disk(0).WriteAt([]byte("x"), 4096); err != nil {
				t.Error(err)
			}
		})
	}
}

// kept tells whether the OS is still there.
func kept(d disk.Device) bool {
	b := make([]byte, 2)
	_, err := d.ReadAt(b, 510)
	return err == nil && b[0] == 0x55 && b[1] == 0xaa
}

func TestTheAgentDies(t *testing.T) {
	for name, after := range map[string]bool{"before the work": false, "after the work": true} {
		t.Run(name, func(t *testing.T) {
			m, runs, _ := installed(t, sim.Config{})
			inject(t, m, sim.Fault{AgentDiesAt: &sim.Death{Kind: agentcommand.InspectHardware, Nth: 2, After: after}})
			reset(t, m, bmcsim.ForceRestart)
			a := runs.next(t)
			handle := a.o.Kinds[agentcommand.InspectHardware]
			order := agent.Order{Progress: func(float64, string) {}}
			order.Kind, order.Payload = agentcommand.InspectHardware, []byte("{}")
			if _, _, err := handle(a.ctx, order); err != nil || a.ctx.Err() != nil {
				t.Fatal("the first order: ", err)
			}
			if _, _, err := handle(a.ctx, order); err == nil || a.ctx.Err() == nil {
				t.Error("the agent lives")
			}
			if v := m.View(); v.Power != node.PowerOn || v.Running != sim.OS {
				t.Errorf("%+v", v)
			}
			reset(t, m, bmcsim.ForceRestart)
			runs.next(t)
		})
	}
}

func TestAnOrderHangs(t *testing.T) {
	m, runs, _ := installed(t, sim.Config{})
	inject(t, m, sim.Fault{HangsAt: agentcommand.InspectHardware})
	reset(t, m, bmcsim.ForceRestart)
	a := runs.next(t)
	order := agent.Order{Progress: func(float64, string) {}}
	order.Kind, order.Payload = agentcommand.InspectHardware, []byte("{}")
	ctx, stop := context.WithCancel(a.ctx)
	ended := make(chan error, 1)
	go func() {
		_, _, err := a.o.Kinds[agentcommand.InspectHardware](ctx, order)
		ended <- err
	}()
	await(t, m, "hanging", func(sim.View) bool { return strings.Contains(console(m), "the agent hangs at inspect.hardware") })
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) || a.ctx.Err() != nil || m.Orders()[0].Done {
		t.Errorf("an order that was cancelled: %v, the agent's end: %v, done: %v", err, a.ctx.Err(), m.Orders()[0].Done)
	}
	inject(t, m, sim.Fault{Heal: true})
	if _, _, err := a.o.Kinds[agentcommand.InspectHardware](a.ctx, order); err != nil {
		t.Error(err)
	}
}

func TestFaultsAreChecked(t *testing.T) {
	s, _ := site(t, sim.Config{Count: 3})
	for want, f := range map[fault.Code]sim.Fault{
		fault.NotFound:     {Machine: "nobody", HungBoots: 1},
		fault.InvalidInput: {DeadDisk: &sim.DeadDisk{Disk: 9, Mode: "melts"}, AgentDiesAt: &sim.Death{Kind: "x"}, HungBoots: -1},
	} {
		if err := s.Inject(f); fault.CodeOf(err) != want {
			t.Errorf("%v", err)
		}
	}
	if err := s.Inject(sim.Fault{HangsAt: "x"}); fault.CodeOf(err) != fault.InvalidInput {
		t.Errorf("%v", err)
	}
	if err := s.Inject(sim.Fault{Machine: "["}); fault.CodeOf(err) != fault.InvalidInput {
		t.Errorf("%v", err)
	}
}

func TestARuleReachesTheMachinesItNames(t *testing.T) {
	s, _ := site(t, sim.Config{Count: 3})
	if err := s.Inject(sim.Fault{Machine: "machine-[12]", Rule: &bmcsim.Rule{Status: http.StatusTeapot}}); err != nil {
		t.Fatal(err)
	}
	client := insecure(t)
	for i, m := range s.Machines() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, m.BMC()+"/redfish/v1", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if hit := res.StatusCode == http.StatusTeapot; hit != (i < 2) || m.BMCRequests() != 1 {
			t.Errorf("%s answers %d", m.Name(), res.StatusCode)
		}
	}
}
