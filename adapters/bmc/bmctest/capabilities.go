package bmctest

import (
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/adapters/bmc"
)

func boot(t *testing.T, x *trial) {
	c, ok := capable[bmc.Booter](x)
	if !ok {
		return
	}
	done := 0
	for _, device := range bmc.BootDevices {
		for _, persistent := range []bool{false, true} {
			for _, mode := range []bmc.BootMode{"", bmc.BootUEFI} {
				o := bmc.BootOverride{Device: device, Persistent: persistent, Mode: mode}
				if device == bmc.BootUEFIHTTP {
					o.HTTPURI = "https://boot.example/ipxe.efi"
				}
				if x.bootOnce(c, o) {
					done++
				}
			}
		}
	}
	if done == 0 {
		t.Error("there is no boot device at all")
	}
}

// bootOnce sets one override, where the machine has that.
func (x *trial) bootOnce(c bmc.Booter, o bmc.BootOverride) bool {
	x.t.Helper()
	set, err := c.SetBootDevice(x.context(), o)
	if err != nil {
		x.reason(err, bmc.Unsupported)
		return false
	}
	if set.Device != o.Device || (set.Persistent != o.Persistent && set.Note == "") || (o.Mode != "" && set.Mode != o.Mode && set.Note == "") {
		x.t.Errorf("%+v became %+v", o, set)
	}
	got, err := c.BootOverride(x.context())
	if err != nil {
		x.t.Fatal(err)
	}
	if got.Device != o.Device || got.Persistent != set.Persistent || got.Target != set.Target {
		x.t.Errorf("%+v was set; %+v is held", set, got)
	}
	return true
}

func bootRefused(_ *testing.T, x *trial) {
	c, ok := capable[bmc.Booter](x)
	if !ok {
		return
	}
	for _, o := range []bmc.BootOverride{
		{}, {Device: "floppy"}, {Device: bmc.BootNetwork, Mode: "bios"},
		{Device: bmc.BootUEFIHTTP, Mode: bmc.BootLegacy, HTTPURI: "https://boot.example/a"},
	} {
		_, err := c.SetBootDevice(x.context(), o)
		x.reason(err, bmc.Unsupported)
	}
}

func media(t *testing.T, x *trial) {
	c, ok := capable[bmc.MediaLoader](x)
	if !ok || x.Image == "" {
		return
	}
	for range 2 { // over an empty drive, and over itself
		got, err := c.InsertMedia(x.context(), x.Image)
		if err != nil {
			t.Fatal(err)
		}
		if !got.Inserted || got.Slot == "" {
			t.Errorf("%+v", got)
		}
	}
	for range 2 {
		if err := c.EjectMedia(x.context()); err != nil {
			t.Fatal(err)
		}
	}
}

var normalMAC = regexp.MustCompile(`^([0-9a-f]{2}:){5}[0-9a-f]{2}$`)

func inventory(t *testing.T, x *trial) {
	c, ok := capable[bmc.Inspector](x)
	if !ok {
		return
	}
	got, err := c.Inspect(x.context())
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{"processors", "memory", "drives", "nics"} {
		if !slices.Contains([]string{"complete", "partial", "absent"}, got.Sources[source]) {
			t.Errorf("the source of %s is %q", source, got.Sources[source])
		}
	}
	seen := map[string]bool{}
	for _, n := range got.Hardware.NICs {
		if !normalMAC.MatchString(n.MAC) || seen[n.MAC] {
			t.Errorf("the MAC %q is not normal, or twice", n.MAC)
		}
		seen[n.MAC] = true
	}
	for _, d := range got.Hardware.Disks {
		if key := d.Key(); key == "path:" || seen[key] {
			t.Errorf("the disk %+v can't be told from another", d)
		} else {
			seen[key] = true
		}
	}
	again, err := c.Inspect(x.context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, again); diff != "" {
		t.Errorf("asked twice: %s", diff)
	}
	x.secret(got)
}

func sensors(t *testing.T, x *trial) {
	c, ok := capable[bmc.Sensor](x)
	if !ok {
		return
	}
	all, err := c.Sensors(x.context())
	if err != nil {
		t.Fatal(err)
	}
	units := map[string][]string{"temperature": {"Cel"}, "fan": {"RPM", "%"}, "voltage": {"V"}, "power": {"W"}}
	for _, r := range all {
		if r.Name == "" || !slices.Contains(units[r.Kind], r.Unit) {
			t.Errorf("%+v", r)
		}
	}
}
