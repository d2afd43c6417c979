package redfish

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/domain/node"
)

const (
	systemPath = "/redfish/v1/Systems/1"
	drivePath  = "/redfish/v1/Managers/1/VirtualMedia/1"
	secret     = "s3cret-canary"
)

// service is a small healthy Redfish service. Its handler can be preceded by a test's own.
type service struct {
	*httptest.Server
	mu       sync.Mutex
	docs     map[string]document
	sessions map[string]bool
	logins   int
	asked    []string
	before   func(w http.ResponseWriter, r *http.Request) bool // true: answered
	flying   int
	most     int // requests at once
}

func ref(path string) map[string]any { return map[string]any{"@odata.id": path} }

func group(paths ...string) document {
	members := []any{}
	for _, p := range paths {
		members = append(members, ref(p))
	}
	return document{"Members": members, "Members@odata.count": len(members)}
}

func documents() map[string]document {
	return map[string]document{
		"/redfish/v1": {
			"Vendor": "Plain", "Systems": ref("/redfish/v1/Systems"), "Managers": ref("/redfish/v1/Managers"),
			"Links": map[string]any{"Sessions": ref("/redfish/v1/SessionService/Sessions")},
		},
		"/redfish/v1/Systems": group(systemPath),
		systemPath: {
			"Id": "1", "UUID": "7D3C4E56-0000-4A6B-8C00-0000000000A1", "SerialNumber": "SN-1", "Manufacturer": "Plain", "Model": "P100",
			"PowerState": "Off", "@odata.etag": `"1"`, "BiosVersion": "1.0", "Status": map[string]any{"Health": "OK"},
			"ProcessorSummary": map[string]any{"CoreCount": 64}, "MemorySummary": map[string]any{"TotalSystemMemoryGiB": 256},
			"Boot": map[string]any{
				"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None", "BootSourceOverrideMode": "UEFI", "HttpBootUri": nil,
				"BootSourceOverrideTarget@Redfish.AllowableValues": []any{"None", "Pxe", "Hdd", "Cd", "BiosSetup", "UefiHttp"},
			},
			"Actions": map[string]any{"#ComputerSystem.Reset": map[string]any{
				"target":                            systemPath + "/Actions/ComputerSystem.Reset",
				"ResetType@Redfish.AllowableValues": []any{"On", "ForceOff", "ForceRestart", "GracefulShutdown"},
			}},
			"EthernetInterfaces": ref(systemPath + "/EthernetInterfaces"), "Storage": ref(systemPath + "/Storage"),
			"Links": map[string]any{"ManagedBy": []any{ref("/redfish/v1/Managers/1")}, "Chassis": []any{ref("/redfish/v1/Chassis/1")}},
		},
		systemPath + "/EthernetInterfaces":   group(systemPath + "/EthernetInterfaces/1"),
		systemPath + "/EthernetInterfaces/1": {"Id": "1", "MACAddress": "B8-3F-D2-00-00-01"},
		systemPath + "/Storage":              group(systemPath + "/Storage/1"),
		systemPath + "/Storage/1":            {"Drives": []any{ref(systemPath + "/Storage/1/Drives/1")}},
		systemPath + "/Storage/1/Drives/1":   {"Model": "D200", "SerialNumber": "D-1", "CapacityBytes": 480103981056},
		"/redfish/v1/Chassis/1":              {"Id": "1", "Thermal": ref("/redfish/v1/Chassis/1/Thermal"), "Power": ref("/redfish/v1/Chassis/1/Power")},
		"/redfish/v1/Chassis/1/Thermal": {
			"Temperatures": []any{
				map[string]any{"Name": "CPU1", "ReadingCelsius": 41, "Status": map[string]any{"Health": "OK"}},
				map[string]any{"Name": "empty", "ReadingCelsius": nil},
			},
			"Fans": []any{map[string]any{"FanName": "Fan1", "Reading": "8000", "ReadingUnits": "RPM"}},
		},
		"/redfish/v1/Chassis/1/Power": {
			"Voltages":     []any{map[string]any{"Name": "P12V", "ReadingVolts": 12.1}},
			"PowerControl": map[string]any{"Name": "System", "PowerConsumedWatts": 512}, // one object where a list belongs
		},
		"/redfish/v1/Managers":                group("/redfish/v1/Managers/1"),
		"/redfish/v1/Managers/1":              {"Model": "M1", "FirmwareVersion": "2.0", "VirtualMedia": ref("/redfish/v1/Managers/1/VirtualMedia")},
		"/redfish/v1/Managers/1/VirtualMedia": group(drivePath),
		drivePath: {
			"Id": "1", "MediaTypes": []any{"CD", "DVD"}, "Image": nil, "Inserted": false, "ConnectedVia": "NotConnected",
			"Actions": map[string]any{
				"#VirtualMedia.InsertMedia": map[string]any{"target": drivePath + "/Actions/VirtualMedia.InsertMedia"},
				"#VirtualMedia.EjectMedia":  map[string]any{"target": drivePath + "/Actions/VirtualMedia.EjectMedia"},
			},
		},
	}
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{docs: documents(), sessions: map[string]bool{}}
	s.Server = httptest.NewTLSServer(s)
	t.Cleanup(func() {
		s.Server.Close()
		if len(s.sessions) > 0 {
			t.Errorf("%d sessions are left", len(s.sessions))
		}
	})
	return s
}

// driver runs one against the service and ends it with the test. The test's context is over by then, which is no excuse for
// a session that is left.
func (s *service) driver(t *testing.T, o Options) *Driver {
	t.Helper()
	if o.Poll == 0 {
		o.Poll = 20 * time.Millisecond
	}
	d := New(o)
	t.Cleanup(func() {
		if err := d.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (s *service) target() bmc.Target {
	return bmc.Target{Address: s.URL, Username: "admin", Password: secret, TLS: node.TLSPolicy{Mode: node.TLSPinOnFirstUse}}
}

// open is a machine of a fresh driver.
func (s *service) open(t *testing.T) *machine {
	t.Helper()
	return openWith(t, s.driver(t, Options{}), s.target())
}

func openWith(t *testing.T, d *Driver, to bmc.Target) *machine {
	t.Helper()
	m, err := d.Open(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close(t.Context()) })
	return m.(*machine)
}

// requests gives what was asked since the last call.
func (s *service) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.asked
	s.asked = nil
	return out
}

func (s *service) enter(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r.Method+" "+r.URL.Path)
	s.flying++
	s.most = max(s.most, s.flying)
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.enter(r)
	defer func() {
		s.mu.Lock()
		s.flying--
		s.mu.Unlock()
	}()
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before != nil && before(w, r) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	path := strings.TrimRight(r.URL.Path, "/")
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/Sessions"):
		s.logIn(w, r)
	case path != "/redfish/v1" && !s.known(r):
		refuse(w, http.StatusUnauthorized, "Base.1.8.NoValidSession", "There is no valid session.")
	case r.Method == http.MethodDelete:
		delete(s.sessions, r.Header.Get("X-Auth-Token"))
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet && s.docs[path] != nil:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s.docs[path])
	case r.Method == http.MethodPatch && s.docs[path] != nil:
		s.change(w, r, path)
	case r.Method == http.MethodPost:
		s.act(w, r, path)
	default:
		refuse(w, http.StatusNotFound, "Base.1.8.ResourceMissingAtURI", "There is nothing here.")
	}
}

func refuse(w http.ResponseWriter, status int, id, text string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{
		"code": "Base.1.8.GeneralError", extendedInfo: []any{map[string]any{"MessageId": id, "Message": text}},
	}})
}

func (s *service) known(r *http.Request) bool {
	user, password, basic := r.BasicAuth()
	return s.sessions[r.Header.Get("X-Auth-Token")] || (basic && user == "admin" && password == secret)
}

func body(r *http.Request) document {
	var d document
	_ = json.NewDecoder(r.Body).Decode(&d)
	return d
}

func (s *service) logIn(w http.ResponseWriter, r *http.Request) {
	if b := body(r); b.text("UserName") != "admin" || b.text("Password") != secret {
		refuse(w, http.StatusUnauthorized, "Base.1.8.NoValidSession", "The credentials are wrong.")
		return
	}
	s.logins++
	token := fmt.Sprintf("token-%d", s.logins)
	s.sessions[token] = true
	w.Header().Set("X-Auth-Token", token)
	w.Header().Set("Location", fmt.Sprintf("/redfish/v1/SessionService/Sessions/%d", s.logins))
	w.WriteHeader(http.StatusCreated)
}

func (s *service) change(w http.ResponseWriter, r *http.Request, path string) {
	for key, value := range body(r) {
		if part, ok := value.(map[string]any); ok {
			for k, v := range part {
				s.docs[path].object(key)[k] = v
			}
			continue
		}
		s.docs[path][key] = value
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *service) act(w http.ResponseWriter, r *http.Request, path string) {
	b := body(r)
	of, action, _ := strings.Cut(path, "/Actions/")
	doc := s.docs[of]
	switch action {
	case "ComputerSystem.Reset":
		doc["PowerState"] = map[string]string{"On": "On", "ForceRestart": "On", "ForceOff": "Off", "GracefulShutdown": "Off"}[b.text("ResetType")]
	case "VirtualMedia.InsertMedia":
		doc["Image"], doc["Inserted"], doc["ConnectedVia"] = b["Image"], true, "URI"
	case "VirtualMedia.EjectMedia":
		doc["Image"], doc["Inserted"], doc["ConnectedVia"] = nil, false, "NotConnected"
	default:
		refuse(w, http.StatusNotFound, "Base.1.8.ActionNotSupported", "There is no such action.")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
