package machine

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/adapters/sim/bmcsim"
	"github.com/better-compute/metal/test/lab"
	"github.com/better-compute/metal/test/machine/assets"
	"github.com/better-compute/metal/test/machine/netns"
	"github.com/better-compute/metal/test/machine/qemu"
)

// patience is how long a machine may take from one state to another while its processor is emulated.
const patience = 8 * time.Minute

// kernelArguments are the kernel's in every machine. It must not panic where its timer comes late: the processor that emulates it
// has others to do for.
const kernelArguments = "console=ttyS0 panic=-1 no_timer_check"

// Bench is a control plane and a site with real machines.
type Bench struct {
	*lab.Lab
	assets   assets.Assets
	image    []byte // of the OS that is deployed
	host     string // address of the controllers
	dir      string
	machines []*Machine
}

// Machine is one of them, behind its controller.
type Machine struct {
	*qemu.Machine
	Name    string
	Node    string // once it is enrolled
	Port    string // of the bridge that it is plugged into; empty: its network is QEMU's
	System  int    // the number of the disk that the OS goes to
	BMC     *bmcsim.Service
	address string
	spec    qemu.Spec
}

// Start starts everything but machines. The site's agent is the DHCP server of their network.
func Start(t testing.TB) *Bench {
	t.Helper()
	a := openAssets(t)
	return start(t, a, bridged(a))
}

// bridged has the site's agent serve the bridge.
func bridged(a assets.Assets) lab.Options {
	return lab.Options{Host: netns.Address, SiteFlags: append(bootFlags(a, netns.Address, netns.Bridge), serverFlags("100", "200")...)}
}

// bootFlags have an agent serve everything that firmware asks for, at an address behind a port.
func bootFlags(a assets.Assets, address, port string) []string {
	return []string{"--dhcp-interface", port, "--dhcp-no-ipv6", "--dhcp-unknown", "--tftp", address + ":69", "--ipxe-dir", a.IPXE}
}

// serverFlags have it give out addresses, too.
func serverFlags(first, last string) []string {
	return []string{"--dhcp", "server", "--dhcp-range", "10.77.0." + first + "-10.77.0." + last}
}

// seenByUser is this computer, as machines see it in the network that QEMU makes of a user's own connections.
const seenByUser = "10.0.2.2"

// StartUser is Start for machines whose network is QEMU's: it needs no rights and no namespace, and nobody but QEMU answers DHCP.
// The ramdisk is there for virtual drives too. change may be nil.
func StartUser(t testing.TB, change func(*lab.Options)) *Bench {
	t.Helper()
	o := lab.Options{Seen: seenByUser}
	if change != nil {
		change(&o)
	}
	a := openAssets(t)
	return start(t, a, o, "--stub", a.Stub, "--iso")
}

func start(t testing.TB, a assets.Assets, o lab.Options, ramdisk ...string) *Bench {
	t.Helper()
	b := &Bench{assets: a, image: OSImage(t, a), host: cmp.Or(o.Host, "127.0.0.1"), dir: t.TempDir()}
	b.buildRamdisk(t, ramdisk...)
	o.Image, o.Patience, o.Story = b.image, cmp.Or(o.Patience, patience), b.story
	o.RamdiskWithin = cmp.Or(o.RamdiskWithin, 4*time.Minute)
	o.PlaneFlags = append(o.PlaneFlags,
		"--ramdisk-kernel", "vmlinuz", "--ramdisk-initrd", "initramfs", "--ramdisk-arg", kernelArguments,
		"--ramdisk-arg", "metal.lldp-wait=5s") // QEMU's own network has no switch
	o.SiteFlags = append(o.SiteFlags, "--boot-files", b.dir)
	for i := range o.Elsewhere {
		o.Elsewhere[i].Flags = append(o.Elsewhere[i].Flags, "--boot-files", b.dir)
	}
	b.Lab = lab.Start(t, o)
	return b
}

// buildRamdisk makes kernel and initramfs of the distribution's kernel package, as an operator does.
func (b *Bench) buildRamdisk(t testing.TB, more ...string) {
	t.Helper()
	c := exec.Command(lab.Path(t, "bcd"), append([]string{
		"image", "build-ramdisk", "--kernel", b.assets.Kernel, "--modules", b.assets.Modules, "--out", b.dir,
	}, more...)...)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", c.Args, err, out)
	}
}

// Add brings a machine into the site. It is off, and unknown to the control plane.
func (b *Bench) Add(change func(*qemu.Spec)) *Machine {
	b.T.Helper()
	n := len(b.machines) + 1
	m := &Machine{Name: fmt.Sprintf("machine-%d", n)}
	controller := b.controller(func(w http.ResponseWriter, r *http.Request) { m.BMC.ServeHTTP(w, r) })
	m.spec = qemu.Spec{
		Name: m.Name, Serial: fmt.Sprintf("LAB-%d", n), UUID: fmt.Sprintf("6f1c0000-0000-4000-8000-%012d", n),
		Username: "operator", Password: fmt.Sprintf("of-machine-%d", n), Host: controller.Listener.Addr().String(),
		MAC: fmt.Sprintf("52:54:00:6c:00:%02x", n), MemoryMiB: 512, Network: "tap",
		Disks: []qemu.Disk{{Serial: fmt.Sprintf("DISK-%d", n), Bytes: 64 << 20}},
	}
	change(&m.spec)
	if m.spec.Network == "tap" {
		m.Port = fmt.Sprintf("lab0p%d", n)
		tap, err := netns.Tap(m.Port)
		b.must(err)
		b.T.Cleanup(func() { _ = tap.Close() })
		m.spec.Tap = tap
		b.announce(m.Port)
	}
	var err error
	m.Machine, err = qemu.New(b.assets, b.T.TempDir(), m.spec)
	b.must(err)
	b.T.Cleanup(func() {
		m.Close()
		b.T.Log(m.History())
	})
	m.BMC, err = bmcsim.New(m.Machine, bmcsim.Options{Personality: bmcsim.Standard})
	b.must(err)
	controller.StartTLS()
	b.T.Cleanup(controller.Close)
	m.address = controller.URL
	b.machines = append(b.machines, m)
	return m
}

// controller is a server that does not serve yet, where the site's agents reach it.
func (b *Bench) controller(handler http.HandlerFunc) *httptest.Server {
	b.T.Helper()
	listener, err := (&net.ListenConfig{}).Listen(b.T.Context(), "tcp", net.JoinHostPort(b.host, "0"))
	b.must(err)
	return &httptest.Server{Listener: listener, Config: &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}}
}

// announce has the switch say at a port what it is.
func (b *Bench) announce(port string) {
	said := make(chan error, 1)
	go func() { said <- netns.Announce(b.T.Context(), port) }()
	b.T.Cleanup(func() {
		if err := <-said; err != nil { // the test's context has ended
			b.T.Error(err)
		}
	})
}

// Enroll hands a machine over.
func (b *Bench) Enroll(m *Machine) {
	b.T.Helper()
	n, err := b.Client.Enroll(b.T.Context(), contract.Enrollment{
		Pool: b.Pool, Name: m.Name, MACs: []string{m.spec.MAC},
		BMC: contract.BMCAccess{
			Address: m.address, Credentials: contract.Credentials{Username: m.spec.Username, Password: m.spec.Password},
		},
	})
	b.must(err)
	m.Node = n.ID
	b.Enrolled(m.Name, n.ID)
}

// Disk is every byte of a disk, as if it had been taken out.
func (b *Bench) Disk(m *Machine, number int) []byte {
	b.T.Helper()
	bytes, err := os.ReadFile(m.DiskFile(number))
	b.must(err)
	return bytes
}

// osBoot waits until the agent of the installed OS is told to be connected in another boot than the given one, and gives it. The
// read model of agents may be behind the machine's state: who wants to see a boot change waits for the first one, too.
func (b *Bench) osBoot(m *Machine, before string) (boot string) {
	b.T.Helper()
	b.await("the OS's own agent in a boot that is not \""+before+"\"", func() bool {
		for agent, err := range b.Client.Agents(b.T.Context(), "", m.Node, "node") {
			b.must(err)
			if agent.Connected {
				boot = agent.BootID
			}
		}
		return boot != "" && boot != before
	})
	return boot
}

// await waits until something is so.
func (b *Bench) await(what string, is func() bool) {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(b.T.Context(), patience)
	defer cancel()
	for !is() {
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			b.T.Fatalf("waited %s for %s\n%s", patience, what, b.story())
		}
	}
}

// story is what a person looks at when a machine is not where it should be.
func (b *Bench) story() string {
	var all []string
	for _, m := range b.machines {
		all = append(all, m.Story(60))
	}
	return strings.Join(all, "\n")
}

func (b *Bench) must(err error) {
	b.T.Helper()
	if err != nil {
		b.T.Fatal(err)
	}
}

// Write writes to a disk as if it had been taken out.
func (b *Bench) Write(m *Machine, number int, at int64, content []byte) {
	b.T.Helper()
	file, err := os.OpenFile(m.DiskFile(number), os.O_WRONLY, 0)
	b.must(err)
	_, err = file.WriteAt(content, at)
	b.must(err)
	b.must(file.Close())
}
