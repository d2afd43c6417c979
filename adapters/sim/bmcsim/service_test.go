package bmcsim_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/better-compute/metal/adapters/sim/bmcsim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// board is a machine that does at once what it is told.
type board struct {
	mu     sync.Mutex
	state  bmcsim.State
	resets []bmcsim.ResetType
}

func (b *board) Facts() bmcsim.Facts {
	return bmcsim.Facts{
		Serial: "SN1", UUID: "11111111-2222-4333-8444-555555555555", Tag: "TAG1", Host: "bmc.example", Username: "root", Password: "calvin",
		Cores: 8, MemoryBytes: 32 << 30,
		NICs:  []bmcsim.NIC{{Name: "eth0", MAC: "00:16:3e:aa:bb:cc"}, {Name: "eth1", MAC: "00:16:3e:aa:bb:cd"}},
		Disks: []bmcsim.Disk{{Name: "/dev/sda", Model: "M", Serial: "D1", WWN: "0x5000", Bytes: 1 << 30, Transport: "sata"}},
	}
}

func (b *board) State() bmcsim.State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

func (b *board) Reset(t bmcsim.ResetType) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.resets = append(b.resets, t)
	b.state.On = t != bmcsim.ForceOff && t != bmcsim.GracefulShutdown
	if b.state.On {
		b.state.Boots++
	}
	return nil
}

func (b *board) SetBoot(boot bmcsim.Boot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state.Boot = boot
}

func (b *board) SetMedia(slot int, m bmcsim.Media) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state.Media[slot] = m
}

// client speaks to one service as a plain HTTP client does.
type client struct {
	t     *testing.T
	base  string
	http  *http.Client
	board *board
	rules *bmcsim.Rules
	now   *time.Time
}

func serve(t *testing.T, name bmcsim.Name) *client {
	t.Helper()
	b := &board{state: bmcsim.State{Boot: bmcsim.Boot{Enabled: "Disabled", Target: "None", Mode: "UEFI"}}}
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	rules := &bmcsim.Rules{}
	s, err := bmcsim.New(b, bmcsim.Options{Personality: name, Now: func() time.Time { return now }, Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(s)
	t.Cleanup(server.Close)
	return &client{t: t, base: server.URL, http: server.Client(), board: b, rules: rules, now: &now}
}

type reply struct {
	status int
	header http.Header
	body   map[string]any
}

func (c *client) do(method, path, body string, header ...string) reply {
	c.t.Helper()
	r, err := c.try(method, path, body, header...)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

func (c *client) try(method, path, body string, header ...string) (reply, error) {
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.base+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.SetBasicAuth("root", "calvin")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
		if header[i] == "X-Auth-Token" || header[i] == "Authorization" {
			req.Header.Del("Authorization")
			req.Header.Set(header[i], header[i+1])
		}
	}
	res, err := c.http.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return reply{}, err
	}
	out := reply{status: res.StatusCode, header: res.Header}
	if len(bytes.TrimSpace(b)) > 0 {
		if err := json.Unmarshal(b, &out.body); err != nil {
			return reply{}, err
		}
	}
	return out, nil
}

func (c *client) get(path string) map[string]any {
	c.t.Helper()
	r := c.do(http.MethodGet, path, "")
	if r.status != http.StatusOK {
		c.t.Fatalf("GET %s: %d %v", path, r.status, r.body)
	}
	return r.body
}

func at(d map[string]any, path ...string) any {
	var v any = d
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

func id(v any) string { s, _ := at(map[string]any{"x": v}, "x", "@odata.id").(string); return s }

// system finds the system that can be reset, as a client does.
func (c *client) system() map[string]any {
	c.t.Helper()
	for _, m := range c.get(id(c.get("/redfish/v1/")["Systems"]))["Members"].([]any) {
		r := c.do(http.MethodGet, id(m), "")
		if r.status == http.StatusOK && at(r.body, "Actions", "#ComputerSystem.Reset") != nil {
			return r.body
		}
	}
	c.t.Fatal("no system with a reset")
	return nil
}

func eachPersonality(t *testing.T, test func(t *testing.T, c *client, name bmcsim.Name)) {
	for _, name := range bmcsim.Names() {
		t.Run(string(name), func(t *testing.T) { test(t, serve(t, name), name) })
	}
}

// TestEveryLinkLeadsSomewhere walks the whole tree: no document points at nothing.
func TestEveryLinkLeadsSomewhere(t *testing.T) {
	eachPersonality(t, func(t *testing.T, c *client, name bmcsim.Name) {
		c.board.state.On = true
		seen := map[string]bool{}
		var visit func(path string)
		var follow func(v any, self string)
		follow = func(v any, self string) {
			switch v := v.(type) {
			case map[string]any:
				if to := id(v); to != "" && to != self {
					visit(to)
				}
				for _, x := range v {
					follow(x, self)
				}
			case []any:
				for _, x := range v {
					follow(x, self)
				}
			}
		}
		visit = func(path string) {
			if seen[path] || strings.HasSuffix(path, "/bios/") { // BIOS attributes are not simulated
				return
			}
			seen[path] = true
			d := c.get(path)
			if got, _ := d["@odata.id"].(string); got != path && (name != bmcsim.HPE || !strings.EqualFold(got, path)) {
				t.Errorf("%s calls itself %v", path, got)
			}
			follow(d, path)
		}
		visit("/redfish/v1")
		if len(seen) < 20 {
			t.Errorf("%d documents only", len(seen))
		}
	})
}

func TestPowerFollowsReset(t *testing.T) {
	eachPersonality(t, func(t *testing.T, c *client, name bmcsim.Name) {
		target := at(c.system(), "Actions", "#ComputerSystem.Reset", "target").(string)
		for _, step := range []struct{ reset, power string }{{"On", "On"}, {"ForceOff", "Off"}, {"On", "On"}, {"ForceRestart", "On"}} {
			r := c.do(http.MethodPost, target, `{"ResetType":"`+step.reset+`"}`)
			if r.status/100 != 2 {
				t.Fatalf("%s: %d %v", step.reset, r.status, r.body)
			}
			if got := c.system()["PowerState"]; got != step.power {
				t.Errorf("after %s PowerState is %v", step.reset, got)
			}
		}
		again := c.do(http.MethodPost, target, `{"ResetType":"On"}`).status
		want := map[bmcsim.Name]int{bmcsim.Dell: 409, bmcsim.HPE: 400, bmcsim.AMI: 202}
		if again != want[name] && (want[name] != 0 || again != 204) {
			t.Errorf("On while on answers %d", again)
		}
		if r := c.do(http.MethodPost, target, `{"ResetType":"Explode"}`); r.status != 400 {
			t.Errorf("an unknown reset type answers %d", r.status)
		}
	})
}

// change sets the boot override as this personality wants it.
func (c *client) change(name bmcsim.Name, boot string) reply {
	c.t.Helper()
	path := c.system()["@odata.id"].(string)
	if name == bmcsim.AMI {
		path = id(at(c.system(), "@Redfish.Settings", "SettingsObject"))
	}
	etag := c.do(http.MethodGet, path, "").header.Get("ETag")
	return c.do(http.MethodPatch, path, `{"Boot":`+boot+`}`, "If-Match", etag)
}

func TestBootOverride(t *testing.T) {
	eachPersonality(t, func(t *testing.T, c *client, name bmcsim.Name) {
		full := `{"BootSourceOverrideTarget":"Pxe","BootSourceOverrideEnabled":"Once","BootSourceOverrideMode":"UEFI"}`
		if r := c.change(name, full); r.status/100 != 2 {
			t.Fatalf("%d %v", r.status, r.body)
		}
		want := bmcsim.Boot{Enabled: "Once", Target: "Pxe", Mode: "UEFI"}
		if got := c.board.State().Boot; got != want {
			t.Errorf("override %+v", got)
		}
		r := c.change(name, `{"BootSourceOverrideTarget":"Hdd"}`)
		got := c.board.State().Boot
		if want := map[bool]string{false: "UEFI", true: "Legacy"}[name == bmcsim.Supermicro]; r.status/100 != 2 || got.Target != "Hdd" || got.Mode != want {
			t.Errorf("half an override: %d, %+v", r.status, got)
		}
		for _, bad := range []string{
			`{"BootSourceOverrideTarget":"Toaster"}`, `{"BootSourceOverrideEnabled":"Always"}`, `{"HttpBootUri":""}`, `{"Colour":"red"}`, `[]`, `{}`,
			`{"BootSourceOverrideTarget":1}`,
		} {
			if r := c.change(name, bad); r.status != 400 {
				t.Errorf("%s answers %d", bad, r.status)
			}
		}
	})
}

func TestSettingsObjectOnly(t *testing.T) {
	c := serve(t, bmcsim.AMI)
	path := c.system()["@odata.id"].(string)
	r := c.do(http.MethodPatch, path, `{"Boot":{"BootSourceOverrideTarget":"Pxe"}}`, "If-Match", "*")
	if r.status != 400 || !strings.Contains(at(r.body, "error", "code").(string), "OperationSupportedInFutureStateURI") {
		t.Errorf("%d %v", r.status, r.body)
	}
}

func TestPreconditions(t *testing.T) {
	c := serve(t, bmcsim.Standard)
	path := c.system()["@odata.id"].(string)
	body := `{"Boot":{"BootSourceOverrideTarget":"Pxe","BootSourceOverrideEnabled":"Once"}}`
	if r := c.do(http.MethodPatch, path, body); r.status != http.StatusPreconditionRequired {
		t.Errorf("without If-Match: %d", r.status)
	}
	old := c.do(http.MethodGet, path, "").header.Get("ETag")
	if r := c.do(http.MethodPatch, path, body, "If-Match", old); r.status != http.StatusNoContent {
		t.Errorf("with the ETag: %d", r.status)
	}
	if r := c.do(http.MethodPatch, path, body, "If-Match", old); r.status != http.StatusPreconditionFailed {
		t.Errorf("with an old ETag: %d", r.status)
	}
	if r := c.do(http.MethodGet, path, "", "If-None-Match", c.do(http.MethodGet, path, "").header.Get("ETag")); r.status != http.StatusNotModified {
		t.Errorf("unchanged: %d", r.status)
	}
	if r := c.do(http.MethodPost, path+"/Actions/ComputerSystem.Reset", `{"ResetType":"On"}`, "If-Match", old); r.status != http.StatusPreconditionFailed {
		t.Errorf("an action with If-Match: %d", r.status)
	}
	if r := c.do(http.MethodPatch, path, body, "Content-Type", "text/plain", "If-Match", "*"); r.status != http.StatusUnsupportedMediaType {
		t.Errorf("text: %d", r.status)
	}
}

func TestMedia(t *testing.T) {
	eachPersonality(t, func(t *testing.T, c *client, name bmcsim.Name) {
		collection := id(c.system()["VirtualMedia"])
		if collection == "" {
			collection = id(c.get(id(at(c.system(), "Links", "ManagedBy").([]any)[0]))["VirtualMedia"])
		}
		slot := id(c.get(collection)["Members"].([]any)[0])
		insert := at(c.get(slot), "Actions", "#VirtualMedia.InsertMedia", "target").(string)
		if r := c.do(http.MethodPost, insert, `{}`); r.status != 400 {
			t.Errorf("no image: %d", r.status)
		}
		if r := c.do(http.MethodPost, insert, `{"Image":"http://x/a.iso","Inserted":true}`); (r.status == 204) == (name == bmcsim.Supermicro) {
			t.Errorf("with a field more: %d", r.status)
		}
		if name == bmcsim.Supermicro {
			c.do(http.MethodPost, insert, `{"Image":"http://x/a.iso"}`)
		}
		d := c.get(slot)
		if d["Inserted"] != true || d["Image"] != "http://x/a.iso" || c.board.State().Media[0].Image != "http://x/a.iso" {
			t.Errorf("%v", d)
		}
		eject := at(d, "Actions", "#VirtualMedia.EjectMedia", "target").(string)
		if r := c.do(http.MethodPost, eject, ""); r.status != http.StatusUnsupportedMediaType {
			t.Errorf("eject without a body: %d", r.status)
		}
		if r := c.do(http.MethodPost, eject, `{}`); r.status != 204 || c.get(slot)["Inserted"] != false {
			t.Errorf("eject: %d", r.status)
		}
		if r := c.do(http.MethodPost, eject, `{}`); r.status != 400 {
			t.Errorf("eject of nothing: %d", r.status)
		}
	})
}

func TestSessions(t *testing.T) {
	eachPersonality(t, func(t *testing.T, c *client, name bmcsim.Name) {
		const sessions = "/redfish/v1/SessionService/Sessions"
		login := `{"UserName":"root","Password":"calvin"}`
		first := c.do(http.MethodPost, sessions, login, "Authorization", "none")
		token := first.header.Get("X-Auth-Token")
		if first.status != 201 || token == "" || first.header.Get("Location") == "" {
			t.Fatalf("%d %v", first.status, first.header)
		}
		if full := strings.HasPrefix(first.header.Get("Location"), "https://"); full != (name == bmcsim.HPE) {
			t.Errorf("Location %s", first.header.Get("Location"))
		}
		var last reply
		for range 40 {
			if last = c.do(http.MethodPost, sessions, login, "Authorization", "none"); last.status != 201 {
				break
			}
		}
		if last.status != 503 {
			t.Errorf("no end of sessions: %d", last.status)
		}
		if r := c.do(http.MethodGet, sessions, "", "X-Auth-Token", token); r.status != 200 {
			t.Errorf("with the session: %d", r.status)
		}
		if r := c.do(http.MethodDelete, first.body["@odata.id"].(string), "", "X-Auth-Token", token); r.status != 204 {
			t.Errorf("logout: %d", r.status)
		}
		if r := c.do(http.MethodGet, sessions, "", "X-Auth-Token", token); r.status != 401 {
			t.Errorf("after logout: %d", r.status)
		}
		*c.now = c.now.Add(time.Hour)
		if r := c.do(http.MethodPost, sessions, login, "Authorization", "none"); r.status != 201 {
			t.Errorf("old sessions have not ended: %d", r.status)
		}
	})
}

func TestLockout(t *testing.T) {
	c := serve(t, bmcsim.Dell)
	threshold := int(c.get("/redfish/v1/AccountService")["AccountLockoutThreshold"].(float64))
	for range threshold {
		if r := c.do(http.MethodGet, "/redfish/v1/Systems", "", "Authorization", "Basic eDp5"); r.status != 401 {
			t.Errorf("wrong password: %d", r.status)
		}
	}
	if r := c.do(http.MethodGet, "/redfish/v1/Systems", ""); r.status != 403 {
		t.Errorf("locked: %d", r.status)
	}
	*c.now = c.now.Add(6 * time.Minute)
	c.get("/redfish/v1/Systems")
	if r := c.do(http.MethodGet, "/redfish/v1", "", "Authorization", "Basic eDp5"); r.status != 200 {
		t.Errorf("the root needs no login: %d", r.status)
	}
}

func TestWhatEachTells(t *testing.T) {
	eachPersonality(t, func(t *testing.T, c *client, name bmcsim.Name) {
		system := c.system()
		if (system["EthernetInterfaces"] == nil) != (name == bmcsim.AMI) {
			t.Errorf("EthernetInterfaces %v", system["EthernetInterfaces"])
		}
		storage := c.get(id(c.get(id(system["Storage"]))["Members"].([]any)[0]))
		drive := c.get(id(storage["Drives"].([]any)[0]))
		if (drive["CapacityBytes"] == nil) != (name == bmcsim.AMI) {
			t.Errorf("drive %v", drive)
		}
		if link := system["EthernetInterfaces"]; link != nil {
			var macs []string
			for _, m := range c.get(id(link))["Members"].([]any) {
				macs = append(macs, strings.ToLower(c.get(id(m))["MACAddress"].(string)))
			}
			if !slices.Contains(macs, "00:16:3e:aa:bb:cc") || (len(macs) == 3) != (name == bmcsim.Supermicro) {
				t.Errorf("%v", macs)
			}
		}
		if (at(system, "Status", "Health") == "Critical") != (name == bmcsim.HPE) {
			t.Errorf("health %v", system["Status"])
		}
	})
}

func TestBaseboardIsAwayWhileOff(t *testing.T) {
	c := serve(t, bmcsim.AMI)
	if r := c.do(http.MethodGet, "/redfish/v1/Systems/HGX_Baseboard_0", ""); r.status != 503 || r.header.Get("Retry-After") == "" {
		t.Errorf("%d", r.status)
	}
}

func TestTasksEnd(t *testing.T) {
	c := serve(t, bmcsim.AMI)
	r := c.do(http.MethodPost, at(c.system(), "Actions", "#ComputerSystem.Reset", "target").(string), `{"ResetType":"On"}`)
	var states []any
	for range 4 {
		states = append(states, c.get(r.header.Get("Location"))["TaskState"])
	}
	if r.status != 202 || !slices.Equal(states, []any{"New", "Running", "Completed", "Completed"}) {
		t.Errorf("%d %v", r.status, states)
	}
}

func TestJobsAreDoneAtTheNextStart(t *testing.T) {
	c := serve(t, bmcsim.Dell)
	c.change(bmcsim.Dell, `{"BootSourceOverrideTarget":"Pxe","BootSourceOverrideEnabled":"Once"}`)
	job := id(c.get("/redfish/v1/Managers/iDRAC.Embedded.1/Jobs")["Members"].([]any)[0])
	if got := c.get(job)["JobState"]; got != "Scheduled" {
		t.Errorf("%v", got)
	}
	_ = c.board.Reset(bmcsim.On)
	if got := c.get(job)["JobState"]; got != "Completed" {
		t.Errorf("%v", got)
	}
}
