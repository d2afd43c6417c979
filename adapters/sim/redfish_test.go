package sim_test

import (
	"context"
	"crypto/tls"
	"net/http"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/adapters/bmc/redfish"
	"github.com/better-compute/metal/adapters/sim"
	"github.com/better-compute/metal/adapters/sim/bmcsim"
	"github.com/better-compute/metal/domain/node"
)

func insecure(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // self-signed, as controllers are
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// driven is a machine, and the real driver on its controller.
type driven struct {
	*sim.Machine
	agents agents
	bmc    bmc.Machine
}

// eachDriven runs a test through the real driver on every personality.
func eachDriven(t *testing.T, test func(t *testing.T, d driven)) {
	for _, name := range bmcsim.Names() {
		t.Run(string(name), func(t *testing.T) {
			s, runs := site(t, sim.Config{Count: 1, Personalities: []bmcsim.Name{name}})
			m := s.Machines()[0]
			driver := redfish.New(redfish.Options{Poll: 50 * time.Millisecond})
			spec := m.Spec()
			opened, err := driver.Open(t.Context(), bmc.Target{
				Address: m.BMC(), Username: spec.Username, Password: spec.Password,
				TLS: node.TLSPolicy{Mode: node.TLSPinned, Fingerprint: m.Fingerprint()},
			})
			if err != nil {
				t.Fatal(err)
			}
			test(t, driven{m, runs, opened})
			if err := opened.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if err := driver.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if open, most := m.BMCSessions(); open != 0 || most > 1 {
				t.Errorf("%d sessions left, %d at once", open, most)
			}
		})
	}
}

func TestTheDriverIdentifies(t *testing.T) {
	eachDriven(t, func(t *testing.T, d driven) {
		id, err := d.bmc.(bmc.Identifier).Identify(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f := d.Facts()
		if id.UUID != f.UUID || id.Serial != f.Serial || id.SKU != f.Tag || id.Power != node.PowerOff || id.Manufacturer == "" || id.ManagerFirmware == "" {
			t.Errorf("%+v", id)
		}
	})
}

func TestTheDriverInspects(t *testing.T) {
	eachDriven(t, func(t *testing.T, d driven) {
		inventory, err := d.bmc.(bmc.Inspector).Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		h := inventory.Hardware
		macs := map[string]bool{}
		for _, n := range h.NICs {
			macs[n.MAC] = true
		}
		if len(macs) != 2 || !macs[d.MACs()[0]] || !macs[d.MACs()[1]] {
			t.Errorf("NICs %v, notes %v", h.NICs, inventory.Notes)
		}
		spec := d.Spec()
		if h.Cores != spec.Cores || h.MemoryBytes != spec.MemoryBytes || len(h.Disks) != len(spec.Disks) {
			t.Errorf("%+v", h)
		}
		if len(h.Disks) == 2 && spec.Personality != bmcsim.AMI {
			if got := h.Disks[0]; got.Serial != spec.Disks[0].Info.Serial || got.Bytes != spec.Disks[0].Info.Bytes {
				t.Errorf("%+v", got)
			}
		}
		d.toldAlike(t, h)
		readings, err := d.bmc.(bmc.Sensor).Sensors(t.Context())
		if err != nil || len(readings) < 2 {
			t.Errorf("sensors %v %v", readings, err)
		}
	})
}

func TestTheDriverSwitches(t *testing.T) {
	eachDriven(t, func(t *testing.T, d driven) {
		power := d.bmc.(bmc.Powerer)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for _, step := range []struct {
			action  node.PowerAction
			power   node.Power
			changed bool
		}{
			{node.ActionOn, node.PowerOn, true}, {node.ActionOn, node.PowerOn, false}, {node.ActionCycle, node.PowerOn, true},
			{node.ActionOff, node.PowerOff, true}, {node.ActionOff, node.PowerOff, false},
		} {
			got, err := power.SetPower(ctx, step.action, bmc.PowerOptions{Force: true, Graceful: 20 * time.Millisecond})
			if err != nil || got.Power != step.power || got.Changed != step.changed || d.Power() != step.power {
				t.Errorf("%s: %+v %v\n%s", step.action, got, err, console(d.Machine))
			}
		}
	})
}

func TestTheDriverChoosesTheBootDevice(t *testing.T) {
	eachDriven(t, func(t *testing.T, d driven) {
		boot := d.bmc.(bmc.Booter)
		for _, want := range []bmc.BootOverride{
			{Device: bmc.BootNetwork}, {Device: bmc.BootDisk, Persistent: true}, {Device: bmc.BootCD}, {Device: bmc.BootNetwork, Mode: bmc.BootUEFI},
			{Device: bmc.BootUEFIHTTP, HTTPURI: "http://boot.example/boot.efi"},
		} {
			got, err := boot.SetBootDevice(t.Context(), want)
			if err != nil || got.Device != want.Device || got.Persistent != want.Persistent {
				t.Fatalf("%+v: %+v %v", want, got, err)
			}
			if state := d.View().Boot; state.Target != got.Target || (state.Enabled == "Continuous") != want.Persistent || state.Mode != "UEFI" {
				t.Errorf("%+v: the machine has %+v", want, state)
			}
		}
	})
}

func TestTheDriverLoadsMedia(t *testing.T) {
	eachDriven(t, func(t *testing.T, d driven) {
		media := d.bmc.(bmc.MediaLoader)
		for _, image := range []string{"http://images.example/a.iso", "http://images.example/b.iso"} { // the second takes the first's place
			got, err := media.InsertMedia(t.Context(), image)
			if err != nil || got.Image != image || d.View().Media != image {
				t.Fatalf("%+v %v, the machine has %s", got, err, d.View().Media)
			}
		}
		for range 2 { // the second finds nothing to eject
			if err := media.EjectMedia(t.Context()); err != nil || d.View().Media != "" {
				t.Errorf("%v, %+v", err, d.View())
			}
		}
	})
}
