package sim_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/netboot"
	"github.com/better-compute/metal/adapters/sim"
	"github.com/better-compute/metal/adapters/sim/bmcsim"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/node"
)

// bootServer is a site agent's boot server, with a kernel and a ramdisk.
type bootServer struct {
	*httptest.Server
	entries *netboot.Entries
	missing bool // the kernel is not there
}

func serveBoots(t *testing.T) *bootServer {
	t.Helper()
	b := &bootServer{entries: netboot.NewEntries(time.Now)}
	netbooter := &netboot.Server{Entries: b.entries, Gateway: "https://gw.example:7443", CA: "abcd", Logger: slog.New(slog.DiscardHandler)}
	mux := http.NewServeMux()
	mux.Handle("/", netbooter.Handler())
	mux.HandleFunc("/files/", func(w http.ResponseWriter, _ *http.Request) {
		if b.missing {
			w.WriteHeader(http.StatusNotFound)
		}
	})
	mux.HandleFunc("/ipxe.efi", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "MZ\x00") })
	mux.HandleFunc("/exit.ipxe", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "#!ipxe\nexit\n") })
	mux.HandleFunc("/bad.ipxe", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "#!ipxe\nsanboot http://x\n") })
	b.Server = httptest.NewServer(mux)
	netbooter.URL = b.URL
	t.Cleanup(b.Close)
	return b
}

func (b *bootServer) enter(t *testing.T, m *sim.Machine, macs ...string) {
	t.Helper()
	if len(macs) == 0 {
		macs = m.MACs()
	}
	err := b.entries.Set(netboot.Entry{
		NodeID: "node_" + m.Name(), MACs: macs, Kernel: "vmlinuz", Initrd: "initrd", Token: "token of " + m.Name(), ExpiresAt: time.Now().Add(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
}

func idle(v sim.View) bool { return v.Power == node.PowerOn && v.Running == sim.Nothing }

func TestTheNetworkBootsTheRamdisk(t *testing.T) {
	boots := serveBoots(t)
	s, runs := site(t, sim.Config{BootURL: boots.URL, FetchKernel: true})
	m := s.Machines()[0]
	reset(t, m, bmcsim.On)
	await(t, m, "idle", idle) // no entry: not touched

	boots.enter(t, m, m.MACs()[1]) // the second port's
	m.SetBoot(bmcsim.Boot{Enabled: "Once", Target: "Pxe", Mode: "UEFI"})
	reset(t, m, bmcsim.PowerCycle)
	a := runs.next(t)
	if a.o.Role != agentcommand.RoleRamdisk || a.o.Token != "token of "+m.Name() || a.o.Gateway != "https://gw.example:7443" || a.o.CA != "abcd" {
		t.Errorf("%+v", a.o)
	}
	claims, err := a.o.Machine.Claims(t.Context())
	if err != nil || claims.ProductUUID != m.Spec().UUID || claims.Serial != m.Spec().Serial || len(claims.MACs) != 2 {
		t.Errorf("%+v %v", claims, err)
	}
	if v := m.View(); v.Running != sim.Ramdisk || v.Boot.Enabled != "Disabled" {
		t.Errorf("%+v", v)
	}
	reset(t, m, bmcsim.PowerCycle) // the token is spent, and with it the entry
	await(t, m, "idle", idle)
	runs.none(t)
}

func TestTheOverrideDecidesBetweenDiskAndNetwork(t *testing.T) {
	for target, want := range map[string]agentcommand.Role{"None": agentcommand.RoleNode, "Hdd": agentcommand.RoleNode, "Pxe": agentcommand.RoleRamdisk} {
		t.Run(target, func(t *testing.T) {
			boots := serveBoots(t)
			m, runs, _ := installed(t, sim.Config{BootURL: boots.URL})
			boots.enter(t, m)
			m.SetBoot(bmcsim.Boot{Enabled: "Continuous", Target: target, Mode: "UEFI"})
			reset(t, m, bmcsim.PowerCycle)
			if a := runs.next(t); a.o.Role != want {
				t.Errorf("%s\n%s", a.o.Role, console(m))
			}
			if want == agentcommand.RoleRamdisk { // without an entry the network passes, and the disk is next
				reset(t, m, bmcsim.PowerCycle)
				if a := runs.next(t); a.o.Role != agentcommand.RoleNode {
					t.Errorf("%s\n%s", a.o.Role, console(m))
				}
			}
		})
	}
}

func TestWhatElseCanBeBooted(t *testing.T) {
	for _, test := range []struct {
		name, target, uri, media string
		ramdisk                  bool
		says                     string
	}{
		{"a boot program by HTTP", "UefiHttp", "/ipxe.efi", "", true, ""},
		{"a script that exits", "UefiHttp", "/exit.ipxe", "", false, "exit"},
		{"a script that is not understood", "UefiHttp", "/bad.ipxe", "", false, "not understood"},
		{"nothing there", "UefiHttp", "/nothing/here", "", false, "404"},
		{"virtual CD", "Cd", "", "/ipxe.efi", true, ""},
		{"virtual CD of another maker", "UsbCd", "", "/ipxe.efi", true, ""},
		{"empty drive", "Cd", "", "", false, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			boots := serveBoots(t)
			s, runs := site(t, sim.Config{BootURL: boots.URL, Machines: []sim.MachineSpec{{BootOrder: []sim.Device{sim.FromDisk}}}})
			m := s.Machines()[0]
			boots.enter(t, m)
			override := bmcsim.Boot{Enabled: "Once", Target: test.target, Mode: "UEFI"}
			if test.uri != "" {
				override.HTTPURI = boots.URL + test.uri
			}
			m.SetBoot(override)
			if test.media != "" {
				m.SetMedia(0, bmcsim.Media{Image: boots.URL + test.media, Inserted: true})
			}
			reset(t, m, bmcsim.On)
			if test.ramdisk {
				if a := runs.next(t); a.o.Role != agentcommand.RoleRamdisk {
					t.Error(a.o.Role)
				}
				return
			}
			await(t, m, "idle", idle)
			runs.none(t)
			if !strings.Contains(console(m), test.says) {
				t.Errorf("the console does not say %q:\n%s", test.says, console(m))
			}
		})
	}
}

func TestAMissingKernelBootsNothing(t *testing.T) {
	boots := serveBoots(t)
	boots.missing = true
	s, runs := site(t, sim.Config{BootURL: boots.URL, FetchKernel: true})
	m := s.Machines()[0]
	boots.enter(t, m)
	reset(t, m, bmcsim.On)
	await(t, m, "idle", idle)
	runs.none(t)
}

func TestABootServerThatIsAway(t *testing.T) {
	boots := serveBoots(t)
	boots.Close()
	s, runs := site(t, sim.Config{BootURL: boots.URL})
	m := s.Machines()[0]
	reset(t, m, bmcsim.On)
	await(t, m, "idle", idle)
	runs.none(t)
}
