package redfish

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/domain/node"
)

// resets makes a service with these reset types, on which a test decides what each does.
func resets(t *testing.T, allowed []any, do func(sys document, kind string, nth int) (status int)) *service {
	t.Helper()
	s := newService(t)
	sys := s.docs[systemPath]
	sys["PowerState"] = "On"
	sys.object("Actions", "#ComputerSystem.Reset")["ResetType@Redfish.AllowableValues"] = allowed
	n := 0
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		if "POST "+r.URL.Path != postReset {
			return false
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		n++
		if status := do(sys, body(r).text("ResetType"), n); status >= 400 {
			refuse(w, status, "Base.1.8.InternalError", "It failed.")
		} else {
			w.WriteHeader(status)
		}
		return true
	}
	return s
}

// later changes the power state at the nth read of the system from now on.
func later(s *service, reads int, power string) {
	before := s.before
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && r.URL.Path == systemPath {
			s.mu.Lock()
			if reads--; reads == 0 {
				s.docs[systemPath]["PowerState"] = power
			}
			s.mu.Unlock()
		}
		return before(w, r)
	}
}

func TestRestarts(t *testing.T) {
	for name, c := range map[string]struct {
		allowed []any
		action  node.PowerAction
		do      func(sys document, kind string, nth int) int
		backOn  int // at which read the machine is on again; 0: never by itself
		want    []string
		reason  bmc.Reason
	}{
		"a cycle by the controller": {
			[]any{"PowerCycle"}, node.ActionCycle,
			func(sys document, _ string, _ int) int { sys["PowerState"] = "Off"; return 204 }, 4, []string{"PowerCycle"}, "",
		},
		"a cycle that is not seen": {
			[]any{"PowerCycle"}, node.ActionCycle,
			func(document, string, int) int { return 204 }, 0, []string{"PowerCycle"}, bmc.PowerNotReached,
		},
		"a restart that stays off": {
			[]any{"ForceRestart", "On"}, node.ActionReset,
			func(sys document, kind string, _ int) int {
				sys["PowerState"] = map[string]string{"On": "On", "ForceRestart": "Off"}[kind]
				return 204
			}, 0, []string{"ForceRestart", "On"}, "",
		},
		"a restart that fails is not repeated": {
			[]any{"ForceRestart"}, node.ActionReset,
			func(document, string, int) int { return 500 }, 0, []string{"ForceRestart"}, bmc.Refused,
		},
		"a restart that fails and happens": {
			[]any{"ForceRestart"}, node.ActionReset,
			func(sys document, _ string, _ int) int { sys["PowerState"] = "Off"; return 500 }, 4, []string{"ForceRestart"}, "",
		},
		"a restart that a gateway gave up and that happens": {
			[]any{"ForceRestart"}, node.ActionReset,
			func(sys document, _ string, _ int) int { sys["PowerState"] = "Off"; return 504 }, 4, []string{"ForceRestart"}, "",
		},
		"off that fails for ever": {
			[]any{"ForceOff"}, node.ActionOff,
			func(document, string, int) int { return 500 }, 0, []string{"ForceOff"}, bmc.Refused,
		},
		"off that is dropped once": {
			[]any{"ForceOff"}, node.ActionOff,
			func(sys document, _ string, nth int) int {
				if nth > 1 {
					sys["PowerState"] = "Off"
				}
				return 204
			}, 0, []string{"ForceOff"}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := resets(t, c.allowed, c.do)
			if c.backOn > 0 {
				later(s, c.backOn, "On")
			}
			m := openWith(t, s.driver(t, Options{}), s.target())
			got, err := m.SetPower(t.Context(), c.action, bmc.PowerOptions{})
			if diff := cmp.Diff(c.want, got.Sent); diff != "" {
				t.Errorf("sent: %s", diff)
			}
			if c.reason != "" {
				wantReason(t, err, c.reason)
				return
			}
			must(t, err)
			if !got.Changed {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestButton holds that a button is pressed once: the second press undoes the first.
func TestButton(t *testing.T) {
	pressed := 0
	s := resets(t, []any{"PushPowerButton", "ForceOff"}, func(document, string, int) int { pressed++; return 204 })
	s.docs[systemPath]["PowerState"] = "Off"
	m := openWith(t, s.driver(t, Options{Poll: time.Millisecond}), s.target())
	_, err := m.SetPower(t.Context(), node.ActionOn, bmc.PowerOptions{})
	wantReason(t, err, bmc.PowerNotReached)
	if pressed != 1 {
		t.Errorf("pressed %d times", pressed)
	}
}

// A task may be told to take an hour, and be over at once: it is looked at within the time that there is.
func TestATaskThatIsOverLongBeforeItsTime(t *testing.T) {
	s := newService(t)
	s.docs[systemPath]["PowerState"] = "On"
	const monitor = "/redfish/v1/TaskService/Tasks/1"
	s.docs[monitor] = document{"TaskState": "Completed", "TaskStatus": "OK"}
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		if "POST "+r.URL.Path != postReset {
			return false
		}
		s.mu.Lock()
		s.docs[systemPath]["PowerState"] = "Off"
		s.mu.Unlock()
		w.Header().Set("Location", monitor)
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusAccepted)
		return true
	}
	m := openWith(t, s.driver(t, Options{Poll: 20 * time.Millisecond}), s.target())
	got, err := m.SetPower(t.Context(), node.ActionOff, bmc.PowerOptions{})
	must(t, err)
	if got.Power != node.PowerOff || !got.Changed {
		t.Errorf("%+v", got)
	}
}

func TestPowerStates(t *testing.T) {
	s := newService(t)
	m := s.open(t)
	for told, want := range map[any]node.Power{
		"On": node.PowerOn, "Off": node.PowerOff, "PoweringOn": node.PowerOn, "PoweringOff": node.PowerOn, "Paused": node.PowerOn,
	} {
		s.docs[systemPath]["PowerState"] = told
		if got, err := m.Power(t.Context()); err != nil || got.Power != want {
			t.Errorf("%v: %s %v", told, got.Power, err)
		}
	}
	s.docs[systemPath]["PowerState"] = nil
	_, err := m.Power(t.Context())
	wantReason(t, err, bmc.BadAnswer)
}

// How long a machine runs is told by two times of one controller, whatever they are; where they can't both be right, by nothing.
func TestSinceWhenAMachineRuns(t *testing.T) {
	for _, c := range []struct {
		reset any
		date  string
		want  float64
	}{
		{"2026-11-30T10:00:00Z", "Mon, 30 Nov 2026 10:02:05 GMT", 125},
		{"2026-11-30T11:00:00+01:00", "Mon, 30 Nov 2026 10:02:05 GMT", 125},
		{"1970-01-01T00:00:40Z", "Thu, 01 Jan 1970 00:01:00 GMT", 20},
		{"2026-11-30T12:00:00Z", "Mon, 30 Nov 2026 10:02:05 GMT", 0},
		{"2026-11-30T10:00:00", "Mon, 30 Nov 2026 10:02:05 GMT", 0},
		{"2026-11-30T10:00:00Z", "today", 0},
		{"2026-11-30T10:00:00Z", "", 0},
		{nil, "Mon, 30 Nov 2026 10:02:05 GMT", 0},
		{7, "Mon, 30 Nov 2026 10:02:05 GMT", 0},
	} {
		s := newService(t)
		m := s.open(t)
		s.docs[systemPath]["LastResetTime"] = c.reset
		s.before = func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header()["Date"] = nil // none at all
			if c.date != "" {
				w.Header().Set("Date", c.date)
			}
			return false
		}
		got, err := m.Power(t.Context())
		if err != nil || got.StartedAgo != c.want {
			t.Errorf("%v, %q: %+v, %v", c.reset, c.date, got, err)
		}
	}
}

// TestBootTargets holds which name a device has, by what is offered and whose the controller is.
func TestBootTargets(t *testing.T) {
	for name, c := range map[string]struct {
		vendor  string
		offered []any
		device  bmc.BootDevice
		want    string
	}{
		"disc":                 {"Plain", []any{"Pxe", "Cd", "UsbCd"}, bmc.BootCD, "Cd"},
		"disc on USB":          {"Supermicro", []any{"Pxe", "Cd", "UsbCd"}, bmc.BootCD, "UsbCd"},
		"disc by another name": {"Plain", []any{"Pxe", "CD/DVD"}, bmc.BootCD, "CD/DVD"},
		"untold":               {"Plain", nil, bmc.BootNetwork, "Pxe"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			s.docs["/redfish/v1"]["Vendor"] = c.vendor
			boot := s.docs[systemPath].object("Boot")
			boot[bootTarget+allowable] = c.offered
			got, err := s.open(t).SetBootDevice(t.Context(), bmc.BootOverride{Device: c.device})
			must(t, err)
			if got.Target != c.want || got.Device != c.device {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestStaleURI is an HTTP boot without a URI, where the controller still has one: it is told.
func TestStaleURI(t *testing.T) {
	s := newService(t)
	m := s.open(t)
	must(t, ignore(m.SetBootDevice(t.Context(), bmc.BootOverride{Device: bmc.BootUEFIHTTP, HTTPURI: "https://boot.example/old"})))
	got, err := m.SetBootDevice(t.Context(), bmc.BootOverride{Device: bmc.BootUEFIHTTP})
	must(t, err)
	if got.HTTPURI != "https://boot.example/old" || got.Note == "" {
		t.Errorf("%+v", got)
	}
}

// TestOccupied is a drive that does not tell what it holds, and refuses more.
func TestOccupied(t *testing.T) {
	s := newService(t)
	held := true
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		switch r.Method + " " + r.URL.Path {
		case "POST " + drivePath + "/Actions/VirtualMedia.EjectMedia":
			held = false
		case "POST " + drivePath + "/Actions/VirtualMedia.InsertMedia":
			if held {
				refuse(w, http.StatusBadRequest, "X.1.0.VRM0012", "Virtual media is already inserted.")
				return true
			}
		}
		return false
	}
	must(t, ignore(s.open(t).InsertMedia(t.Context(), "https://images.example/a.iso")))
}

// TestInsertParameters holds what is sent after each way of saying that something is missing.
func TestInsertParameters(t *testing.T) {
	for name, c := range map[string]struct {
		needs []string
		text  func(missing string) string
	}{
		"named":      {[]string{"TransferProtocolType"}, func(p string) string { return "'" + p + "' property is missing in the request body." }},
		"several":    {[]string{"UserName", "Password", "TransferMethod"}, func(p string) string { return "The action requires the parameter " + p + "." }},
		"unnamed":    {[]string{"TransferMethod", "UserName", "Password"}, func(string) string { return "A parameter is missing." }},
		"in general": {[]string{"UserName", "Password"}, func(string) string { return "Give credentials." }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			tries := 0
			s.before = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != drivePath+"/Actions/VirtualMedia.InsertMedia" {
					return false
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				tries++
				b := body(r)
				for _, p := range c.needs {
					if !b.has(p) {
						refuse(w, http.StatusBadRequest, "Base.1.4.0.GeneralError", c.text(p))
						return true
					}
				}
				s.docs[drivePath]["Image"], s.docs[drivePath]["Inserted"], s.docs[drivePath]["ConnectedVia"] = b["Image"], true, "URI"
				w.WriteHeader(http.StatusNoContent)
				return true
			}
			m := s.open(t)
			must(t, ignore(m.InsertMedia(t.Context(), "https://images.example/a.iso")))
			if tries > 5 {
				t.Errorf("%d tries", tries)
			}
			first := tries
			s.docs[drivePath]["Inserted"], s.docs[drivePath]["Image"] = false, nil
			must(t, ignore(m.InsertMedia(t.Context(), "https://images.example/a.iso")))
			if tries != first+1 {
				t.Errorf("what it wants is not remembered: %d tries more", tries-first)
			}
		})
	}
}

// TestSecondDrive is a controller of which only the second drive shows what it was given.
func TestSecondDrive(t *testing.T) {
	s := newService(t)
	const second = "/redfish/v1/Managers/1/VirtualMedia/2"
	s.docs[second] = documents()[drivePath]
	for action := range s.docs[second].object("Actions") {
		s.docs[second].object("Actions", action)["target"] = second + "/Actions/" + action[1:]
	}
	s.docs["/redfish/v1/Managers/1/VirtualMedia"] = group(drivePath, second)
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost && r.URL.Path == drivePath+"/Actions/VirtualMedia.InsertMedia" {
			w.WriteHeader(http.StatusNoContent)
			return true
		}
		return false
	}
	m := openWith(t, s.driver(t, Options{}), s.target())
	for range 2 {
		s.requests()
		got, err := m.InsertMedia(t.Context(), "https://images.example/a.iso")
		must(t, err)
		if got.Slot != "2" || !got.Inserted {
			t.Errorf("%+v", got)
		}
	}
	if asked := s.requests(); slices.Contains(asked, "GET "+drivePath) {
		t.Errorf("the drive that works is not remembered: %v", asked)
	}
}
