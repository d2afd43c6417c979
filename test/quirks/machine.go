package quirks

// Where the parts of Machine are.
const (
	Root     = "/redfish/v1"
	System   = "/redfish/v1/Systems/1"
	Settings = "/redfish/v1/Systems/1/Settings"
	Reset    = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"
	NICs     = "/redfish/v1/Systems/1/EthernetInterfaces"
	Bios     = "/redfish/v1/Systems/1/Bios"
	Storage  = "/redfish/v1/Systems/1/Storage/1"
	Chassis  = "/redfish/v1/Chassis/1"
	Manager  = "/redfish/v1/Managers/1"
	Drives   = "/redfish/v1/Managers/1/VirtualMedia"
	Drive    = "/redfish/v1/Managers/1/VirtualMedia/1"
	Insert   = "/redfish/v1/Managers/1/VirtualMedia/1/Actions/VirtualMedia.InsertMedia"
	Eject    = "/redfish/v1/Managers/1/VirtualMedia/1/Actions/VirtualMedia.EjectMedia"
	Sessions = "/redfish/v1/SessionService/Sessions"
	Adapters = "/redfish/v1/Chassis/1/NetworkAdapters"

	SecureBoot = "/redfish/v1/Systems/1/SecureBoot"
)

// Machine puts the documents of one healthy machine without a vendor's quirks: 2 processors of 32 cores, 256 GiB, two
// disks, two network ports, a TPM and a virtual CD drive. It is on, by UEFI without Secure Boot.
func (s *Server) Machine() {
	s.Put("/redfish", Doc{"v1": "/redfish/v1/"})
	s.Put(Root, Doc{
		"Id": "RootService", "Name": "Root Service", "RedfishVersion": "1.15.0", "UUID": "92384634-2938-2342-8820-489239905423",
		"Systems": Link("/redfish/v1/Systems"), "Chassis": Link("/redfish/v1/Chassis"), "Managers": Link("/redfish/v1/Managers"),
		"SessionService": Link("/redfish/v1/SessionService"), "AccountService": Link("/redfish/v1/AccountService"),
		"Links": Doc{"Sessions": Link(Sessions)},
	})
	s.Put("/redfish/v1/SessionService", Doc{"Id": "SessionService", "Name": "Sessions", "SessionTimeout": 300, "Sessions": Link(Sessions)})
	s.Collection(Sessions)
	s.Put("/redfish/v1/AccountService", Doc{"Id": "AccountService", "Name": "Accounts", "AccountLockoutThreshold": 0})
	s.Collection("/redfish/v1/Systems", System)
	s.Put(System, system("1"))
	s.hardware()
	s.Collection("/redfish/v1/Chassis", Chassis)
	s.Put(Chassis, Doc{
		"Id": "1", "Name": "Chassis", "ChassisType": "RackMount", "Links": Doc{"ComputerSystems": []any{Link(System)}},
	})
	s.Collection("/redfish/v1/Managers", Manager)
	s.Put(Manager, Doc{
		"Id": "1", "Name": "Manager", "ManagerType": "BMC", "Model": "Plain BMC", "FirmwareVersion": "1.2.3",
		"VirtualMedia": Link(Drives), "Links": Doc{"ManagerForServers": []any{Link(System)}},
	})
	s.Collection(Drives, Drive)
	s.Put(Drive, drive(Drive, "CD", "DVD"))
}

// system is a whole machine's document.
func system(id string) Doc {
	at := "/redfish/v1/Systems/" + id
	return Doc{
		"Id": id, "Name": "System", "SystemType": "Physical", "PowerState": "On", "BiosVersion": "2.1",
		"Manufacturer": "Plain", "Model": "P100", "SerialNumber": "SN-" + id, "SKU": "SKU-" + id,
		"UUID":             "7d3c4e56-0000-4a6b-8c00-0000000000a" + id[len(id)-1:],
		"Status":           Doc{"State": "Enabled", "Health": "OK"},
		"ProcessorSummary": Doc{"Count": 2, "CoreCount": 64, "LogicalProcessorCount": 128, "Model": "Plain CPU"},
		"MemorySummary":    Doc{"TotalSystemMemoryGiB": 256},
		"TrustedModules":   []any{Doc{"InterfaceType": "TPM2_0", "FirmwareVersion": "7.2.2.0", "Status": Doc{"State": "Enabled"}}},
		"SecureBoot":       Link(at + "/SecureBoot"), "Bios": Link(at + "/Bios"),
		"Boot": Doc{
			"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None", "BootSourceOverrideMode": "UEFI",
			"BootSourceOverrideEnabled@Redfish.AllowableValues": []any{"Disabled", "Once", "Continuous"},
			"BootSourceOverrideTarget@Redfish.AllowableValues":  []any{"None", "Pxe", "Hdd", "Cd", "BiosSetup", "UefiHttp"},
			"BootSourceOverrideMode@Redfish.AllowableValues":    []any{"UEFI", "Legacy"},
			"HttpBootUri": nil,
		},
		"Actions": Doc{"#ComputerSystem.Reset": Doc{
			"target": at + "/Actions/ComputerSystem.Reset",
			"ResetType@Redfish.AllowableValues": []any{
				"On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "PowerCycle", "Nmi"},
		}},
		"EthernetInterfaces": Link(at + "/EthernetInterfaces"), "Storage": Link(at + "/Storage"),
		"Processors": Link(at + "/Processors"), "Memory": Link(at + "/Memory"),
		"Links": Doc{"Chassis": []any{Link(Chassis)}, "ManagedBy": []any{Link(Manager)}},
	}
}

// hardware puts what is in the machine.
func (s *Server) hardware() {
	const processors, memory, storages = System + "/Processors", System + "/Memory", System + "/Storage"
	s.Collection(processors, processors+"/1", processors+"/2")
	s.Collection(memory, memory+"/1", memory+"/2")
	s.Put(SecureBoot, Doc{"Id": "SecureBoot", "Name": "Secure Boot", "SecureBootEnable": true, "SecureBootCurrentBoot": "Disabled"})
	s.Put(Bios, Doc{"Id": "Bios", "Name": "BIOS", "Attributes": Doc{"BootMode": "Uefi", "OneTimeBootMode": "Disabled"}})
	s.Collection(storages, Storage)
	s.Put(Storage, Doc{"Id": "1", "Name": "Storage", "Drives": []any{Link(Storage + "/Drives/1"), Link(Storage + "/Drives/2")}})
	s.Collection(NICs, NICs+"/1", NICs+"/2")
	for _, n := range []string{"1", "2"} {
		s.Put(processors+"/"+n, Doc{
			"Id": n, "Name": "CPU " + n, "ProcessorType": "CPU", "TotalCores": 32, "TotalThreads": 64, "Model": "Plain CPU",
			"ProcessorArchitecture": "x86", "InstructionSet": "x86-64",
		})
		s.Put(memory+"/"+n, Doc{"Id": n, "Name": "DIMM " + n, "CapacityMiB": 131072, "MemoryDeviceType": "DDR5"})
		s.Put(Storage+"/Drives/"+n, Doc{
			"Id": n, "Name": "Disk " + n, "Model": "D200", "SerialNumber": "DISK-" + n, "CapacityBytes": 480103981056,
			"MediaType": "SSD", "Protocol": "NVMe",
			"Identifiers": []any{Doc{"DurableName": "0025389A2101000" + n, "DurableNameFormat": "EUI"}},
		})
		s.Put(NICs+"/"+n, nic(n, "b8:3f:d2:00:00:0"+n))
	}
}

// nic is a network port's document.
func nic(id, mac string) Doc {
	return Doc{"Id": id, "Name": "NIC " + id, "MACAddress": mac, "LinkStatus": "LinkUp", "SpeedMbps": 25000, "InterfaceEnabled": true}
}

// drive is an empty virtual drive's document.
func drive(at string, types ...string) Doc {
	return Doc{
		"Id": at[len(at)-1:], "Name": "Virtual media", "MediaTypes": types, "Image": nil, "Inserted": false,
		"ConnectedVia": "NotConnected",
		"Actions": Doc{
			"#VirtualMedia.InsertMedia": Doc{"target": at + "/Actions/VirtualMedia.InsertMedia"},
			"#VirtualMedia.EjectMedia":  Doc{"target": at + "/Actions/VirtualMedia.EjectMedia"},
		},
	}
}

// AddNIC puts one more network port.
func (s *Server) AddNIC(id string, change Doc) {
	d := nic(id, "")
	merge(d, change)
	s.Put(NICs+"/"+id, d)
	s.AddMember(NICs, NICs+"/"+id)
}

// AddMember puts one more link into a collection.
func (s *Server) AddMember(collection, path string) {
	s.t.Helper()
	c := s.Get(collection)
	members, _ := c["Members"].([]any)
	s.Edit(collection, Doc{"Members": append(members, Link(path)), "Members@odata.count": len(members) + 1})
}

// AddAdapter puts a network adapter into the chassis, with one document below each of the collections that are named:
// Ports, NetworkPorts or NetworkDeviceFunctions.
func (s *Server) AddAdapter(id string, below map[string]Doc) {
	at := Adapters + "/" + id
	s.mu.Lock()
	_, exists := s.docs[key(Adapters)]
	s.mu.Unlock()
	if !exists {
		s.Collection(Adapters)
		s.Edit(Chassis, Doc{"NetworkAdapters": Link(Adapters)})
	}
	s.AddMember(Adapters, at)
	adapter := Doc{"Id": id, "Name": "Adapter " + id}
	for name, d := range below {
		adapter[name] = Link(at + "/" + name)
		s.Collection(at+"/"+name, at+"/"+name+"/1")
		s.Put(at+"/"+name+"/1", d)
	}
	s.Put(at, adapter)
}

// WithSettings gives the system a settings object whose Boot has the properties that are named.
func (s *Server) WithSettings(boot Doc) {
	s.Put(Settings, Doc{"Id": "Settings", "Name": "Settings", "Boot": boot})
	s.Edit(System, Doc{"@Redfish.Settings": Doc{"SettingsObject": Link(Settings)}})
}
