package quirks

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/adapters/bmc/redfish"
	"github.com/better-compute/metal/domain/node"
)

const baseboard = "/redfish/v1/Systems/HGX_Baseboard_0"

// withBaseboard adds a second system, which is no machine: it has neither a boot override nor a reset.
func withBaseboard(members ...string) func(s *Server) {
	return func(s *Server) {
		s.Collection("/redfish/v1/Systems", members...)
		s.Put(baseboard, Doc{
			"Id": "HGX_Baseboard_0", "Name": "Baseboard", "SystemType": "Physical", "PowerState": "On", "Model": nil, "SerialNumber": nil,
			"UUID": "0bd03ed4-3f75-04e8-9c62-3d4652b78d87", "Bios": Link(baseboard + "/Bios"),
		})
	}
}

// TestSystems is R85: which of several systems is the machine.
func TestSystems(t *testing.T) {
	const second = "/redfish/v1/Systems/2"
	twins := func(s *Server) {
		s.Collection("/redfish/v1/Systems", System, second)
		s.Put(second, system("2"))
	}
	for name, order := range map[string][]string{
		"R85_the_baseboard_first": {baseboard, System}, "R85_the_baseboard_last": {System, baseboard},
	} {
		row(t, name, func(t *testing.T) {
			r := start(t, withBaseboard(order...))
			same(t, "system", r.identify().SystemID, "1")
		})
	}

	row(t, "R85_two_machines_are_ambiguous", func(t *testing.T) {
		r := start(t, twins)
		wantReason(t, r.do(powerOnly), bmc.AmbiguousSystem)
		_, err := r.power(node.ActionOff, bmc.PowerOptions{})
		wantReason(t, err, bmc.AmbiguousSystem)
		same(t, "resets", r.Resets(), nil)
	})

	row(t, "R85_a_machine_that_can't_be_read_may_be_meant", func(t *testing.T) {
		r := start(t, twins)
		r.On("GET", second, Always(Problem(503, "Base.1.8.ServiceTemporarilyUnavailable", "The service is temporarily unavailable.", "300")))
		_, err := r.power(node.ActionOff, bmc.PowerOptions{})
		wantReason(t, err, bmc.NotReady)
		same(t, "resets", r.Resets(), nil)
	})

	row(t, "R85_a_link_to_no_machine", func(t *testing.T) {
		r := start(t, twins)
		r.Remove(second)
		same(t, "system", r.identify().SystemID, "1")
	})

	for name, wanted := range map[string]string{
		"R85_by_id": "2", "R85_by_uuid": "7D3C4E56-0000-4A6B-8C00-0000000000A2", "R85_by_serial": "SN-2",
	} {
		row(t, name, func(t *testing.T) {
			r := start(t, twins)
			r.target.System = wanted
			same(t, "system", r.identify().SystemID, "2")
			_, err := r.power(node.ActionOff, bmc.PowerOptions{})
			must(t, err)
			same(t, "the other machine", r.Power(System), "On")
			same(t, "the machine", r.Power(second), "Off")
		})
	}

	row(t, "R85_none_of_them", func(t *testing.T) {
		r := start(t, twins)
		r.target.System = "3"
		wantReason(t, r.do(powerOnly), bmc.SystemNotFound)
	})

	for name, restarted := range map[string]bool{"R85_machines_that_change_places": false, "R85_machines_that_changed_places": true} {
		row(t, name, func(t *testing.T) {
			r := start(t, twins)
			r.target.System = "SN-2"
			must(t, r.do(powerOnly))
			r.Edit(System, Doc{"SerialNumber": "SN-2"})
			r.Edit(second, Doc{"SerialNumber": "SN-1"})
			if restarted {
				kept := r.target
				r = attach(t, r.Server, redfish.Options{})
				r.target = kept
			}
			_, err := r.power(node.ActionOff, bmc.PowerOptions{})
			must(t, err)
			same(t, "the machine that is meant", r.Power(System), "Off")
			same(t, "the other one", r.Power(second), "On")
		})
	}

	row(t, "R85_a_machine_that_was_replaced", func(t *testing.T) {
		r := start(t)
		r.target.System = "SN-1"
		must(t, r.do(powerOnly))
		r.Edit(System, Doc{"SerialNumber": "SN-9"})
		fresh := attach(t, r.Server, redfish.Options{})
		fresh.target.System = "SN-1"
		wantReason(t, fresh.do(powerOnly), bmc.SystemNotFound)
		fresh.target.Quirks = r.target.Quirks // where it once was does not make it the same machine
		_, err := fresh.power(node.ActionOff, bmc.PowerOptions{})
		wantReason(t, err, bmc.SystemNotFound)
		same(t, "power", r.Power(System), "On")
	})
}

// TestNICs is section 6 of the list, as far as it is about network ports.
func TestNICs(t *testing.T) {
	const own1, own2 = "b8:3f:d2:00:00:01", "b8:3f:d2:00:00:02"
	noNICs := func(s *Server) { s.Edit(System, Doc{"EthernetInterfaces": Gone}) }
	for name, c := range map[string]struct {
		change func(s *Server)
		want   []string
		note   bool // that something was left out is told
	}{
		"R86_device_functions_only": {func(s *Server) {
			noNICs(s)
			s.AddAdapter("A", map[string]Doc{"NetworkDeviceFunctions": {"Id": "1", "Ethernet": Doc{"MACAddress": own1}}})
		}, []string{own1}, false},
		"R86_ports_only": {func(s *Server) {
			noNICs(s)
			s.AddAdapter("A", map[string]Doc{"Ports": {"Id": "1", "Ethernet": Doc{"AssociatedMACAddresses": []any{own1}}}})
		}, []string{own1}, false},
		"R86_network_ports_only": {func(s *Server) {
			noNICs(s)
			s.AddAdapter("A", map[string]Doc{"NetworkPorts": {"Id": "1", "AssociatedNetworkAddresses": []any{own1}}})
		}, []string{own1}, false},
		"R86_none_at_all":     {noNICs, nil, false},
		"R87_an_empty_string": {func(s *Server) { s.AddNIC("3", Doc{"MACAddress": ""}) }, []string{own1, own2}, true},
		"R87_null":            {func(s *Server) { s.AddNIC("3", Doc{"MACAddress": nil}) }, []string{own1, own2}, true},
		"R87_zero":            {func(s *Server) { s.AddNIC("3", Doc{"MACAddress": "00:00:00:00:00:00"}) }, []string{own1, own2}, true},
		"R87_permanent_only": {func(s *Server) {
			s.AddNIC("3", Doc{"MACAddress": "", "PermanentMACAddress": "b8:3f:d2:00:00:03"})
		}, []string{own1, own2, "b8:3f:d2:00:00:03"}, false},
		"R89_to_manager":  {func(s *Server) { s.AddNIC("ToManager", Doc{"MACAddress": "b8:3a:f2:b6:05:9f"}) }, []string{own1, own2}, true},
		"R89_local_bit":   {func(s *Server) { s.AddNIC("12", Doc{"MACAddress": "be:3a:f2:b6:05:9f"}) }, []string{own1, own2}, true},
		"R89_local_bit_2": {func(s *Server) { s.AddNIC("usb0", Doc{"MACAddress": "0A:8F:C3:00:00:01"}) }, []string{own1, own2}, true},
		"R89_host_interface": {func(s *Server) {
			s.AddNIC("9", Doc{"MACAddress": "b8:3a:f2:b6:05:9f", "Links": Doc{"HostInterface": Link(Manager + "/HostInterfaces/1")}})
		}, []string{own1, own2}, true},
		"R90_hyphens":    {func(s *Server) { s.AddNIC("3", Doc{"MACAddress": "B8-3F-D2-00-00-03"}) }, []string{own1, own2, "b8:3f:d2:00:00:03"}, false},
		"R90_bare":       {func(s *Server) { s.AddNIC("3", Doc{"MACAddress": "b83fd2000003"}) }, []string{own1, own2, "b8:3f:d2:00:00:03"}, false},
		"R90_upper_case": {func(s *Server) { s.AddNIC("3", Doc{"MACAddress": "B8:3F:D2:00:00:03"}) }, []string{own1, own2, "b8:3f:d2:00:00:03"}, false},
		"R92_no_link_state": {func(s *Server) {
			s.AddNIC("3", Doc{"MACAddress": "b8:3f:d2:00:00:03", "LinkStatus": nil, "InterfaceEnabled": nil})
			s.Edit(NICs+"/1", Doc{"LinkStatus": "LinkDown", "InterfaceEnabled": false})
			s.Edit(NICs+"/2", Doc{"LinkStatus": Gone, "InterfaceEnabled": Gone})
		}, []string{own1, own2, "b8:3f:d2:00:00:03"}, false},
		"R94_an_added_card_is_an_adapter_only": {func(s *Server) {
			s.AddAdapter("AOC", map[string]Doc{"NetworkDeviceFunctions": {"Id": "1", "Ethernet": Doc{"MACAddress": "B8:3F:D2:00:00:03"}}})
			s.AddAdapter("Same", map[string]Doc{"NetworkDeviceFunctions": {"Id": "1", "Ethernet": Doc{"MACAddress": "B8:3F:D2:00:00:01"}}})
		}, []string{own1, own2, "b8:3f:d2:00:00:03"}, false},
		"R94_an_infiniband_address_is_no_mac": {func(s *Server) {
			s.AddAdapter("IB", map[string]Doc{"NetworkPorts": {"Id": "1", "AssociatedNetworkAddresses": []any{"88e9:a4ff:ff87:42c8", "0000:0000:0000:0000"}}})
		}, []string{own1, own2}, false},
	} {
		row(t, name, func(t *testing.T) {
			r := start(t, c.change)
			found := r.inspect()
			same(t, "MAC addresses", macs(found), c.want)
			if c.note && len(found.Notes) == 0 {
				t.Error("that a port was left out is not told")
			}
		})
	}

	row(t, "R91_machines_without_a_mac_share_none", func(t *testing.T) {
		for range 2 {
			r := start(t, func(s *Server) {
				s.Edit(NICs+"/1", Doc{"MACAddress": ""})
				s.Edit(NICs+"/2", Doc{"MACAddress": nil, "PermanentMACAddress": ""})
			})
			same(t, "addresses", macs(r.inspect()), nil) // an empty one would be the same on both
		}
	})

	row(t, "R89_two_machines_share_the_constant", func(t *testing.T) {
		var all []string
		for i := range 2 {
			r := start(t, func(s *Server) {
				s.Edit(NICs+"/1", Doc{"MACAddress": fmt.Sprintf("b8:3f:d2:00:01:0%d", i)})
				s.Edit(NICs+"/2", Doc{"MACAddress": fmt.Sprintf("b8:3f:d2:00:02:0%d", i)})
				s.AddNIC("ToManager", Doc{"MACAddress": "BE:3A:F2:B6:05:9F", "PermanentMACAddress": "BE:3A:F2:B6:05:9F"})
			})
			all = append(all, macs(r.inspect())...)
		}
		slices.Sort(all)
		same(t, "different addresses", len(slices.Compact(all)), 4)
	})
}

// TestIdentity is section 6, as far as it is about who a machine is.
func TestIdentity(t *testing.T) {
	for name, c := range map[string]struct {
		uuid any
		weak bool
	}{
		"R95_a_uuid_from_a_mac": {"00000000-0000-0000-0000-7CC25550A8FF", true},
		"R95_a_zero_uuid":       {"00000000-0000-0000-0000-000000000000", true},
		"R95_an_all_ones_uuid":  {"FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", true},
		"R95_a_true_uuid":       {"4c4c4544-0035-3410-8050-c6c04f314733", false},
	} {
		row(t, name, func(t *testing.T) {
			r := start(t, func(s *Server) { s.Edit(System, Doc{"UUID": c.uuid}) })
			same(t, "weak", len(r.identify().Weak) > 0, c.weak)
		})
	}

	for name, empty := range map[string]any{"R95_null_claims": nil, "R95_empty_claims": ""} {
		row(t, name, func(t *testing.T) {
			r := start(t, func(s *Server) { s.Edit(System, Doc{"UUID": empty, "SerialNumber": empty, "SKU": "F54P1G3"}) })
			who := r.identify()
			same(t, "claims", []string{who.UUID, who.Serial, who.SKU}, []string{"", "", "F54P1G3"})
		})
	}

	for name, c := range map[string]struct {
		root, system Doc
		want         string
	}{
		"R102_by_the_root":         {Doc{"Vendor": "HPE"}, Doc{"Manufacturer": "HPE"}, "hpe"},
		"R102_by_the_root's_oem":   {Doc{"Oem": Doc{"Supermicro": Doc{}}}, Doc{"Manufacturer": "To be filled"}, "supermicro"},
		"R102_by_the_manufacturer": {Doc{}, Doc{"Manufacturer": "Dell Inc."}, "dell"},
		"R102_the_root_comes_first": {
			Doc{"Vendor": "AMI", "Oem": Doc{"Ami": Doc{}}}, Doc{"Manufacturer": "NVIDIA"}, "ami"},
	} {
		row(t, name, func(t *testing.T) {
			r := start(t, func(s *Server) {
				s.Edit(Root, c.root)
				s.Edit(System, c.system)
			})
			if got := r.identify().Vendor; !strings.Contains(strings.ToLower(got), c.want) {
				t.Errorf("vendor %q; want %s", got, c.want)
			}
		})
	}

	row(t, "R97_identity_of_the_whole", func(t *testing.T) {
		r := start(t)
		same(t, "identity", r.identify(), bmc.Identity{
			SystemID: "1", UUID: "7d3c4e56-0000-4a6b-8c00-0000000000a1", Serial: "SN-1", SKU: "SKU-1", Manufacturer: "Plain", Model: "P100",
			Vendor: r.identify().Vendor, ManagerModel: "Plain BMC", ManagerFirmware: "1.2.3", BIOSVersion: "2.1", Power: node.PowerOn, Health: "OK",
		})
	})

	for name, change := range map[string]func(s *Server){
		"R100_no_managed_by": func(s *Server) { s.Edit(System, Doc{"Links": Doc{"ManagedBy": Gone}}) },
		"R100_an_empty_list": func(s *Server) { s.Edit(System, Doc{"Links": Doc{"ManagedBy": []any{}}}) },
		"R100_no_links":      func(s *Server) { s.Edit(System, Doc{"Links": Gone}) },
	} {
		row(t, name, func(t *testing.T) {
			r := start(t, change)
			same(t, "firmware", r.identify().ManagerFirmware, "1.2.3")
			_, err := r.insert("https://images.example/a.iso")
			must(t, err)
			same(t, "NICs", len(r.inspect().Hardware.NICs), 2)
		})
	}

	row(t, "R100_no_managers", func(t *testing.T) {
		r := start(t, func(s *Server) {
			s.Edit(Root, Doc{"Managers": Gone})
			s.Edit(System, Doc{"Links": Gone})
			s.Remove("/redfish/v1/Managers", Manager, Drives)
		})
		same(t, "serial", r.identify().Serial, "SN-1")
		_, err := r.insert("https://images.example/a.iso")
		wantReason(t, err, bmc.Unsupported)
	})
}

// TestHardware is section 6, as far as it is about disks and about documents that are not as they should be.
func TestHardware(t *testing.T) {
	row(t, "R86_the_whole", func(t *testing.T) {
		found := start(t).inspect()
		h := found.Hardware
		same(t, "cores, memory, disks, ports", []int64{int64(h.Cores), h.MemoryBytes >> 30, int64(len(h.Disks)), int64(len(h.NICs))}, []int64{64, 256, 2, 2})
		same(t, "who", []string{h.Manufacturer, h.Product, h.Serial, h.UUID}, []string{"Plain", "P100", "SN-1", "7d3c4e56-0000-4a6b-8c00-0000000000a1"})
		for _, d := range h.Disks {
			if d.Bytes != 480103981056 || d.Serial == "" || d.Model != "D200" {
				t.Errorf("disk %+v", d)
			}
		}
	})

	const drives = Storage + "/Drives"
	unknown := Doc{"CapacityBytes": nil, "MediaType": nil, "Protocol": nil, "Model": nil, "SerialNumber": nil, "Identifiers": nil}
	for name, change := range map[string]func(s *Server){
		"R101_everything_is_null": func(s *Server) { s.Edit(drives+"/2", unknown) },
		"R101_of_all_of_them": func(s *Server) {
			s.Edit(drives+"/1", unknown)
			s.Edit(drives+"/2", unknown)
			s.Edit(drives+"/2", Doc{"CapacityBytes": 480103981056})
		},
		"R101_the_document_is_missing": func(s *Server) { s.Remove(drives + "/2") },
		"R101_the_document_is_refused": func(s *Server) {
			s.On("GET", drives+"/2", Always(Problem(500, "Base.1.8.InternalError", "It failed.")))
		},
		"R101_the_document_is_no_object": func(s *Server) { s.On("GET", drives+"/2", Always(Say(200, `[1,2]`))) },
	} {
		row(t, name, func(t *testing.T) {
			r := start(t, change)
			found := r.inspect()
			same(t, "disks", len(found.Hardware.Disks), 2)
			same(t, "known bytes", found.Hardware.Disks[0].Bytes+found.Hardware.Disks[1].Bytes, 480103981056)
			if found.Sources["drives"] == "complete" && len(found.Notes) == 0 {
				t.Error("that a disk's size is not known is not told")
			}
			if a, b := found.Hardware.Disks[0].Key(), found.Hardware.Disks[1].Key(); a == b {
				t.Errorf("two disks are one: %s", a)
			}
		})
	}

	row(t, "R101_a_drive_of_the_chassis_is_refused", func(t *testing.T) {
		r := start(t, func(s *Server) {
			s.Edit(Chassis, Doc{"Links": Doc{"Drives": []any{Link(Chassis + "/Drives/3")}}})
			s.On("GET", Chassis+"/Drives/3", Always(Problem(500, "Base.1.8.InternalError", "It failed.")))
		})
		same(t, "source", r.inspect().Sources["drives"], "partial")
	})

	row(t, "R86_sources_that_are_not_there", func(t *testing.T) {
		r := start(t, func(s *Server) {
			s.Edit(System, Doc{"Processors": Gone, "Memory": Gone, "Storage": Gone, "EthernetInterfaces": Gone,
				"ProcessorSummary": Gone, "MemorySummary": Gone})
		})
		found := r.inspect()
		for _, source := range []string{"processors", "memory", "drives", "nics"} {
			same(t, source, found.Sources[source], "absent")
		}
	})

	for name, change := range map[string]func(s *Server){
		"R99_numbers_as_text": func(s *Server) {
			s.Edit(System, Doc{"ProcessorSummary": Doc{"Count": "2", "CoreCount": "64"}, "MemorySummary": Doc{"TotalSystemMemoryGiB": "256"}})
			for _, n := range []string{"1", "2"} {
				s.Edit(System+"/Processors/"+n, Doc{"TotalCores": "32"})
				s.Edit(System+"/Memory/"+n, Doc{"CapacityMiB": "131072"})
				s.Edit(drives+"/"+n, Doc{"CapacityBytes": "480103981056"})
			}
		},
		"R99_numbers_with_a_fraction": func(s *Server) {
			s.Edit(System, Doc{"MemorySummary": Doc{"TotalSystemMemoryGiB": 256.0}})
			s.On("GET", drives+"/*", func(x *Exchange) *Answer { return number(x.Next(), "CapacityBytes", "4.80103981056E11") })
		},
		"R99_an_object_for_a_list": func(s *Server) {
			s.Edit(System, Doc{"Links": Doc{"Chassis": Link(Chassis), "ManagedBy": Link(Manager)}})
			s.Edit(drives+"/1", Doc{"Identifiers": Doc{"DurableName": "0025389A21010001", "DurableNameFormat": "EUI"}})
		},
		"R99_a_list_for_an_object": func(s *Server) {
			s.Edit(System, Doc{"Status": []any{Doc{"Health": "OK"}}})
		},
		"R99_other_types_where_nobody_looks": func(s *Server) {
			s.Edit(System, Doc{"Name": 7, "Description": []any{}, "HostName": Doc{}, "AssetTag": false, "IndicatorLED": 3, "LastResetTime": 12, "SubModel": nil})
			s.Edit(NICs+"/1", Doc{"SpeedMbps": "25000", "IPv4Addresses": Doc{}, "VLAN": []any{}, "MTUSize": "1500", "Status": "OK"})
		},
		"R96_no_count":      func(s *Server) { s.Edit(NICs, Doc{"Members@odata.count": Gone}) },
		"R96_a_wrong_count": func(s *Server) { s.Edit(NICs, Doc{"Members@odata.count": 77}) },
		"R96_members_null_elsewhere": func(s *Server) {
			s.AddAdapter("A", map[string]Doc{"Ports": {"Id": "1"}})
			s.Edit(Adapters+"/A/Ports", Doc{"Members": nil})
		},
		"R96_pages": func(s *Server) { paged(s, NICs, NICs+"/1", NICs+"/2") },
		"R96_pages_without_end": func(s *Server) {
			s.Edit(NICs, Doc{"Members@odata.nextLink": NICs + "?$skip=2"})
		},
		"R97_slashes_and_lower_case": func(s *Server) {
			s.Edit(System, Doc{
				"@odata.id": System + "/", "Processors": Link(strings.ToLower(System) + "/processors/"),
				"EthernetInterfaces": Link(strings.ToLower(NICs) + "/"), "Storage": Link(strings.ToLower(System) + "/storage/"),
			})
			s.Collection("/redfish/v1/Systems", strings.ToLower(System)+"/")
		},
		"R97_ports_of_elsewhere": func(s *Server) {
			const elsewhere = Manager + "/Oem/NICs/1"
			s.Put(elsewhere, nic("1", "b8:3f:d2:00:00:01"))
			s.Remove(NICs + "/1")
			s.Collection(NICs, elsewhere, NICs+"/2")
		},
		"R97_one_member_twice": func(s *Server) { s.Collection(NICs, NICs+"/1", NICs+"/2/", NICs+"/2") },
	} {
		row(t, name, func(t *testing.T) {
			h := start(t, change).inspect().Hardware
			same(t, "cores, memory, disks, ports", []int64{int64(h.Cores), h.MemoryBytes >> 30, int64(len(h.Disks)), int64(len(h.NICs))}, []int64{64, 256, 2, 2})
			same(t, "bytes of the first disk", h.Disks[0].Bytes, 480103981056)
		})
	}

	row(t, "R96_members_null", func(t *testing.T) {
		r := start(t, func(s *Server) { s.Edit(NICs, Doc{"Members": nil}) })
		same(t, "MAC addresses", macs(r.inspect()), nil)
	})

	for name, info := range map[string]any{
		"R99_extended_info_is_an_object": Doc{"MessageId": "IDRAC.2.4.PSU501", "Message": "Server is already powered ON."},
		"R99_extended_info_is_text":      "Server is already powered ON.",
		"R99_extended_info_is_null":      nil,
	} {
		row(t, name, func(t *testing.T) {
			r := start(t)
			r.On("POST", Reset, Always(Say(400, Doc{"error": Doc{"code": "Base.1.8.GeneralError", "message": "no", "@Message.ExtendedInfo": info}})))
			_, err := r.power(node.ActionOff, bmc.PowerOptions{})
			wantReason(t, err, bmc.Refused, bmc.PowerNotReached)
		})
	}

	row(t, "R103_nothing_is_expanded", func(t *testing.T) {
		r := start(t, func(s *Server) {
			s.Edit(Root, Doc{"ProtocolFeaturesSupported": Doc{"ExpandQuery": Doc{"ExpandAll": true, "Levels": true, "MaxLevels": 6, "NoLinks": true}}})
		})
		r.inspect()
		for _, q := range r.Requests("", "") {
			if q.Query != "" {
				t.Errorf("%s %s?%s", q.Method, q.Path, q.Query)
			}
		}
	})

	for name, body := range map[string]string{
		"R105_too_large":      `{"Id":"1","PowerState":"On","Description":"` + strings.Repeat("x", 20<<20) + `"}`,
		"R105_not_json":       `{"Name": "System", "Values": [1, 2,, 3]}`,
		"R105_html":           "<html><body>Welcome</body></html>",
		"R105_empty":          "",
		"R105_cut_off":        `{"Id": "1", "PowerState": "O`,
		"R105_nested_without": strings.Repeat(`{"a":`, 200_000),
	} {
		row(t, name, func(t *testing.T) {
			r := start(t)
			r.On("GET", System, Always(Say(200, body)))
			wantReason(t, r.do(powerOnly), bmc.BadAnswer)
		})
	}

	row(t, "R105_elsewhere_it_is_a_note", func(t *testing.T) {
		r := start(t)
		r.On("GET", System+"/Processors/2", Always(Say(200, `{"TotalCores": ,}`)))
		found := r.inspect()
		same(t, "disks", len(found.Hardware.Disks), 2)
		if found.Sources["processors"] == "complete" {
			t.Error("the processors are told as complete")
		}
	})
}

// number puts a number into an answer as it is written.
func number(a *Answer, name, written string) *Answer {
	d := a.Body.(Doc)
	d[name] = "NUMBER"
	raw, _ := json.Marshal(d)
	a.Body = strings.Replace(string(raw), `"NUMBER"`, written, 1)
	return a
}

// paged shows a collection one member a page, with a count that is the sum.
func paged(s *Server, collection string, members ...string) {
	s.On(http.MethodGet, collection, func(x *Exchange) *Answer {
		a := x.Next()
		page := 0
		_, _ = fmt.Sscanf(x.Query, "$skip=%d", &page)
		d := a.Body.(Doc)
		d["Members"] = []any{Link(members[page])}
		if page+1 < len(members) {
			d["Members@odata.nextLink"] = fmt.Sprintf("%s?$skip=%d", collection, page+1)
		}
		return a
	})
}

// TestSensors checks that a reading is taken where the machine has one, by either of the two ways.
func TestSensors(t *testing.T) {
	for name, change := range map[string]func(s *Server){
		"R103_sensors_by_their_collection": func(s *Server) {
			s.Edit(Chassis, Doc{"Sensors": Link(Chassis + "/Sensors")})
			s.Collection(Chassis+"/Sensors", Chassis+"/Sensors/1", Chassis+"/Sensors/2")
			s.Put(Chassis+"/Sensors/1", Doc{"Id": "1", "Name": "Inlet", "ReadingType": "Temperature", "Reading": 24.5, "ReadingUnits": "Cel", "Status": Doc{"Health": "OK"}})
			s.Put(Chassis+"/Sensors/2", Doc{"Id": "2", "Name": "Absent", "ReadingType": "Temperature", "Reading": nil, "ReadingUnits": "Cel"})
		},
		"R103_sensors_by_thermal": func(s *Server) {
			s.Edit(Chassis, Doc{"Thermal": Link(Chassis + "/Thermal")})
			s.Put(Chassis+"/Thermal", Doc{"Id": "Thermal", "Name": "Thermal", "Temperatures": []any{
				Doc{"Name": "Inlet", "ReadingCelsius": "24.5", "Status": Doc{"Health": "OK"}}, Doc{"Name": "Absent", "ReadingCelsius": nil}}})
		},
	} {
		row(t, name, func(t *testing.T) {
			r := start(t, change)
			must(t, r.do(func(ctx context.Context, m machine) error {
				got, err := m.Sensors(ctx)
				same(t, "readings", got, []bmc.Reading{{Name: "Inlet", Kind: "temperature", Value: 24.5, Unit: "Cel", Health: "OK"}})
				return err
			}))
		})
	}
}
