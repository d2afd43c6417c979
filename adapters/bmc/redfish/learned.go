package redfish

import (
	"encoding/json"
	"slices"
	"strings"
)

const (
	authBasic   = "basic"
	tagStrong   = "strong" // If-Match without W/
	tagNone     = "none"   // no If-Match
	insertPatch = "patch"  // virtual media by PATCH instead of the action
)

// learned is what is known of a service.
type learned struct {
	Root     string `json:"root,omitempty"`     // the form of the service root that answers
	Sessions string `json:"sessions,omitempty"` // where sessions are made
	Systems  string `json:"systems,omitempty"`
	Managers string `json:"managers,omitempty"`
	Chassis  string `json:"chassis,omitempty"`
	Accounts string `json:"accounts,omitempty"` // the account service
	Tasks    string `json:"tasks,omitempty"`
	Provider string `json:"provider,omitempty"` // the manager that provides the service
	Vendor   string `json:"vendor,omitempty"`
	Auth     string `json:"auth,omitempty"`    // basic: there are no sessions
	Lockout  int    `json:"lockout,omitempty"` // failures after which an account is locked; -1: never
	ETag     string `json:"etag,omitempty"`    // strong, none
}

// facts is what is known of one system.
type facts struct {
	For      string    `json:"for,omitempty"` // the Target.System that they were found for
	System   string    `json:"system,omitempty"`
	Manager  string    `json:"manager,omitempty"`
	Reset    []string  `json:"reset,omitempty"` // allowed reset types, from the action's info
	Boot     *settings `json:"boot,omitempty"`  // the settings object, where boot is set there
	BootFull bool      `json:"bootFull,omitempty"`
	BootOnce bool      `json:"bootOnce,omitempty"` // persistent overrides are refused
	Media    string    `json:"media,omitempty"`    // the slot that works
	InsertBy string    `json:"insertBy,omitempty"` // patch
	Insert   []string  `json:"insert,omitempty"`   // parameters beyond Image that it wants
}

// settings is a settings object and which boot properties it holds.
type settings struct {
	URI string   `json:"uri"`
	Has []string `json:"has,omitempty"`
}

// memory is the document that is handed out and in again.
type memory struct {
	learned
	facts
}

// recall reads an earlier document. It went through other hands: what is not a local path is dropped, and a whole that
// can't be read is nothing.
func recall(raw json.RawMessage) memory {
	var m memory
	if len(raw) == 0 || json.Unmarshal(raw, &m) != nil {
		return memory{}
	}
	paths := []*string{&m.Root, &m.Sessions, &m.Systems, &m.Managers, &m.Chassis, &m.Accounts, &m.Tasks, &m.Provider,
		&m.System, &m.Manager, &m.Media}
	for _, p := range paths {
		*p = localPath(*p)
	}
	if m.Boot != nil {
		if m.Boot.URI = localPath(m.Boot.URI); m.Boot.URI == "" {
			m.Boot = nil
		}
	}
	return m
}

// learn changes what is known of the service.
func (c *conn) learn(change func(*learned)) {
	c.mu.Lock()
	change(&c.service)
	c.mu.Unlock()
}

func (c *conn) known() learned {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.service
}

// sessions is where a session is made.
func (c *conn) sessions() string {
	if s := c.known().Sessions; s != "" {
		return s
	}
	return "/redfish/v1/SessionService/Sessions"
}

// learn changes what is known of the machine's system.
func (m *machine) learn(change func(*facts)) {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	f := m.c.systems[m.wanted]
	change(&f)
	m.c.systems[m.wanted] = f
}

func (m *machine) known() facts {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	f := m.c.systems[m.wanted]
	f.Reset, f.Insert = slices.Clone(f.Reset), slices.Clone(f.Insert)
	return f
}

// vendorNames gives one name to the spellings of a vendor.
var vendorNames = []struct{ part, name string }{
	{"dell", "Dell"}, {"hpe", "HPE"}, {"hewlett", "HPE"}, {"supermicro", "Supermicro"}, {"super micro", "Supermicro"},
	{"lenovo", "Lenovo"}, {"nvidia", "NVIDIA"}, {"asrock", "ASRockRack"}, {"ami", "AMI"}, {"american megatrends", "AMI"},
	{"giga", "GIGABYTE"}, {"gbt", "GIGABYTE"}, {"huawei", "Huawei"}, {"xfusion", "xFusion"}, {"fujitsu", "Fujitsu"}, {"cisco", "Cisco"},
	{"quanta", "QCT"}, {"qct", "QCT"}, {"inspur", "Inspur"}, {"intel", "Intel"}, {"openbmc", "OpenBMC"},
}

func vendorName(s string) string {
	if name, known := knownVendor(s); known {
		return name
	}
	return s
}

func knownVendor(s string) (string, bool) {
	low := strings.ToLower(s)
	for _, v := range vendorNames {
		if strings.HasPrefix(low, v.part) {
			return v.name, true
		}
	}
	return "", false
}
