package quirks

import (
	"strings"
	"testing"

	"github.com/better-compute/metal/domain/node"
)

// told is what an inventory tells of a machine beside its parts.
type told struct {
	Firmware node.Firmware
	Secure   string // on, off, or nothing
	TPM      string // version and firmware; a hyphen where there is none
	CPU      node.CPU
}

var plain = told{
	Firmware: node.Firmware{Version: "2.1", BootMode: node.BootUEFI}, Secure: "off", TPM: "2.0 7.2.2.0",
	CPU: node.CPU{Model: "Plain CPU", Architecture: "x86_64", Sockets: 2, Threads: 128},
}

func tellings(h node.Hardware) (t told) {
	if h.CPU != nil {
		t.CPU = *h.CPU
	}
	if h.Firmware != nil {
		t.Firmware, t.Secure = *h.Firmware, onOff(h.Firmware.SecureBoot)
		t.Firmware.SecureBoot = nil
	}
	t.TPM = "-"
	if h.TPM != nil {
		t.TPM = strings.TrimSpace(h.TPM.Version + " " + h.TPM.FirmwareVersion)
	}
	return t
}

func onOff(known *bool) string {
	if known == nil {
		return ""
	}
	return map[bool]string{true: "on", false: "off"}[*known]
}

// TestFirmware is what a controller tells of firmware, TPM and processors: what is missing or odd is not known, and costs nothing.
func TestFirmware(t *testing.T) {
	system := func(change Doc) func(s *Server) { return func(s *Server) { s.Edit(System, change) } }
	mode := func(written any) Doc { return Doc{"Boot": Doc{"BootSourceOverrideMode": written}} }
	settings := func(attributes Doc) func(s *Server) {
		return func(s *Server) {
			s.Edit(System, mode("Legacy"))
			s.Put(Bios, Doc{"Id": "Bios", "Attributes": attributes})
		}
	}
	secure := func(change Doc) func(s *Server) { return func(s *Server) { s.Edit(SecureBoot, change) } }
	module := func(module any) func(s *Server) { return system(Doc{"TrustedModules": module}) }
	bios := func(w *told) { w.Firmware.BootMode, w.Secure = node.BootBIOS, "" }
	unknown := func(w *told) { w.Firmware.BootMode = "" }
	noTPM := func(w *told) { w.TPM = "-" }
	for name, c := range map[string]struct {
		change func(s *Server)
		want   func(w *told)
	}{
		"R86_the_whole": {func(*Server) {}, func(*told) {}},
		"R86_no_version_and_no_links": {
			system(Doc{"BiosVersion": nil, "SecureBoot": Gone, "Bios": Gone, "TrustedModules": Gone, "Boot": Doc{"BootSourceOverrideMode": Gone}}),
			func(w *told) { w.Firmware, w.Secure, w.TPM = node.Firmware{}, "", "-" }},
		"R86_a_date_of_dell": {
			system(Doc{"Oem": Doc{"Dell": Doc{"DellSystem": Doc{"BIOSReleaseDate": "09/14/2022"}}}}),
			func(w *told) { w.Firmware.Date = "09/14/2022" }},
		"R86_a_date_of_hpe": {
			system(Doc{"Oem": Doc{"Hpe": Doc{"Bios": Doc{"Current": Doc{"Date": "08/11/2022"}}}}}),
			func(w *told) { w.Firmware.Date = "08/11/2022" }},

		"R35_no_mode":                {system(mode(nil)), func(*told) {}},
		"R35_no_mode_but_one_it_can": {system(Doc{"Bios": Gone, "Boot": Doc{"BootSourceOverrideMode": nil, "BootSourceOverrideMode@Redfish.AllowableValues": []any{"UEFI"}}}), func(*told) {}},
		"R39_legacy_by_default":      {system(mode("Legacy")), func(*told) {}},
		"R86_set_to_bios":            {settings(Doc{"BootMode": "Bios"}), bios},
		"R86_set_to_legacy_bios":     {settings(Doc{"BootMode": "LegacyBios"}), bios},
		"R86_set_by_another_name":    {settings(Doc{"BootModes_SystemBootMode": "LegacyMode", "BootModes_QuietBoot": "Enable"}), bios},
		"R86_set_to_both":            {settings(Doc{"BootModeSelect": "UEFI and Legacy"}), unknown},
		"R86_settings_that_disagree": {settings(Doc{"BootMode": "Uefi", "BootModeSelect": "Legacy"}), unknown},
		"R99_settings_that_are_odd":  {settings(Doc{"BootMode": 7}), unknown},
		"R99_no_settings":            {func(s *Server) { s.Edit(System, mode("Legacy")); s.Put(Bios, Doc{"Attributes": []any{}}) }, unknown},
		"R69_settings_are_refused": {func(s *Server) {
			s.Edit(System, mode("Legacy"))
			s.On("GET", Bios, Always(Problem(503, "Base.1.8.ServiceTemporarilyUnavailable", "The service is temporarily unavailable.", "300")))
		}, unknown},

		"R86_secure_boot":              {secure(Doc{"SecureBootCurrentBoot": "Enabled"}), func(w *told) { w.Secure = "on" }},
		"R39_secure_boot_means_uefi":   {func(s *Server) { secure(Doc{"SecureBootCurrentBoot": "Enabled"})(s); s.Edit(System, mode("Legacy")) }, func(w *told) { w.Secure = "on" }},
		"R99_secure_boot_is_null":      {secure(Doc{"SecureBootCurrentBoot": nil}), func(w *told) { w.Secure = "" }},
		"R99_secure_boot_is_odd":       {secure(Doc{"SecureBootCurrentBoot": true}), func(w *told) { w.Secure = "" }},
		"R69_secure_boot_is_refused":   {func(s *Server) { s.On("GET", SecureBoot, Always(Problem(500, "Base.1.8.InternalError", "It failed."))) }, func(w *told) { w.Secure = "" }},
		"R97_secure_boot_leads_astray": {func(s *Server) { s.Remove(SecureBoot) }, func(w *told) { w.Secure = "" }},

		"R86_an_old_tpm":              {module([]any{Doc{"InterfaceType": "TPM1_2", "FirmwareVersion": nil}}), func(w *told) { w.TPM = "1.2" }},
		"R86_an_empty_socket":         {module([]any{Doc{"InterfaceType": "TPM2_0", "Status": Doc{"State": "Absent"}}}), noTPM},
		"R86_a_module_that_is_no_tpm": {module([]any{Doc{"InterfaceType": "TCM1_0", "Status": Doc{"State": "Enabled"}}, Doc{"InterfaceType": "TPM2_0", "FirmwareVersion": "N/A"}}), func(w *told) { w.TPM = "2.0" }},
		"R99_a_module_of_any_kind":    {module([]any{Doc{"InterfaceType": nil, "FirmwareVersion": "1.3", "Status": Doc{"State": "Enabled"}}}), func(w *told) { w.TPM = "1.3" }},
		"R99_a_module_of_nothing":     {module([]any{Doc{"InterfaceType": nil, "Status": nil}}), noTPM},
		"R99_a_module_of_no_name":     {module([]any{Doc{"InterfaceType": "TPM9_9", "Status": Doc{"State": "Enabled"}}}), noTPM},
		"R99_one_module_alone":        {module(Doc{"InterfaceType": "TPM2_0"}), func(w *told) { w.TPM = "2.0" }},
		"R99_modules_are_null":        {module(nil), noTPM},

		"R86_no_processors": {system(Doc{"Processors": Gone}), func(w *told) { w.CPU.Architecture = "" }},
		"R86_neither_processors_nor_a_summary": {
			system(Doc{"Processors": Gone, "ProcessorSummary": Gone}), func(w *told) { w.CPU = node.CPU{} }},
		"R86_a_socket_is_empty": {func(s *Server) {
			s.Edit(System+"/Processors/2", Doc{"Status": Doc{"State": "Absent"}, "TotalThreads": nil})
		}, func(w *told) { w.CPU.Sockets, w.CPU.Threads = 1, 64 }},
		"R86_a_processor_does_not_answer": {func(s *Server) { s.Remove(System + "/Processors/2") }, func(*told) {}},
		"R99_padded_and_placeholders": {func(s *Server) {
			s.Edit(System+"/Processors/1", Doc{"Model": "Not Specified"})
			s.Edit(System+"/Processors/2", Doc{"Model": "Plain  CPU     "})
		}, func(*told) {}},
		"R99_processors_tell_little": {func(s *Server) {
			for _, n := range []string{"1", "2"} {
				s.Edit(System+"/Processors/"+n, Doc{"Model": nil, "TotalThreads": nil, "InstructionSet": "OEM"})
			}
			s.Edit(System, Doc{"ProcessorSummary": Doc{"LogicalProcessorCount": Gone}})
		}, func(w *told) { w.CPU.Threads, w.CPU.Architecture = 0, "" }},
		"R99_more_threads_than_there_are": {func(s *Server) {
			for _, n := range []string{"1", "2"} {
				s.Edit(System+"/Processors/"+n, Doc{"TotalThreads": "4e18", "TotalCores": 32})
			}
		}, func(w *told) { w.CPU.Threads = 1<<31 - 1 }},
		"R99_threads_are_no_number": {func(s *Server) {
			s.Edit(System+"/Processors/1", Doc{"TotalThreads": "NaN"})
			s.Edit(System+"/Processors/2", Doc{"TotalThreads": "Inf"})
		}, func(*told) {}},
		"R86_arm": {func(s *Server) { s.Edit(System+"/Processors/1", Doc{"InstructionSet": "ARM-A64"}) }, func(w *told) { w.CPU.Architecture = "aarch64" }},
	} {
		row(t, name, func(t *testing.T) {
			want := plain
			c.want(&want)
			found := start(t, c.change).inspect()
			same(t, "told", tellings(found.Hardware), want)
			same(t, "disks and ports", []int{len(found.Hardware.Disks), len(found.Hardware.NICs)}, []int{2, 2})
		})
	}

	row(t, "R19_what_is_asked", func(t *testing.T) {
		r := start(t)
		r.inspect()
		same(t, "requests for the settings", len(r.Requests("GET", Bios)), 0) // the system tells the mode
		same(t, "requests for secure boot", len(r.Requests("GET", SecureBoot)), 1)
		same(t, "requests for the system", len(r.Requests("GET", System)), 1)
	})
}

// TestDisksInDetail is how a disk is attached, whether it spins, and its name.
func TestDisksInDetail(t *testing.T) {
	const disk = Storage + "/Drives/1"
	type drive struct{ Transport, Spins, WWN string }
	change := func(d Doc) func(s *Server) { return func(s *Server) { s.Edit(disk, d) } }
	name := func(format, name string) Doc { return Doc{"DurableNameFormat": format, "DurableName": name} }
	controllers := func(protocols ...any) func(s *Server) {
		return func(s *Server) {
			s.Edit(disk, Doc{"Protocol": nil})
			s.Edit(Storage, Doc{"StorageControllers": []any{Doc{"SupportedDeviceProtocols": protocols}}})
		}
	}
	for title, c := range map[string]struct {
		change func(s *Server)
		want   func(d *drive)
	}{
		"R101_the_whole":               {func(*Server) {}, func(*drive) {}},
		"R101_sas":                     {change(Doc{"Protocol": "SAS", "MediaType": "HDD"}), func(d *drive) { d.Transport, d.Spins = "sas", "on" }},
		"R101_sata":                    {change(Doc{"Protocol": "SATA", "MediaType": "SMR"}), func(d *drive) { d.Transport, d.Spins = "sata", "on" }},
		"R101_emmc":                    {change(Doc{"Protocol": "eMMC"}), func(d *drive) { d.Transport = "mmc" }},
		"R101_null":                    {change(Doc{"Protocol": nil, "MediaType": nil}), func(d *drive) { d.Transport, d.Spins = "", "" }},
		"R101_odd":                     {change(Doc{"Protocol": 4, "MediaType": "Tape"}), func(d *drive) { d.Transport, d.Spins = "", "" }},
		"R101_a_bus_is_no_protocol":    {change(Doc{"Protocol": "PCIe"}), func(d *drive) { d.Transport = "" }},
		"R101_dell_says_what_it_is":    {change(Doc{"Protocol": "PCIe", "Oem": Doc{"Dell": Doc{"DellPCIeSSD": Doc{"DeviceProtocol": "NVMe 1.4"}}}}), func(*drive) {}},
		"R101_that_spins":              {change(Doc{"MediaType": nil, "RotationSpeedRPM": 7200}), func(d *drive) { d.Spins = "on" }},
		"R101_that_may_not_spin":       {change(Doc{"MediaType": nil, "RotationSpeedRPM": 0}), func(d *drive) { d.Spins = "" }},
		"R101_its_controllers_know":    {controllers("NVMe"), func(*drive) {}},
		"R101_its_controllers_differ":  {controllers("SAS", "SATA"), func(d *drive) { d.Transport = "" }},
		"R101_its_controllers_are_odd": {controllers("NVMe", "OEM"), func(d *drive) { d.Transport = "" }},
		"R101_naa":                     {change(Doc{"Identifiers": []any{name("NAA", "5000C500A1B2C3D4")}}), func(d *drive) { d.WWN = "0x5000c500a1b2c3d4" }},
		"R101_nguid_before_eui":        {change(Doc{"Identifiers": []any{name("EUI", "0025389A21010001"), name("NGUID", "36344630-4E41-0000-0025-389A21010001")}}), func(d *drive) { d.WWN = "eui.363446304e4100000025389a21010001" }},
		"R101_a_name_of_another_kind":  {change(Doc{"Identifiers": []any{name("UUID", "7d3c4e56-0000-4a6b-8c00-0000000000a1"), name("EUI", "eui.0025389A21010001")}}), func(*drive) {}},
		"R101_no_name":                 {change(Doc{"Identifiers": []any{Doc{"DurableName": nil, "DurableNameFormat": nil}}}), func(d *drive) { d.WWN = "" }},
	} {
		row(t, title, func(t *testing.T) {
			want := drive{"nvme", "off", "eui.0025389a21010001"}
			c.want(&want)
			d := start(t, c.change).inspect().Hardware.Disks[0]
			same(t, "disk", drive{d.Transport, onOff(d.Rotational), d.WWN}, want)
			same(t, "serial", d.Serial, "DISK-1")
		})
	}
}

// TestLinks is what is told of a port's link: as much as there is, from wherever it stands.
func TestLinks(t *testing.T) {
	const own = "b8:3f:d2:00:00:01"
	up := node.NIC{MAC: own, Name: "1", Link: node.LinkUp, SpeedMbps: 25000}
	interfaces := func(change Doc) func(s *Server) { return func(s *Server) { s.Edit(NICs+"/1", change) } }
	adapter := func(change Doc, below map[string]Doc) func(s *Server) {
		return func(s *Server) { s.Edit(NICs+"/1", change); s.AddAdapter("A", below) }
	}
	function := Doc{"Id": "1", "Ethernet": Doc{"MACAddress": own}, "Links": Doc{"PhysicalPortAssignment": Link(Adapters + "/A/Ports/1/")}}
	quiet := Doc{"LinkStatus": nil, "SpeedMbps": nil}
	neighbor := Doc{"ChassisId": "00-1C-73-00-00-01", "ChassisIdSubtype": "MacAddr", "PortId": "Ethernet7", "SystemName": "leaf-1"}
	for name, c := range map[string]struct {
		change func(s *Server)
		want   func(n *node.NIC)
	}{
		"R92_up":                 {interfaces(Doc{}), func(*node.NIC) {}},
		"R92_down":               {interfaces(Doc{"LinkStatus": "LinkDown"}), func(n *node.NIC) { n.Link, n.SpeedMbps = node.LinkDown, 0 }},
		"R92_no_link":            {interfaces(Doc{"LinkStatus": "NoLink"}), func(n *node.NIC) { n.Link, n.SpeedMbps = node.LinkDown, 0 }},
		"R92_null":               {interfaces(quiet), func(n *node.NIC) { n.Link, n.SpeedMbps = "", 0 }},
		"R92_absent":             {interfaces(Doc{"LinkStatus": Gone}), func(n *node.NIC) { n.Link, n.SpeedMbps = "", 0 }},
		"R92_odd":                {interfaces(Doc{"LinkStatus": "Training"}), func(n *node.NIC) { n.Link, n.SpeedMbps = "", 0 }},
		"R99_speed_as_text":      {interfaces(Doc{"SpeedMbps": "25000"}), func(*node.NIC) {}},
		"R99_speed_is_null":      {interfaces(Doc{"SpeedMbps": nil}), func(n *node.NIC) { n.SpeedMbps = 0 }},
		"R99_speed_is_no_number": {interfaces(Doc{"SpeedMbps": "NaN", "CurrentSpeedGbps": "NaN"}), func(n *node.NIC) { n.SpeedMbps = 0 }},
		"R99_no_such_speed":      {interfaces(Doc{"SpeedMbps": -1}), func(n *node.NIC) { n.SpeedMbps = 0 }},
		"R92_the_port_knows": {adapter(quiet, map[string]Doc{
			"Ports": {"LinkStatus": "LinkUp", "CurrentSpeedGbps": 25, "Ethernet": Doc{"AssociatedMACAddresses": []any{own}}}}), func(*node.NIC) {}},
		"R92_the_old_port_knows": {adapter(quiet, map[string]Doc{
			"NetworkPorts": {"LinkStatus": "Up", "CurrentLinkSpeedMbps": 25000, "AssociatedNetworkAddresses": []any{own}}}), func(*node.NIC) {}},
		"R92_the_port_of_the_function_knows": {adapter(quiet, map[string]Doc{
			"NetworkDeviceFunctions": function, "Ports": {"LinkStatus": "LinkUp", "CurrentSpeedGbps": 25}}), func(*node.NIC) {}},
		"R92_who_sees_it_up_is_right": {adapter(Doc{"LinkStatus": "LinkDown"}, map[string]Doc{
			"Ports": {"LinkStatus": "LinkUp", "CurrentSpeedGbps": "25.0", "Ethernet": Doc{"AssociatedMACAddresses": []any{own}}}}), func(*node.NIC) {}},
		"R92_one_that_calls_it_down": {adapter(Doc{}, map[string]Doc{
			"Ports": {"LinkStatus": "LinkDown", "Ethernet": Doc{"AssociatedMACAddresses": []any{own}}}}), func(*node.NIC) {}},
		"R92_a_neighbor": {adapter(quiet, map[string]Doc{
			"NetworkDeviceFunctions": function, "Ports": {"LinkStatus": "LinkUp", "CurrentSpeedGbps": 25, "Ethernet": Doc{"LLDPReceive": neighbor}}}),
			func(n *node.NIC) {
				n.LLDP = &node.LLDPNeighbor{ChassisID: "00:1c:73:00:00:01", PortID: "Ethernet7", SystemName: "leaf-1"}
			}},
		"R92_no_neighbor": {adapter(quiet, map[string]Doc{"NetworkDeviceFunctions": function, "Ports": {
			"LinkStatus": "LinkUp", "CurrentSpeedGbps": 25, "Ethernet": Doc{"LLDPReceive": Doc{"ChassisId": "", "ChassisIdSubtype": "NotTransmitted", "PortId": ""}}}}),
			func(*node.NIC) {}},
	} {
		row(t, name, func(t *testing.T) {
			want := up
			c.want(&want)
			nics := start(t, c.change).inspect().Hardware.NICs
			same(t, "ports", len(nics), 2)
			same(t, "port", nics[0], want)
		})
	}
}
