package bmcsim

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
)

// overrides are the values of BootSourceOverrideEnabled.
var overrides = []string{"Disabled", "Once", "Continuous"}

func (s *Service) addSystem() {
	res := &resource{doc: s.systemDoc, patch: s.patchSystem}
	if s.p.settings != "" {
		res.patch = s.patchElsewhere
		s.add(s.base+"/"+s.p.settings, &resource{doc: s.settingsDoc, patch: s.patchSystem})
	}
	s.add(s.base, res)
	s.add(s.base+"/Actions/ComputerSystem.Reset", &resource{post: s.reset})
	if s.p.actionInfo {
		s.fixed(s.base+"/ResetActionInfo", doc{
			"@odata.type": "#ActionInfo.v1_1_2.ActionInfo", "Id": "ResetActionInfo", "Name": "Reset Action Info",
			"Parameters": []doc{{"Name": "ResetType", "Required": true, "DataType": "String", "AllowableValues": s.p.resets}},
		})
	}
	if s.p.resetTask {
		s.addTasks()
	}
}

// systemDoc is the computer system.
func (s *Service) systemDoc(state State) doc {
	p, f := s.p, s.facts
	d := doc{
		"@odata.id": s.id(s.base), "@odata.type": "#ComputerSystem.v1_17_0.ComputerSystem", "Id": p.systemID, "Name": "System",
		"SystemType": "Physical", "Manufacturer": p.manufacturer, "Model": p.model, "SerialNumber": f.Serial, "UUID": f.UUID,
		"SKU": f.Tag, "BiosVersion": p.bios, "PowerState": power(state), "Boot": s.bootDoc(state.Boot),
		"Status":           doc{"State": statusState(state), "Health": p.health, "HealthRollup": p.health},
		"ProcessorSummary": s.processorSummary(),
		"MemorySummary":    doc{"TotalSystemMemoryGiB": float64(f.MemoryBytes) / (1 << 30), "Status": doc{"Health": "OK"}},
		"Processors":       s.link(s.base + "/Processors"), "Memory": s.link(s.base + "/Memory"), "Storage": s.lowerLink(s.base + "/Storage"),
		"Links":   doc{"ManagedBy": s.links(s.mgr), "Chassis": s.links(s.chas)},
		"Actions": doc{"#ComputerSystem.Reset": s.resetAction()},
	}
	if !p.undated && !state.Started.IsZero() {
		d["LastResetTime"] = state.Started.UTC().Format(time.RFC3339)
	}
	if p.ethernet {
		d["EthernetInterfaces"] = s.link(s.base + "/EthernetInterfaces")
	}
	if p.mediaAtSystem {
		d["VirtualMedia"] = s.link(s.mediaPath())
	}
	if p.settings != "" {
		d["@Redfish.Settings"] = doc{"@odata.type": "#Settings.v1_2_2.Settings", "SettingsObject": s.link(s.base + "/" + p.settings)}
	}
	d["SecureBoot"], d["Bios"] = s.link(s.base+"/SecureBoot"), s.lowerLink(s.base+"/Bios")
	if !p.noModules {
		d["TrustedModules"] = []doc{s.trustedModule()}
	}
	return d
}

func (s *Service) settingsDoc(state State) doc {
	boot := s.bootDoc(state.Boot)
	s.allow(boot)
	return doc{
		"@odata.id": s.id(s.base + "/" + s.p.settings), "@odata.type": "#ComputerSystem.v1_17_0.ComputerSystem", "Id": s.p.systemID,
		"Name": "System", "Boot": boot,
	}
}

func power(state State) string {
	if state.On {
		return "On"
	}
	return "Off"
}

func statusState(state State) string {
	if state.Posting {
		return "Starting"
	}
	return "Enabled"
}

func (s *Service) resetAction() doc {
	action := doc{"target": s.id(s.base + "/Actions/ComputerSystem.Reset")}
	if s.p.actionInfo {
		action["@Redfish.ActionInfo"] = s.id(s.base + "/ResetActionInfo")
	} else {
		action["ResetType@Redfish.AllowableValues"] = s.p.resets
	}
	return action
}

// bootDoc is the override. Where there is a settings object, what is allowed stands there.
func (s *Service) bootDoc(b Boot) doc {
	d := doc{
		"BootSourceOverrideEnabled": b.Enabled, "BootSourceOverrideTarget": b.Target, "BootSourceOverrideMode": b.Mode,
		"BootOrder": []string{"Boot0001", "Boot0002"},
	}
	if b.HTTPURI != "" {
		d["HttpBootUri"] = b.HTTPURI
	}
	if s.p.settings == "" {
		s.allow(d)
	}
	return d
}

func (s *Service) allow(d doc) {
	d["BootSourceOverrideTarget@Redfish.AllowableValues"] = s.p.targets
	if s.p.name == Standard || s.p.settings != "" {
		d["BootSourceOverrideMode@Redfish.AllowableValues"] = s.p.modes
		d["BootSourceOverrideEnabled@Redfish.AllowableValues"] = overrides
	}
}

func (s *Service) patchElsewhere(c call) answer {
	if _, ok := c.set["Boot"]; ok {
		return s.refuseOwn(http.StatusBadRequest, "OperationSupportedInFutureStateURI",
			"The property can be changed in the settings object only.", s.base+"/"+s.p.settings)
	}
	return s.patchSystem(c)
}

// patchSystem changes Boot, and nothing else.
func (s *Service) patchSystem(c call) answer {
	for name := range c.set {
		if name != "Boot" {
			return refuse(http.StatusBadRequest, "PropertyNotWritable", "The property is read only.", name)
		}
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(c.set["Boot"], &fields); err != nil || len(fields) == 0 {
		return refuse(http.StatusBadRequest, "PropertyValueTypeError", "Boot is an object.", "Boot")
	}
	state := s.board.State()
	if s.p.postBusy && state.Posting {
		return s.refuseOwn(http.StatusBadRequest, "UnableToModifyDuringSystemPOST", "The system is in POST.")
	}
	boot, a := s.changed(state.Boot, fields)
	if a.status != 0 {
		return a
	}
	s.board.SetBoot(boot)
	if s.p.jobs {
		s.addJob("Set one-time boot", state.Boots)
		done := message("Base.1.13.Success", "The request completed successfully.")
		return reply(http.StatusOK, doc{"@Message.ExtendedInfo": []doc{done}})
	}
	return empty()
}

// changed applies the fields of a PATCH to the override.
func (s *Service) changed(b Boot, fields map[string]json.RawMessage) (Boot, answer) {
	if s.p.fullBoot {
		b = Boot{Enabled: "Once", Target: "None", Mode: "Legacy"} // what is left out falls back to this
	}
	for name, raw := range fields {
		var value string
		if err := json.Unmarshal(raw, &value); err != nil {
			return b, refuse(http.StatusBadRequest, "PropertyValueTypeError", "The value is not text.", string(raw), name)
		}
		allowed := s.p.targets
		switch name {
		case "BootSourceOverrideTarget":
			b.Target = value
		case "BootSourceOverrideEnabled":
			b.Enabled, allowed = value, overrides
		case "BootSourceOverrideMode":
			b.Mode, allowed = value, s.p.modes
		case "HttpBootUri":
			if !strings.HasPrefix(value, "http") {
				return b, refuse(http.StatusBadRequest, "PropertyValueFormatError", "The value is not an HTTP URI.", value, name)
			}
			b.HTTPURI, allowed = value, nil
		default:
			return b, refuse(http.StatusBadRequest, "PropertyUnknown", "The property is not known.", name)
		}
		if allowed != nil && !slices.Contains(allowed, value) {
			return b, refuse(http.StatusBadRequest, "PropertyValueNotInList", "The value is not in the list.", value, name)
		}
	}
	if b.Target == "UefiTarget" && b.Enabled == "Continuous" {
		return b, refuse(http.StatusBadRequest, "PropertyValueConflict", "UefiTarget can't be continuous.", "BootSourceOverrideEnabled")
	}
	if b.Enabled == "Disabled" {
		b.Target, b.HTTPURI = "None", ""
	}
	return b, answer{}
}
