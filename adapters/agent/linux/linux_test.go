package linux_test

import (
	"os"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/adapters/agent"
	"github.com/better-compute/metal/adapters/agent/linux"
	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

var _ agent.Machine = (*linux.Machine)(nil)

// server is what a machine shows: two real ports, one of them in a bond, and what only looks like ports and disks.
func server() fstest.MapFS {
	out := fstest.MapFS{}
	for name, text := range map[string]string{
		"proc/sys/kernel/random/boot_id":               "5f0c\n",
		"proc/cpuinfo":                                 "processor\t: 0\nmodel name\t: x\n\nprocessor\t: 1\n",
		"proc/meminfo":                                 "MemTotal:       2048 kB\nMemFree:        1 kB\n",
		"sys/class/dmi/id/sys_vendor":                  "Acme\n",
		"sys/class/dmi/id/product_name":                "To Be Filled By O.E.M.\n",
		"sys/class/dmi/id/product_serial":              "SN1\n",
		"sys/class/dmi/id/product_uuid":                "AAAA-BBBB\n",
		"sys/class/net/eth0/type":                      "1\n",
		"sys/class/net/eth0/address":                   "02:00:00:00:00:0A\n",
		"sys/class/net/eth0/device/x":                  "",
		"sys/class/net/eth1/type":                      "1\n",
		"sys/class/net/eth1/address":                   "02:00:00:00:00:0a\n",
		"sys/class/net/eth1/bonding_slave/perm_hwaddr": "02:00:00:00:00:0b\n",
		"sys/class/net/eth1/device/x":                  "",
		"sys/class/net/bond0/type":                     "1\n",
		"sys/class/net/bond0/address":                  "02:00:00:00:00:0a\n",
		"sys/class/net/ib0/type":                       "32\n",
		"sys/class/net/ib0/address":                    "80:00:00\n",
		"sys/class/net/ib0/device/x":                   "",
		"sys/bus/pci/devices/0000:01:00.0/class":       "0x030200\n",
		"sys/bus/pci/devices/0000:01:00.0/vendor":      "0x10de\n",
		"sys/bus/pci/devices/0000:01:00.0/device":      "0x2330\n",
		"sys/bus/pci/devices/0000:02:00.0/class":       "0x030000\n",
		"sys/bus/pci/devices/0000:02:00.0/vendor":      "0x1a03\n",
		"sys/bus/pci/devices/0000:03:00.0/class":       "0x120000\n",
		"sys/bus/pci/devices/0000:03:00.0/vendor":      "0x1002\n",
		"sys/bus/pci/devices/0000:03:00.0/device":      "0x74a1\n",
		"sys/block/nvme0n1/size":                       "4096\n",
		"sys/block/nvme0n1/wwid":                       "eui.01\n",
		"sys/block/nvme0n1/device/model":               "Fast \n",
		"sys/block/nvme0n1/device/serial":              "N1\n",
		"sys/block/sda/size":                           "2048\n",
		"sys/block/sda/queue/rotational":               "1\n",
		"sys/block/sda/device/model":                   "Slow\n",
		"sys/block/sda/device/wwid":                    "naa.5000\n",
		"sys/block/sda/device/vpd_pg80":                "\x00\x80\x00\x04 S1 \x00",
		"sys/block/sdb/size":                           "2048\n",
		"sys/block/sdb/removable":                      "1\n",
		"sys/block/sdb/device/model":                   "Stick\n",
		"sys/block/mmcblk0boot0/size":                  "2048\n",
		"sys/block/mmcblk0boot0/device/x":              "",
		"sys/block/loop0/size":                         "2048\n",
		"sys/block/dm-0/size":                          "2048\n",
	} {
		out[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

func TestInventory(t *testing.T) {
	m, err := linux.Open(server())
	if err != nil || m.BootID() != "5f0c" {
		t.Fatal(m, err)
	}
	got, err := m.Hardware(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := node.Hardware{
		Manufacturer: "Acme", Serial: "SN1", UUID: "aaaa-bbbb", Cores: 2, MemoryBytes: 2 << 20,
		NICs: []node.NIC{{MAC: "02:00:00:00:00:0a", Name: "eth0"}, {MAC: "02:00:00:00:00:0b", Name: "eth1"}},
		Devices: []node.Device{
			{Class: "gpu", Vendor: "10de", Product: "2330"}, {Class: "accelerator", Vendor: "1002", Product: "74a1"},
		},
		Disks: []node.Disk{
			{Path: "/dev/nvme0n1", WWN: "eui.01", Model: "Fast", Serial: "N1", Bytes: 2 << 20},
			{Path: "/dev/sda", WWN: "naa.5000", Model: "Slow", Serial: "S1", Bytes: 1 << 20},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	claims, err := m.Claims(t.Context())
	if diff := cmp.Diff(protocol.Claims{
		MACs: []string{"02:00:00:00:00:0a", "02:00:00:00:00:0b"}, ProductUUID: "AAAA-BBBB", Serial: "SN1",
	}, claims); diff != "" || err != nil {
		t.Error(diff, err)
	}
	devices, err := m.Disks(t.Context())
	if err != nil || len(devices) != 3 || devices[1].Info().Rotational != true || devices[2].Info().Reported() == "" {
		t.Errorf("got %v, %v", devices, err)
	}
	for _, d := range devices {
		if _, err := d.WriteAt([]byte{1}, 0); err == nil {
			t.Error("a disk of the running OS can be written")
		}
	}
}

func TestWhatIsNoLinux(t *testing.T) {
	if _, err := linux.Open(fstest.MapFS{}); fault.CodeOf(err) != fault.InvalidConfig {
		t.Errorf("got %v", err)
	}
}

// The machine that the tests run on is one, whatever else it is.
func TestThisMachine(t *testing.T) {
	m, err := linux.Open(os.DirFS("/"))
	if fault.CodeOf(err) == fault.InvalidConfig {
		if _, err := os.Stat("/proc/sys/kernel/random/boot_id"); err == nil {
			t.Error("it is not seen")
		}
		return
	}
	if h, err := m.Hardware(t.Context()); err != nil || h.Cores < 1 || h.MemoryBytes < 1<<20 {
		t.Errorf("got %+v, %v", h, err)
	}
}
