package bmcsim

import (
	"fmt"
	"strconv"
	"strings"
)

// addInventory adds processors, memory, drives and network ports, as completely as this controller tells them.
func (s *Service) addInventory() {
	s.addProcessors()
	s.addFirmware()
	s.addStorage()
	s.addChassis()
	if s.p.ethernet {
		s.addEthernet()
	}
	if s.p.adapters {
		s.addAdapters()
	}
}

// processorModel is what every processor is.
const processorModel = "Simulated CPU"

// sockets is how many processors there are: no more than cores.
func (s *Service) sockets() int { return max(1, min(2, s.facts.Cores)) }

// processorSummary is of the system. Some controllers pad the model.
func (s *Service) processorSummary() doc {
	return doc{
		"Count": s.sockets(), "CoreCount": s.facts.Cores, "LogicalProcessorCount": s.facts.Cores, "Model": processorModel + "    ",
		"Status": doc{"Health": "OK"},
	}
}

func (s *Service) addProcessors() {
	var cpus []string
	left := s.facts.Cores
	for i := s.sockets(); i > 0; i-- {
		cores := left / i
		left -= cores
		at := fmt.Sprintf("%s/Processors/CPU%d", s.base, s.sockets()-i+1)
		cpus = append(cpus, at)
		s.fixed(at, doc{
			"@odata.type": "#Processor.v1_13_0.Processor", "Id": at[strings.LastIndex(at, "/")+1:], "Name": "Processor", "ProcessorType": "CPU",
			"Model": processorModel, "ProcessorArchitecture": "x86", "InstructionSet": "x86-64", "TotalCores": cores, "TotalThreads": cores,
			"Status": doc{"State": "Enabled", "Health": "OK"},
		})
	}
	s.collection(s.base+"/Processors", "Processor", cpus...)
	at := s.base + "/Memory/DIMM1"
	s.fixed(at, doc{
		"@odata.type": "#Memory.v1_13_0.Memory", "Id": "DIMM1", "Name": "DIMM1", "MemoryDeviceType": "DDR4",
		"CapacityMiB": s.facts.MemoryBytes >> 20, "Status": doc{"State": "Enabled", "Health": "OK"},
	})
	s.collection(s.base+"/Memory", "Memory", at)
}

// lowerLink is written in lower case by who writes ids with a slash: clients have to follow it as it is.
func (s *Service) lowerLink(path string) doc {
	if s.p.slash {
		path = strings.ToLower(path)
	}
	return s.link(path)
}

// addFirmware adds what tells how the machine boots: what its controller was told last.
func (s *Service) addFirmware() {
	secure, bios := s.base+"/SecureBoot", s.base+"/Bios"
	s.fixed(secure, doc{
		"@odata.type": "#SecureBoot.v1_1_0.SecureBoot", "Id": "SecureBoot", "Name": "UEFI Secure Boot", "SecureBootEnable": false,
		"SecureBootCurrentBoot": "Disabled", "SecureBootMode": "UserMode",
	})
	s.add(bios, &resource{doc: func(state State) doc {
		attributes := doc{"QuietBoot": "Enabled"}
		if m := s.p.bootModes; m != nil {
			attributes[m.setting] = m.uefi
			if state.Boot.Mode == "Legacy" {
				attributes[m.setting] = m.legacy
			}
		}
		return doc{
			"@odata.id": s.id(bios), "@odata.type": "#Bios.v1_2_0.Bios", "Id": "Bios", "Name": "BIOS", "Attributes": attributes,
		}
	}})
}

// trustedModule is the TPM, or that there is none.
func (s *Service) trustedModule() doc {
	if s.facts.TPM == "" {
		return doc{"InterfaceType": nil, "FirmwareVersion": nil, "Status": doc{"State": "Absent"}}
	}
	return doc{"InterfaceType": s.facts.TPM, "FirmwareVersion": "7.2.3.1", "Status": doc{"State": "Enabled", "Health": "OK"}}
}

func (s *Service) addStorage() {
	at := s.base + "/Storage/Storage.1"
	s.collection(s.base+"/Storage", "Storage", at)
	var drives []string
	for i, d := range s.facts.Disks {
		drive := at + "/Drives/" + strconv.Itoa(i)
		drives = append(drives, drive)
		s.fixed(drive, s.driveDoc(i, d))
	}
	s.fixed(at, doc{
		"@odata.type": "#Storage.v1_10_0.Storage", "Id": "Storage.1", "Name": "Storage", "Drives": s.links(drives...),
		"Drives@odata.count": len(drives), "Status": doc{"State": "Enabled", "Health": "OK"},
	})
}

func (s *Service) driveDoc(i int, d Disk) doc {
	out := doc{
		"@odata.type": "#Drive.v1_12_0.Drive", "Id": strconv.Itoa(i), "Name": d.Name, "Status": doc{"State": "Enabled", "Health": "OK"},
		"CapacityBytes": nil, "Model": nil, "SerialNumber": nil, "MediaType": nil, "Protocol": nil,
	}
	if s.p.driveFacts == drivesNull {
		return out
	}
	out["CapacityBytes"], out["Model"], out["SerialNumber"] = d.Bytes, d.Model, d.Serial
	if d.WWN != "" {
		format, name := "NAA", strings.TrimPrefix(d.WWN, "0x")
		if eui, ok := strings.CutPrefix(d.WWN, "eui."); ok {
			format, name = "EUI", eui
		}
		out["Identifiers"] = []doc{{"DurableName": strings.ToUpper(name), "DurableNameFormat": format}}
	}
	if s.p.driveFacts == drivesFull {
		out["MediaType"], out["Protocol"] = "SSD", map[string]string{"nvme": "NVMe", "sata": "SATA", "sas": "SAS"}[d.Transport]
		if d.Rotational {
			out["MediaType"] = "HDD"
		}
	}
	return out
}

func (s *Service) addChassis() {
	d := doc{
		"@odata.type": "#Chassis.v1_15_0.Chassis", "Id": s.p.chassisID, "Name": "Chassis", "ChassisType": "RackMount",
		"Manufacturer": s.p.manufacturer, "Model": s.p.model, "SerialNumber": s.facts.Serial,
		"Links": doc{"ComputerSystems": s.links(s.base), "ManagedBy": s.links(s.mgr)},
	}
	if s.p.adapters {
		d["NetworkAdapters"] = s.link(s.chas + "/NetworkAdapters")
	}
	if s.p.sensors {
		d["Sensors"] = s.link(s.chas + "/Sensors")
	} else {
		d["Thermal"], d["Power"] = s.link(s.chas+"/Thermal"), s.link(s.chas+"/Power")
	}
	s.fixed(s.chas, d)
}

// hostInterfaceMAC is that of the controller's own link into the host: the same on every machine of its kind.
const hostInterfaceMAC = "be:3a:f2:b6:05:9f"

func (s *Service) addEthernet() {
	nics := s.facts.NICs
	if s.p.hostNIC != "" {
		nics = append([]NIC{{Name: s.p.hostNIC, MAC: hostInterfaceMAC}}, nics...)
	}
	var paths []string
	for _, n := range nics {
		at := s.base + "/EthernetInterfaces/" + n.Name
		paths = append(paths, at)
		d := doc{
			"@odata.type": "#EthernetInterface.v1_6_0.EthernetInterface", "Id": n.Name, "Name": n.Name, "MACAddress": s.mac(n.MAC),
			"PermanentMACAddress": s.mac(n.MAC), "InterfaceEnabled": true, "Status": doc{"State": "Enabled", "Health": "OK"},
		}
		switch s.p.links {
		case linksOfInterfaces:
			d["LinkStatus"], d["SpeedMbps"] = "LinkUp", n.SpeedMbps
		case linksDown:
			d["LinkStatus"], d["SpeedMbps"] = "LinkDown", 0
		default:
			d["LinkStatus"], d["SpeedMbps"], d["InterfaceEnabled"] = nil, nil, nil
		}
		s.fixed(at, d)
	}
	s.collection(s.base+"/EthernetInterfaces", "EthernetInterface", paths...)
}

func (s *Service) addAdapters() {
	at := s.chas + "/NetworkAdapters/NIC.1"
	s.collection(s.chas+"/NetworkAdapters", "NetworkAdapter", at)
	s.fixed(at, doc{
		"@odata.type": "#NetworkAdapter.v1_8_0.NetworkAdapter", "Id": "NIC.1", "Name": "Network Adapter",
		"NetworkDeviceFunctions": s.link(at + "/NetworkDeviceFunctions"), "Ports": s.link(at + "/Ports"),
	})
	var functions, ports []string
	for _, n := range s.facts.NICs {
		function, port := at+"/NetworkDeviceFunctions/"+n.Name, at+"/Ports/"+n.Name
		functions, ports = append(functions, function), append(ports, port)
		s.fixed(function, doc{
			"@odata.type": "#NetworkDeviceFunction.v1_5_0.NetworkDeviceFunction", "Id": n.Name, "Name": n.Name,
			"NetDevFuncType": "Ethernet",
			"Ethernet":       doc{"MACAddress": s.mac(n.MAC), "PermanentMACAddress": s.mac(n.MAC), "MTUSize": 1500},
			"Links":          doc{"PhysicalPortAssignment": s.link(port)},
		})
		d := doc{
			"@odata.type": "#Port.v1_3_0.Port", "Id": n.Name, "Name": n.Name, "PortProtocol": "Ethernet", "LinkStatus": "LinkDown",
			"Ethernet": doc{"AssociatedMACAddresses": []string{s.mac(n.MAC)}},
		}
		if s.p.links == linksOfPorts {
			d["LinkStatus"], d["CurrentSpeedGbps"] = "LinkUp", float64(n.SpeedMbps)/1000
		}
		s.fixed(port, d)
	}
	s.collection(at+"/NetworkDeviceFunctions", "NetworkDeviceFunction", functions...)
	s.collection(at+"/Ports", "Port", ports...)
}
