//go:build qemu

package machine

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/netboot"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/test/lab"
	"github.com/better-compute/metal/test/machine/netns"
	"github.com/better-compute/metal/test/machine/qemu"
)

// The tests of this file are the full suite, make test-machine-full.

// The site has a DHCP server of its own; its agent says beside it what to boot. The firmware is of three kinds, none of which is
// iPXE: its network card has no program of its own.
func TestFullFirmware(t *testing.T) {
	const address, server = netns.Address, "10.77.0.2"
	a := openAssets(t)
	dhcp := plug(t, "lab0dhcp", server)
	served := make(chan error, 1)
	go func() {
		served <- dhcp.GiveAddresses(t.Context(), netip.MustParseAddr(server), netip.MustParseAddr("10.77.0.100"))
	}()
	t.Cleanup(func() {
		if err := <-served; err != nil { // the test's context has ended
			t.Error(err)
		}
	})
	b := start(t, a, lab.Options{Host: address, SiteFlags: append(bootFlags(a, address, netns.Bridge), "--dhcp", "proxy")})

	const bare = "virtio-net-pci,romfile="
	byHTTP := b.Add(func(s *qemu.Spec) {
		s.UEFI, s.Card, s.Disks[0].Bus = true, bare, qemu.SCSI
		s.Arguments = []string{ // else it tries PXE for a minute first
			"-fw_cfg", "name=opt/org.tianocore/IPv4PXESupport,string=n", "-fw_cfg", "name=opt/org.tianocore/IPv6PXESupport,string=n",
		}
	})
	byPXE := b.Add(func(s *qemu.Spec) { s.UEFI, s.Card, s.Disks[0].Bus = true, bare, qemu.NVMe })
	chained := b.Add(func(s *qemu.Spec) { // a BIOS whose PXE program does not say that it is iPXE, on an old board
		s.Chipset, s.Card, s.Disks[0].Bus = "pc", bare, qemu.IDE
		s.NetworkArguments = []string{"-kernel", a.IPXEKernel(), "-append", "set user-class PXE && autoboot"}
	})
	t.Run("at once", func(t *testing.T) {
		for name, test := range map[string]struct {
			machine *Machine
			loader  string // as the agent says it
			release func(t *testing.T, b *Bench, m *Machine)
		}{
			"UEFI HTTP boot, a SCSI disk":   {byHTTP, "uefi-x86-64 by http: http://", quickly},
			"UEFI PXE, an NVMe disk":        {byPXE, "uefi-x86-64 by pxe: snponly.efi", notByItsKey},
			"BIOS to undionly, an IDE disk": {chained, "bios by pxe: undionly.kpxe", quickly},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b, m := b.on(t), test.machine
				ready(t, b, m)
				if said := b.SiteAgent.Said(); !strings.Contains(said, test.loader) {
					t.Errorf("%s did not boot by %s", m.Name, test.loader)
				}
				deployed(t, b, m)
				test.release(t, b, m)
			})
		}
	})
	b.Verify()
}

func quickly(t *testing.T, b *Bench, m *Machine) {
	t.Helper()
	released(t, b, m, "quick")
}

// notByItsKey asks for a crypto-erase of a disk that has no key, though its commands would let one believe it: the machine is not
// wiped by less than was asked for, and stays out of the pool until somebody decides.
func notByItsKey(t *testing.T, b *Bench, m *Machine) {
	t.Helper()
	n, err := b.Client.GetNode(t.Context(), m.Node)
	b.must(err)
	b.Undeploy(m.Node, "crypto-erase")
	failed(t, b, m, "releasing", fault.UnverifiedWipe, "wipe", "can't throw a key away")
	if said := osSaid(b, m); !strings.HasPrefix(said, "labos") {
		t.Errorf("the OS says %q: something was wiped", said)
	}
	neverReady(t, b, m, n.Position)
}

// plug plugs another computer into the machines' network.
func plug(t *testing.T, port, address string) *netns.Host {
	t.Helper()
	host, err := netns.NewHost(port, address)
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// A machine of what servers and desktops of any age have: an e1000, AHCI, and the distribution's kernel for any machine.
func TestFullGenericKernel(t *testing.T) {
	a, err := openAssets(t).Generic()
	if err != nil {
		t.Fatal(err)
	}
	b := start(t, a, bridged(a))
	m := b.Add(func(s *qemu.Spec) { s.Card, s.Disks[0].Bus, s.MemoryMiB = "e1000", qemu.IDE, 1024 })
	ready(t, b, m)
	deployed(t, b, m)
	released(t, b, m, "secure-erase")
	b.Verify()
}

// Eight machines have their lives at the same time.
func TestFullEightAtOnce(t *testing.T) {
	a := openAssets(t)
	o := bridged(a)
	o.Patience, o.RamdiskWithin, o.WipeWithin = 20*time.Minute, 15*time.Minute, 5*time.Minute
	b := start(t, a, o)
	var machines []*Machine
	for range 8 {
		machines = append(machines, b.Add(func(*qemu.Spec) {}))
	}
	began := time.Now()
	t.Run("at once", func(t *testing.T) {
		for _, m := range machines {
			t.Run(m.Name, func(t *testing.T) {
				t.Parallel()
				b := b.on(t)
				ready(t, b, m)
				deployed(t, b, m)
				released(t, b, m, "quick")
			})
		}
	})
	t.Logf("eight lives in %s", time.Since(began).Round(time.Second))
	b.Verify()
}

// Of two agents, each on a computer of its own, the one that serves network boot is killed while a machine boots: once when the
// machine has its script and loads from the agent, and once when its kernel runs and it has no token yet.
func TestFullAnotherSiteAgentTakesOver(t *testing.T) {
	const second = "10.77.0.2"
	a := openAssets(t)
	host := plug(t, "lab0site", second)
	slow := []string{"--boot-rate", "4M"} // kernel and ramdisk take ten seconds
	b := start(t, a, lab.Options{
		Host: netns.Address, SiteFlags: slices.Concat(slow, bootFlags(a, netns.Address, netns.Bridge), serverFlags("100", "149")),
		Elsewhere: []lab.Place{{
			Host: second, Within: host.Within, Flags: slices.Concat(slow, bootFlags(a, second, netns.HostPort), serverFlags("150", "200")),
		}},
	})
	m := b.Add(func(*qemu.Spec) {})
	soil(t, b, m)

	loading := b.holderDies(m, func(p *lab.Program, before string) bool {
		return strings.Contains(p.Said()[len(before):], "a machine boots from the network")
	})
	b.Enroll(m)
	loading()
	b.WaitState(m.Node, "ready")
	for _, p := range []*lab.Program{b.SiteAgent, b.Others[0]} { // it went on with the script of the other
		if !strings.Contains(p.Said(), "a machine boots from the network") {
			t.Errorf("%s has had a script of one agent only:\n%s", m.Name, m.Story(200))
		}
	}

	said := len(b.said(m))
	running := b.holderDies(m, func(*lab.Program, string) bool { return strings.Contains(b.said(m)[said:], "Linux version") })
	b.Deploy(m.Node)
	running()
	b.WaitState(m.Node, "deployed")
	isDeployed(t, b, m)
	released(t, b, m, "quick")
	b.Verify()
}

// holderDies has the agent with the boot lease killed once something has happened since now, and waits until the other has the
// lease. The dead one is started again.
func (b *Bench) holderDies(m *Machine, happened func(holder *lab.Program, before string) bool) (wait func()) {
	b.T.Helper()
	first := b.BootHolder("")
	dead := b.BootServers(first)[first]
	before := dead.Said()
	return func() {
		b.T.Helper()
		b.await(m.Name+" to boot", func() bool { return happened(dead, before) })
		dead.Kill()
		killed := time.Now()
		second := b.BootHolder(first)
		b.T.Logf("%s was killed, and %s has the lease after %s", first, second, time.Since(killed).Round(100*time.Millisecond))
		dead.Start()
	}
}

// A machine with disks of four kinds: all are wiped and accounted for, and the OS goes to the one that is asked for.
func TestFullDisks(t *testing.T) {
	sideBySide(t)
	b := StartUser(t, nil)
	m := b.Add(func(s *qemu.Spec) {
		s.Network, s.Chipset, s.Disks = "user,bootfile="+netboot.ScriptURL(b.Boot, s.MAC), "pc", nil
		for i, bus := range []qemu.Bus{qemu.Virtio, qemu.NVMe, qemu.SCSI, qemu.IDE} {
			s.Disks = append(s.Disks, qemu.Disk{Serial: fmt.Sprintf("DISK-%d", i), Bytes: 64 << 20, Bus: bus})
		}
	})
	ready(t, b, m)
	for i, d := range m.spec.Disks {
		name := fmt.Sprintf("to-disk-%d", i)
		b.DeployProfile(name, "host@1", func(step map[string]any) {
			if step["use"] == "deploy.deploy" {
				step["with"] = map[string]any{"disk": map[string]any{"serial": d.Serial}}
			}
		})
		m.System = i
		b.deploy(m, name)
		b.WaitState(m.Node, "deployed")
		isDeployed(t, b, m)
		for other := range m.spec.Disks {
			if other != i && slices.ContainsFunc(b.Disk(m, other), func(c byte) bool { return c != 0 }) {
				t.Errorf("the OS went to %s, and something is on disk %d", d.Serial, other)
			}
		}
		released(t, b, m, []string{"quick", "secure-erase"}[i%2])
	}
	b.Verify()
}

// A customer locked himself out: his machine boots the rescue ramdisk and no disk of it is written; then his OS again.
func TestFullRescue(t *testing.T) {
	sideBySide(t)
	b := StartUser(t, nil)
	m := b.Add(func(s *qemu.Spec) {
		s.UEFI, s.Disks[0].Bus, s.Network = true, qemu.NVMe, "user,bootfile="+netboot.ScriptURL(b.Boot, s.MAC)
	})
	ready(t, b, m)
	deployed(t, b, m)

	n, err := b.Client.Rescue(t.Context(), m.Node)
	b.must(err)
	left := b.Disk(m, 0)
	b.await("the rescue ramdisk's agent", func() bool { return b.hasAgent(m, "ramdisk") })
	b.await("the end of the way into rescue", func() bool { return b.Workflow(m.Node).State == "succeeded" })
	if changed := blocksThatDiffer(left, b.Disk(m, 0)); changed > 8 { // what the OS wrote while it ended
		t.Errorf("%d blocks of the disk are not as they were", changed)
	}
	if said := osSaid(b, m); !strings.HasPrefix(said, "labos booted 1 times") {
		t.Errorf("the OS says %q", said)
	}

	_, err = b.Client.Unrescue(t.Context(), m.Node)
	b.must(err)
	b.WaitState(m.Node, "deployed")
	b.osBoot(m, "")
	if said := osSaid(b, m); !strings.HasPrefix(said, "labos booted 2 times") {
		t.Errorf("the OS says %q", said)
	}
	if boot := m.State().Boot; boot.Enabled != "Continuous" || boot.Target != "Hdd" {
		t.Errorf("the machine boots from %s %s from now on", boot.Enabled, boot.Target)
	}
	neverReady(t, b, m, n.Position)
	released(t, b, m, "secure-erase")
	b.Verify()
}

// hasAgent tells whether an agent of a role is connected.
func (b *Bench) hasAgent(m *Machine, role string) bool {
	b.T.Helper()
	for agent, err := range b.Client.Agents(b.T.Context(), "", m.Node, role) {
		b.must(err)
		if agent.Connected {
			return true
		}
	}
	return false
}
