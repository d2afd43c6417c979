package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/node"
)

// A card shows the newest inventory from inside, and nothing that is not known.
func TestTheHardwareOfANode(t *testing.T) {
	a, out, _ := testApp()
	on, off := true, false
	n := contract.Node{ID: "node_1", Hardware: &node.Inventories{
		OutOfBand: &node.Hardware{Manufacturer: "Other"},
		InBand: &node.Hardware{
			Manufacturer: "Acme", Product: "R1", Serial: "SN1", Cores: 2, MemoryBytes: 8 << 30,
			CPU:      &node.CPU{Model: "Fast", Architecture: "x86_64", Sockets: 1, Threads: 4},
			NUMA:     []node.NUMANode{{Cores: 2, Threads: 4, MemoryBytes: 8 << 30}, {Node: 1, MemoryBytes: 1536 << 20}},
			Firmware: &node.Firmware{Vendor: "Acme", Version: "1.2", Date: "04/01/2026", BootMode: node.BootUEFI, SecureBoot: &on},
			TPM:      &node.TPM{},
			Disks: []node.Disk{
				{Path: "/dev/sda", Model: "Slow", Serial: "S1", WWN: "naa.5", Bytes: 3 << 40, Transport: "sas", Rotational: &on},
				{Path: "/dev/sdb", Rotational: &off},
			},
			Driverless: []string{"0000:04:00.0"},
			NICs: []node.NIC{
				{MAC: "02:00:00:00:00:0a", Name: "eth0", Driver: "ice", Link: node.LinkUp, SpeedMbps: 25_000,
					LLDP: &node.LLDPNeighbor{ChassisID: "c", SystemName: "leaf-1\tof rack 2", PortID: "Ethernet7"}},
				{MAC: "02:00:00:00:00:0b", Link: node.LinkDown, LLDP: &node.LLDPNeighbor{ChassisID: "c", PortID: "p"}},
			},
			Devices: []node.Device{{Class: "gpu", Vendor: "10de", Product: "2330", Address: "0000:01:00.0"}, {Class: "fpga"}},
		},
	}}
	if err := nodeKind.one(a, n); err != nil {
		t.Fatal(err)
	}
	const want = `HARDWARE Acme R1 serial SN1 (in-band)
CPU Fast, x86_64, 1 socket, 2 cores, 4 threads
MEMORY 8 GiB
NUMA node 0, 2 cores, 4 threads, 8 GiB
NUMA node 1, 1536 MiB
FIRMWARE Acme 1.2, 04/01/2026, UEFI, secure boot on
TPM of unknown version
DISK /dev/sda, Slow, serial S1, wwn naa.5, 3 TiB, sas, rotational
DISK /dev/sdb, not rotational
DISK not seen: the controller at 0000:04:00.0 has no driver
NIC eth0, 02:00:00:00:00:0a, ice, link up 25000 Mb/s, at leaf-1 of rack 2 port Ethernet7
NIC 02:00:00:00:00:0b, link down, at c port p
DEVICE 0000:01:00.0, gpu, 10de:2330
DEVICE fpga
`
	_, got, _ := strings.Cut(out.String(), "HARDWARE")
	var lines strings.Builder
	for line := range strings.Lines("HARDWARE" + got) {
		lines.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	if diff := cmp.Diff(want, lines.String()); diff != "" {
		t.Error(diff)
	}
}

func TestHardwareThatIsNotKnown(t *testing.T) {
	for name, h := range map[string]*node.Inventories{"none": nil, "empty": {}} {
		if got := hardware(contract.Node{Hardware: h}); got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	got := hardware(contract.Node{Hardware: &node.Inventories{OutOfBand: &node.Hardware{Manufacturer: "Acme", Cores: 1}}})
	if len(got) == 0 || got[0] != (line{"HARDWARE", "Acme (out-of-band)"}) {
		t.Errorf("got %v", got)
	}
	got = hardware(contract.Node{Hardware: &node.Inventories{OutOfBand: &node.Hardware{
		Firmware: &node.Firmware{Version: "1.8.2", BootMode: node.BootUEFI}, TPM: &node.TPM{Version: "2.0", FirmwareVersion: "7.2.2.0"},
		Disks: []node.Disk{{Serial: "S1", Transport: "nvme"}},
	}}})
	for _, want := range []line{{"FIRMWARE", "1.8.2, UEFI"}, {"TPM", "2.0, firmware 7.2.2.0"}, {"DISK", "serial S1, nvme"}} {
		if !slices.Contains(got, want) {
			t.Errorf("%v lacks %v", got, want)
		}
	}
}
