package linux_test

import (
	"io/fs"
	"os"
	"strings"
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
		"sys/bus/pci/devices/0000:04:00.0/class":       "0x010700\n",
		"sys/bus/pci/devices/0000:05:00.0/class":       "0x010802\n",
		"sys/bus/pci/devices/0000:05:00.0/driver/x":    "",
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

// with puts further files into a tree; one that begins with -> is a link.
func with(tree fstest.MapFS, files map[string]string) fstest.MapFS {
	for name, text := range files {
		if target, ok := strings.CutPrefix(text, "->"); ok {
			tree[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
		} else {
			tree[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	return tree
}

func pointer[T any](v T) *T { return &v }

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
		CPU:  &node.CPU{Model: "x", Threads: 2},
		NICs: []node.NIC{{MAC: "02:00:00:00:00:0a", Name: "eth0"}, {MAC: "02:00:00:00:00:0b", Name: "eth1"}},
		Devices: []node.Device{
			{Class: "gpu", Vendor: "10de", Product: "2330", Address: "0000:01:00.0"},
			{Class: "accelerator", Vendor: "1002", Product: "74a1", Address: "0000:03:00.0"},
			{Class: "storage", Address: "0000:04:00.0"}, {Class: "storage", Address: "0000:05:00.0"},
		},
		Disks: []node.Disk{
			{Path: "/dev/nvme0n1", WWN: "eui.01", Model: "Fast", Serial: "N1", Bytes: 2 << 20, Transport: "nvme", Rotational: pointer(false)},
			{Path: "/dev/sda", WWN: "naa.5000", Model: "Slow", Serial: "S1", Bytes: 1 << 20, Rotational: pointer(true)},
		},
		Driverless: []string{"0000:04:00.0"},
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

// twoSockets is a machine with four threads on three cores in two packages, one of them switched off.
func twoSockets() fstest.MapFS {
	return with(server(), map[string]string{
		"proc/cpuinfo":         "processor : 0\nmodel name : Fast  CPU @ 2\nprocessor : 1\nmodel name : Other\nprocessor : 2\nprocessor : 3\n",
		"proc/sys/kernel/arch": "x86_64\n",
		"sys/devices/system/cpu/cpu0/topology/core_cpus_list":       "0,2\n",
		"sys/devices/system/cpu/cpu0/topology/physical_package_id":  "0\n",
		"sys/devices/system/cpu/cpu1/topology/core_cpus_list":       "1\n",
		"sys/devices/system/cpu/cpu1/topology/physical_package_id":  "0\n",
		"sys/devices/system/cpu/cpu2/topology/core_cpus_list":       "0,2\n",
		"sys/devices/system/cpu/cpu2/topology/physical_package_id":  "0\n",
		"sys/devices/system/cpu/cpu3/topology/thread_siblings_list": "3\n",
		"sys/devices/system/cpu/cpu3/topology/physical_package_id":  "1\n",
		"sys/devices/system/cpu/cpu4/online":                        "0\n",
		"sys/devices/system/cpu/cpufreq/boost":                      "1\n",
		"sys/devices/system/node/node0/cpulist":                     "0-2\n",
		"sys/devices/system/node/node0/meminfo":                     "Node 0 MemTotal:       1024 kB\nNode 0 MemFree: 1 kB\n",
		"sys/devices/system/node/node1/cpulist":                     "3\n",
		"sys/devices/system/node/node1/meminfo":                     "Node 1 MemTotal:       2048 kB\n",
		"sys/devices/system/node/node10/cpulist":                    "\n",
		"sys/devices/system/node/node10/meminfo":                    "Node 10 MemTotal:      4096 kB\n",
		"sys/devices/system/node/possible":                          "0-10\n",
	})
}

func TestProcessorsAndMemory(t *testing.T) {
	got := inventory(t, twoSockets())
	if diff := cmp.Diff(&node.CPU{Model: "Fast CPU @ 2", Architecture: "x86_64", Sockets: 2, Threads: 4}, got.CPU); diff != "" || got.Cores != 3 {
		t.Error(got.Cores, diff)
	}
	if diff := cmp.Diff([]node.NUMANode{
		{Node: 0, Cores: 2, Threads: 3, MemoryBytes: 1 << 20}, {Node: 1, Cores: 1, Threads: 1, MemoryBytes: 2 << 20},
		{Node: 10, MemoryBytes: 4 << 20}, // memory alone
	}, got.NUMA); diff != "" {
		t.Error(diff)
	}
}

func inventory(t *testing.T, root fs.FS) node.Hardware {
	t.Helper()
	m, err := linux.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := m.Hardware(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestFirmware(t *testing.T) {
	const variable = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
	dmi := map[string]string{
		"sys/class/dmi/id/bios_vendor": "Acme\n", "sys/class/dmi/id/bios_version": "1.2\n", "sys/class/dmi/id/bios_date": "04/01/2026\n",
	}
	told := node.Firmware{Vendor: "Acme", Version: "1.2", Date: "04/01/2026"}
	for _, test := range []struct {
		name  string
		files map[string]string
		want  node.Firmware
	}{
		{"UEFI, enforced", map[string]string{variable: "\x06\x00\x00\x00\x01"}, node.Firmware{BootMode: node.BootUEFI, SecureBoot: pointer(true)}},
		{"UEFI, not enforced", map[string]string{variable: "\x06\x00\x00\x00\x00"}, node.Firmware{BootMode: node.BootUEFI, SecureBoot: pointer(false)}},
		{"UEFI, variables not to be seen", map[string]string{"sys/firmware/efi/systab": ""}, node.Firmware{BootMode: node.BootUEFI}},
		{"UEFI, a variable that makes no sense", map[string]string{variable: "\x06\x00\x00\x00\x02"}, node.Firmware{BootMode: node.BootUEFI}},
		{"UEFI, a variable that is cut", map[string]string{variable: "\x01"}, node.Firmware{BootMode: node.BootUEFI}},
		{"a PC's of the old kind", map[string]string{
			"sys/firmware/acpi/x": "", "proc/sys/kernel/arch": "x86_64\n",
		}, node.Firmware{BootMode: node.BootBIOS}},
		{"a PC's, under an old kernel", map[string]string{
			"sys/firmware/acpi/x": "", "proc/cpuinfo": "processor : 0\nflags : fpu lm\n",
		}, node.Firmware{BootMode: node.BootBIOS}},
		{"another architecture's", map[string]string{"sys/firmware/devicetree/x": "", "proc/sys/kernel/arch": "aarch64\n"}, node.Firmware{}},
		{"hidden", nil, node.Firmware{}},
	} {
		test.want.Vendor, test.want.Version, test.want.Date = told.Vendor, told.Version, told.Date
		got := inventory(t, with(with(server(), dmi), test.files))
		if diff := cmp.Diff(&test.want, got.Firmware); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
	if got := inventory(t, server()); got.Firmware != nil {
		t.Errorf("without a word of it there is %+v", got.Firmware)
	}
}

func TestTPM(t *testing.T) {
	for _, test := range []struct {
		name  string
		files map[string]string
		want  *node.TPM
	}{
		{"none", nil, nil},
		{"2.0", map[string]string{"sys/class/tpm/tpm0/tpm_version_major": "2\n", "sys/class/tpmrm/tpmrm0/x": ""}, &node.TPM{Version: "2.0"}},
		{"1.2", map[string]string{"sys/class/tpm/tpm0/tpm_version_major": "1\n"}, &node.TPM{Version: "1.2"}},
		{"of a kernel that does not tell", map[string]string{"sys/class/tpm/tpm0/dev": "10:224\n"}, &node.TPM{}},
		{"no driver found one", map[string]string{"sys/class/tpm/x": ""}, nil},
	} {
		if diff := cmp.Diff(test.want, inventory(t, with(server(), test.files)).TPM); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

func TestPorts(t *testing.T) {
	got := inventory(t, with(server(), map[string]string{
		"sys/class/net/eth0/device/driver": "->../../../../bus/virtio/drivers/virtio_net",
		"sys/class/net/eth0/carrier":       "1\n",
		"sys/class/net/eth0/speed":         "25000\n",
		"sys/class/net/eth1/device/driver": "->../../../../bus/pci/drivers/ixgbe",
		"sys/class/net/eth1/carrier":       "0\n",
		"sys/class/net/eth1/speed":         "-1\n",
		"sys/class/net/eth2/type":          "1\n", // switched off: its carrier can't be read
		"sys/class/net/eth2/address":       "02:00:00:00:00:0c\n",
		"sys/class/net/eth2/device/x":      "",
		"sys/class/net/eth2/speed":         "4294967295\n",
	}))
	if diff := cmp.Diff([]node.NIC{
		{MAC: "02:00:00:00:00:0a", Name: "eth0", Driver: "virtio_net", Link: node.LinkUp, SpeedMbps: 25_000},
		{MAC: "02:00:00:00:00:0b", Name: "eth1", Driver: "ixgbe", Link: node.LinkDown},
		{MAC: "02:00:00:00:00:0c", Name: "eth2"},
	}, got.NICs); diff != "" {
		t.Error(diff)
	}
}

func TestDevices(t *testing.T) {
	files := map[string]string{}
	for address, class := range map[string]string{
		"0000:10:00.0": "0x020000", "0000:11:00.0": "0x020700", "0000:12:00.0": "0x010802", "0000:13:00.0": "0x010400",
		"0000:14:00.0": "0x060400", "0000:15:00.0": "0x0c0330", "0000:16:00.0": "0x0b4000", "0000:17:00.0": "0x050210",
		"0000:18:00.0": "0x100000", "0000:19:00.1": "0x020000", "0000:1a:00.0": "what", "0000:1b:00.0": "0x020800",
	} {
		files["sys/bus/pci/devices/"+address+"/class"] = class + "\n"
		files["sys/bus/pci/devices/"+address+"/vendor"] = "0x8086\n"
		files["sys/bus/pci/devices/"+address+"/device"] = "0x0001\n"
	}
	files["sys/bus/pci/devices/0000:19:00.1/physfn"] = "->../0000:10:00.0" // for virtual machines
	got := map[string]string{}
	for _, d := range inventory(t, with(server(), files)).Devices {
		if d.Vendor == "8086" && d.Product == "0001" {
			got[d.Address] = d.Class
		}
	}
	if diff := cmp.Diff(map[string]string{
		"0000:10:00.0": "network", "0000:11:00.0": "infiniband", "0000:12:00.0": "storage", "0000:13:00.0": "raid",
		"0000:16:00.0": "coprocessor", "0000:17:00.0": "memory", "0000:18:00.0": "encryption", "0000:1b:00.0": "network",
	}, got); diff != "" {
		t.Error(diff)
	}
}

func TestGPUsAreClaimed(t *testing.T) {
	m, err := linux.Open(with(server(), map[string]string{
		"proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: \t\t X\nGPU UUID:   \t GPU-0123abcd-0000-4000-8000-00000000000f\nVideo BIOS: 1\n",
		"proc/driver/nvidia/gpus/0000:02:00.0/information": "GPU UUID: GPU-????????-????-????-????-????????????\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	claims, err := m.Claims(t.Context())
	if diff := cmp.Diff([]string{"GPU-0123abcd-0000-4000-8000-00000000000f"}, claims.GPUUUIDs); diff != "" || err != nil {
		t.Error(diff, err)
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
