package redfish

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/adapters/bmc/bmctest"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSuite(t *testing.T) {
	bmctest.Run(t, func(t *testing.T) bmctest.Subject {
		s := newService(t)
		return bmctest.Subject{Driver: s.driver(t, Options{}), Target: s.target(), Image: "https://images.example/a.iso"}
	})
}

const (
	getSystem = "GET " + systemPath
	postReset = "POST " + systemPath + "/Actions/ComputerSystem.Reset"
)

// TestRequests holds what operations cost on a healthy controller: thousands of machines share its network.
func TestRequests(t *testing.T) {
	s := newService(t)
	d := s.driver(t, Options{})
	openWith(t, d, s.target())
	check := func(what string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, s.requests()); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	check("a first open", "GET /redfish/v1/", "POST /redfish/v1/SessionService/Sessions", "GET /redfish/v1/Systems")
	m := openWith(t, d, s.target())
	check("a second open")
	must(t, ignore(m.SetPower(t.Context(), node.ActionOn, bmc.PowerOptions{})))
	check("on", getSystem, postReset, getSystem)
	must(t, ignore(m.SetPower(t.Context(), node.ActionOn, bmc.PowerOptions{})))
	check("on again", getSystem)
	must(t, ignore(m.SetPower(t.Context(), node.ActionCycle, bmc.PowerOptions{})))
	check("cycle", getSystem, postReset, getSystem, postReset, getSystem)
	must(t, ignore(m.SetBootDevice(t.Context(), bmc.BootOverride{Device: bmc.BootNetwork})))
	check("boot", getSystem, "PATCH "+systemPath, getSystem)

	must(t, ignore(m.InsertMedia(t.Context(), "https://images.example/a.iso")))
	s.requests()
	must(t, m.EjectMedia(t.Context()))
	check("eject from a drive that is known", "GET "+drivePath, "POST "+drivePath+"/Actions/VirtualMedia.EjectMedia", "GET "+drivePath)

	to := s.target()
	to.Quirks = m.Learned()
	m = openWith(t, s.driver(t, Options{}), to)
	check("an open with what was learned", "GET /redfish/v1/", "POST /redfish/v1/SessionService/Sessions")
	if diff := cmp.Diff(string(to.Quirks), string(m.Learned())); diff != "" {
		t.Errorf("what was learned changed: %s", diff)
	}
}

func ignore[T any](_ T, err error) error { return err }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v %v", err, detailsOf(err))
	}
}

func detailsOf(err error) map[string]any {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Details
	}
	return nil
}

func wantReason(t *testing.T, err error, want bmc.Reason) {
	t.Helper()
	if fault.CodeOf(err) != fault.DriverError || reasonOf(err) != want {
		t.Fatalf("%v %v; want %s", err, detailsOf(err), want)
	}
}

func TestTrust(t *testing.T) {
	s := newService(t)
	sum := sha256.Sum256(s.Certificate().Raw)
	fingerprint := hex.EncodeToString(sum[:])
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	other := strings.Repeat("00", sha256.Size)
	for name, c := range map[string]struct {
		policy node.TLSPolicy
		reason bmc.Reason
		code   fault.Code
	}{
		"first use":       {policy: node.TLSPolicy{Mode: node.TLSPinOnFirstUse}},
		"by default":      {},
		"pinned":          {policy: node.TLSPolicy{Mode: node.TLSPinned, Fingerprint: fingerprint}},
		"pinned in upper": {policy: node.TLSPolicy{Mode: node.TLSPinned, Fingerprint: strings.ToUpper(fingerprint)}},
		"recorded":        {policy: node.TLSPolicy{Mode: node.TLSPinOnFirstUse, Fingerprint: fingerprint}},
		"another pin":     {policy: node.TLSPolicy{Mode: node.TLSPinned, Fingerprint: other}, reason: bmc.CertificateChanged},
		"changed":         {policy: node.TLSPolicy{Mode: node.TLSPinOnFirstUse, Fingerprint: other}, reason: bmc.CertificateChanged},
		"its own CA":      {policy: node.TLSPolicy{Mode: node.TLSCustomCA, CA: ca}},
		"system":          {policy: node.TLSPolicy{Mode: node.TLSSystemCA}, reason: bmc.CertificateUntrusted},
		"insecure":        {policy: node.TLSPolicy{Mode: node.TLSInsecure, Fingerprint: other}},
		"no CA":           {policy: node.TLSPolicy{Mode: node.TLSCustomCA, CA: "x"}, code: fault.InvalidInput},
		"no pin":          {policy: node.TLSPolicy{Mode: node.TLSPinned}, code: fault.InvalidInput},
		"no mode":         {policy: node.TLSPolicy{Mode: "blind"}, code: fault.InvalidInput},
	} {
		t.Run(name, func(t *testing.T) {
			to := s.target()
			to.TLS = c.policy
			m, err := s.driver(t, Options{}).Open(t.Context(), to)
			switch {
			case c.reason != "":
				wantReason(t, err, c.reason)
				return
			case c.code != "":
				if fault.CodeOf(err) != c.code {
					t.Fatalf("%v; want %s", err, c.code)
				}
				return
			}
			must(t, err)
			if m.Fingerprint() != fingerprint {
				t.Errorf("fingerprint %s; want %s", m.Fingerprint(), fingerprint)
			}
			must(t, m.Close(t.Context()))
		})
	}
}

// TestNoCredentialBeforeTrust checks that a controller with another certificate is told nothing.
func TestNoCredentialBeforeTrust(t *testing.T) {
	s := newService(t)
	to := s.target()
	to.TLS = node.TLSPolicy{Mode: node.TLSPinned, Fingerprint: strings.Repeat("ab", sha256.Size)}
	_, err := s.driver(t, Options{}).Open(t.Context(), to)
	wantReason(t, err, bmc.CertificateChanged)
	if asked := s.requests(); len(asked) > 0 {
		t.Errorf("asked %v", asked)
	}
	if d := detailsOf(err); d["wanted"] == "" || d["found"] == "" || d["wanted"] == d["found"] {
		t.Errorf("details %v", d)
	}
}

func TestPlainHTTPHasNoFingerprint(t *testing.T) {
	s := newService(t)
	plain := httptest.NewServer(s)
	t.Cleanup(plain.Close)
	to := s.target()
	to.Address = plain.URL
	m := openWith(t, s.driver(t, Options{}), to)
	if m.Fingerprint() != "" {
		t.Errorf("fingerprint %s", m.Fingerprint())
	}
}

// TestBehindAProxy is a controller whose address has a path, and whose links do not know of it.
func TestBehindAProxy(t *testing.T) {
	s := newService(t)
	proxy := httptest.NewTLSServer(http.StripPrefix("/bmc-7", s))
	defer proxy.Close()
	to := s.target()
	to.Address = proxy.URL + "/bmc-7"
	d := New(Options{Poll: 20 * time.Millisecond})
	m := openWith(t, d, to)
	must(t, ignore(m.SetPower(t.Context(), node.ActionOn, bmc.PowerOptions{})))
	must(t, d.Close(t.Context()))
}

// TestConcurrency holds the bound on requests at once, over all machines and callers of a controller.
func TestConcurrency(t *testing.T) {
	s := newService(t)
	var put sync.Mutex // held by the one request that changes something
	s.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPatch {
			if !put.TryLock() {
				t.Error("two changes at once")
				return false
			}
			defer put.Unlock()
		}
		select { // a controller takes its time, so that requests meet
		case <-time.After(2 * time.Millisecond):
		case <-r.Context().Done():
		}
		return false
	}
	d := s.driver(t, Options{Concurrency: 3})
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			m, err := d.Open(t.Context(), s.target())
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = m.Close(t.Context()) }()
			if i%2 == 0 {
				_, err = m.(*machine).SetBootDevice(t.Context(), bmc.BootOverride{Device: bmc.BootNetwork})
			} else {
				_, err = m.(*machine).Inspect(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if s.most > 3 || s.logins != 1 {
		t.Errorf("%d requests at once, %d logins", s.most, s.logins)
	}
}

func TestIdleSessionsEnd(t *testing.T) {
	s := newService(t)
	ended := make(chan struct{})
	s.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete {
			close(ended)
		}
		return false
	}
	d := s.driver(t, Options{SessionIdle: 30 * time.Millisecond})
	m, err := d.Open(t.Context(), s.target())
	must(t, err)
	must(t, m.Close(t.Context()))
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the session is still there")
	}
}

// TestAbandonedLogin is a caller that goes away while it logs in: the session is kept for the next, or ended.
func TestAbandonedLogin(t *testing.T) {
	s := newService(t)
	arrived, goOn := make(chan struct{}), make(chan struct{})
	s.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			close(arrived)
			<-goOn
		}
		return false
	}
	d := s.driver(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	if _, err := d.Open(ctx, s.target()); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	close(goOn)
	must(t, ignore(openWith(t, d, s.target()).Power(t.Context())))
	if s.logins != 1 {
		t.Errorf("%d logins", s.logins)
	}
}

func TestRotatedCredentials(t *testing.T) {
	s := newService(t)
	d := s.driver(t, Options{})
	must(t, ignore(openWith(t, d, s.target()).Power(t.Context())))
	to := s.target()
	to.CredentialVersion = "2"
	busy := openWith(t, d, to)
	must(t, ignore(busy.Power(t.Context())))
	if s.logins != 2 {
		t.Errorf("%d logins; a new credential version must log in anew", s.logins)
	}
	must(t, d.Close(t.Context())) // while both are in use
	if len(s.sessions) > 0 {
		t.Errorf("%d sessions are left", len(s.sessions))
	}
}

func TestClosedDriver(t *testing.T) {
	s := newService(t)
	d := New(Options{})
	m := openWith(t, d, s.target())
	must(t, d.Close(t.Context()))
	if _, err := d.Open(t.Context(), s.target()); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("%v", err)
	}
	if _, err := m.Power(t.Context()); err == nil {
		t.Error("a machine of a closed driver answers")
	}
}

// TestSecrets plants the password in every error that a controller gives, and looks for it.
func TestSecrets(t *testing.T) {
	s := newService(t)
	var logged bytes.Buffer
	d := s.driver(t, Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	m := openWith(t, d, s.target())
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete {
			return false
		}
		refuse(w, http.StatusBadRequest, "X.1.0."+secret, "The password "+secret+" of session "+r.Header.Get("X-Auth-Token")+" is nice.")
		return true
	}
	for name, call := range map[string]func() error{
		"identify": func() error { return ignore(m.Identify(t.Context())) },
		"power":    func() error { return ignore(m.SetPower(t.Context(), node.ActionOn, bmc.PowerOptions{})) },
		"boot":     func() error { return ignore(m.SetBootDevice(t.Context(), bmc.BootOverride{Device: bmc.BootCD})) },
		"insert":   func() error { return ignore(m.InsertMedia(t.Context(), "https://a:"+secret+"@images.example/a.iso")) },
		"inspect":  func() error { return ignore(m.Inspect(t.Context())) },
	} {
		err := call()
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		said := err.Error()
		for _, v := range detailsOf(err) {
			if s, ok := v.(string); ok {
				said += s
			}
		}
		if strings.Contains(said, secret) || strings.Contains(said, "token-") {
			t.Errorf("%s tells a secret: %s", name, said)
		}
	}
	if strings.Contains(logged.String(), secret) {
		t.Error("the log tells a secret")
	}
}

func TestSystemsOfSeveral(t *testing.T) {
	s := newService(t)
	const other = "/redfish/v1/Systems/2"
	twin := documents()[systemPath]
	twin["Id"], twin["SerialNumber"], twin["UUID"] = "2", "SN-2", "7D3C4E56-0000-4A6B-8C00-0000000000A2"
	s.docs[other] = twin
	s.docs["/redfish/v1/Systems"] = group(systemPath, other)
	d := s.driver(t, Options{})
	_, err := d.Open(t.Context(), s.target())
	wantReason(t, err, bmc.AmbiguousSystem)
	if got := detailsOf(err)["systems"]; !slices.Equal(got.([]string), []string{"1", "2"}) {
		t.Errorf("systems %v", got)
	}
	for _, name := range []string{"2", "sn-2", "7d3c4e56-0000-4a6b-8c00-0000000000a2"} {
		to := s.target()
		to.System = name
		id, err := openWith(t, d, to).Identify(t.Context())
		must(t, err)
		if id.SystemID != "2" {
			t.Errorf("%s is %s", name, id.SystemID)
		}
	}
}

func TestInventory(t *testing.T) {
	s := newService(t)
	got, err := s.open(t).Inspect(t.Context())
	must(t, err)
	want := bmc.Inventory{
		Hardware: node.Hardware{
			Manufacturer: "Plain", Product: "P100", Serial: "SN-1", UUID: "7d3c4e56-0000-4a6b-8c00-0000000000a1",
			Cores: 64, MemoryBytes: 256 << 30, Firmware: &node.Firmware{Version: "1.0", BootMode: node.BootUEFI},
			Disks: []node.Disk{{Model: "D200", Serial: "D-1", Bytes: 480103981056}},
			NICs:  []node.NIC{{MAC: "b8:3f:d2:00:00:01", Name: "1"}},
		},
		Sources: map[string]string{"processors": "complete", "memory": "complete", "drives": "complete", "nics": "complete"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSensors(t *testing.T) {
	got, err := newService(t).open(t).Sensors(t.Context())
	must(t, err)
	want := []bmc.Reading{
		{Name: "Fan1", Kind: "fan", Value: 8000, Unit: "RPM"},
		{Name: "System", Kind: "power", Value: 512, Unit: "W"},
		{Name: "CPU1", Kind: "temperature", Value: 41, Unit: "Cel", Health: "OK"},
		{Name: "P12V", Kind: "voltage", Value: 12.1, Unit: "V"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNewSensors(t *testing.T) {
	s := newService(t)
	const all = "/redfish/v1/Chassis/1/Sensors"
	s.docs["/redfish/v1/Chassis/1"] = document{"Sensors": ref(all)}
	s.docs[all] = group(all+"/1", all+"/2", all+"/3")
	s.docs[all+"/1"] = document{"Name": "Inlet", "ReadingType": "Temperature", "Reading": 22.5}
	s.docs[all+"/2"] = document{"Name": "Fan 1", "ReadingType": "Percent", "Reading": 40}
	s.docs[all+"/3"] = document{"Name": "Air", "ReadingType": "Humidity", "Reading": 30}
	got, err := s.open(t).Sensors(t.Context())
	must(t, err)
	want := []bmc.Reading{{Name: "Fan 1", Kind: "fan", Value: 40, Unit: "%"}, {Name: "Inlet", Kind: "temperature", Value: 22.5, Unit: "Cel"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestAccelerators finds the GPUs of a baseboard that is a system of its own.
func TestAccelerators(t *testing.T) {
	s := newService(t)
	const board = "/redfish/v1/Systems/HGX_Baseboard_0"
	s.docs["/redfish/v1/Systems"] = group(board, systemPath)
	s.docs[board] = document{"Id": "HGX_Baseboard_0", "Processors": ref(board + "/Processors")}
	s.docs[board+"/Processors"] = group(board+"/Processors/GPU_1", board+"/Processors/GPU_2", board+"/Processors/CPU_1")
	s.docs[board+"/Processors/GPU_1"] = document{"ProcessorType": "GPU", "Manufacturer": "NVIDIA", "Model": "G1"}
	s.docs[board+"/Processors/GPU_2"] = document{"ProcessorType": "GPU", "Manufacturer": "NVIDIA", "Model": "G1"}
	s.docs[board+"/Processors/CPU_1"] = document{"ProcessorType": "CPU", "TotalCores": 72}
	got, err := s.open(t).Inspect(t.Context())
	must(t, err)
	gpu := node.Device{Class: "gpu", Vendor: "NVIDIA", Product: "G1"}
	if diff := cmp.Diff([]node.Device{gpu, gpu}, got.Hardware.Devices); diff != "" || got.Hardware.Cores != 64 {
		t.Errorf("%d cores, devices %s", got.Hardware.Cores, diff)
	}
}

// TestSessionsThatDie is a controller that forgets its sessions under a caller with many requests at once.
func TestSessionsThatDie(t *testing.T) {
	s := newService(t)
	m := s.open(t)
	for range 5 {
		must(t, ignore(m.Identify(t.Context())))
		m.c.mu.Lock()
		m.c.renewed = time.Time{} // long ago
		m.c.mu.Unlock()
		s.mu.Lock()
		clear(s.sessions)
		s.mu.Unlock()
		got, err := m.Inspect(t.Context())
		must(t, err)
		if got.Sources["nics"] != complete || got.Sources["drives"] != complete {
			t.Errorf("%+v", got.Sources)
		}
	}
	if s.logins != 6 {
		t.Errorf("%d logins", s.logins)
	}
}

// TestForbiddenParts is a service that answers 401 for parts that an account may not see: that is no reason to log in
// over and over.
func TestForbiddenParts(t *testing.T) {
	s := newService(t)
	var links []string
	for _, n := range []string{"2", "3", "4", "5", "6", "7"} {
		links = append(links, systemPath+"/EthernetInterfaces/"+n)
	}
	s.docs[systemPath+"/EthernetInterfaces"] = group(append(links, systemPath+"/EthernetInterfaces/1")...)
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		if slices.Contains(links, r.URL.Path) {
			refuse(w, http.StatusUnauthorized, "Base.1.8.InsufficientPrivilege", "The account may not do this.")
			return true
		}
		return false
	}
	got, err := s.open(t).Inspect(t.Context())
	must(t, err)
	if len(got.Hardware.NICs) != 1 || got.Sources["nics"] != partial {
		t.Errorf("%+v", got)
	}
	if s.logins > 2 {
		t.Errorf("%d logins", s.logins)
	}
}

// TestTokenStaysHome is a service that redirects elsewhere: the token must not follow.
func TestTokenStaysHome(t *testing.T) {
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("asked elsewhere, with token %q", r.Header.Get("X-Auth-Token"))
	}))
	defer elsewhere.Close()
	s := newService(t)
	m := s.open(t)
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && r.URL.Path == systemPath {
			http.Redirect(w, r, elsewhere.URL+systemPath, http.StatusPermanentRedirect)
			return true
		}
		return false
	}
	if _, err := m.Power(t.Context()); err == nil {
		t.Error("no error")
	}
}

// TestNobodyThere is a controller that never answers: nothing is kept of it.
func TestNobodyThere(t *testing.T) {
	s := newService(t)
	to := s.target()
	s.before = func(w http.ResponseWriter, _ *http.Request) bool {
		refuse(w, http.StatusInternalServerError, "Base.1.8.InternalError", "It failed.")
		return true
	}
	d := s.driver(t, Options{SessionIdle: time.Millisecond})
	if _, err := d.Open(t.Context(), to); err == nil {
		t.Fatal("no error")
	}
	kept := func() int {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.conns) + len(d.live)
	}
	end, tick := time.After(time.Minute), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for kept() > 0 {
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("the connection is kept for ever")
		}
	}
}
