package bmcsim

import "net/http"

// addRoot adds the service root, sessions and accounts, and the collections.
func (s *Service) addRoot() {
	p := s.p
	d := doc{
		"@odata.id": root, "@odata.type": "#ServiceRoot.v1_9_0.ServiceRoot", "Id": "RootService", "Name": "Root Service",
		"RedfishVersion": "1.11.0", "UUID": s.facts.UUID,
		"Systems": s.link(root + "/Systems"), "Managers": s.link(root + "/Managers"), "Chassis": s.link(root + "/Chassis"),
		"SessionService": s.link(root + "/SessionService"), "AccountService": s.link(root + "/AccountService"),
		"Links": doc{"Sessions": s.link(sessionsPath)},
	}
	if p.vendor != "" {
		d["Vendor"] = p.vendor
	}
	if p.product != "" {
		d["Product"] = p.product
	}
	if p.oem != "" {
		d["Oem"] = doc{p.oem: doc{}}
	}
	if p.resetTask {
		d["Tasks"] = s.link(tasksPath)
	}
	s.add(root, &resource{open: http.MethodGet, doc: func(State) doc { return clone(d) }})
	s.add("/redfish", &resource{open: http.MethodGet, doc: func(State) doc { return doc{"v1": root + "/"} }})

	s.fixed(root+"/SessionService", doc{
		"@odata.type": "#SessionService.v1_1_8.SessionService", "Id": "SessionService", "Name": "Session Service",
		"ServiceEnabled": true, "SessionTimeout": int(sessionTimeout.Seconds()), "Sessions": s.link(sessionsPath),
	})
	s.add(sessionsPath, &resource{open: http.MethodPost, volatile: true, doc: s.sessionList, post: s.openSession})
	s.fixed(root+"/AccountService", doc{
		"@odata.type": "#AccountService.v1_10_0.AccountService", "Id": "AccountService", "Name": "Account Service",
		"AccountLockoutThreshold": p.lockout, "AccountLockoutDuration": int(lockoutTime.Seconds()),
	})
	systems := []string{s.base}
	if p.baseboard {
		systems = append(systems, root+"/Systems/HGX_Baseboard_0")
		s.addBaseboard()
	}
	s.collection(root+"/Systems", "ComputerSystem", systems...)
	s.collection(root+"/Managers", "Manager", s.mgr)
	s.collection(root+"/Chassis", "Chassis", s.chas)
}

// addBaseboard adds a second system that is none to be switched: it is away while the host is off.
func (s *Service) addBaseboard() {
	path := root + "/Systems/HGX_Baseboard_0"
	s.add(path, &resource{hostOnly: true, doc: func(State) doc {
		return doc{
			"@odata.id": s.id(path), "@odata.type": "#ComputerSystem.v1_17_0.ComputerSystem", "Id": "HGX_Baseboard_0",
			"Name": "HGX Baseboard", "SystemType": "Physical", "Manufacturer": "NVIDIA", "Model": "HGX", "UUID": nil, "SerialNumber": nil,
			"PowerState": "On", "Status": doc{"State": "Enabled", "Health": "OK"},
		}
	}})
}
