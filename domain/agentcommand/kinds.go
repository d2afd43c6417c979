package agentcommand

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/better-compute/metal/domain/fault"
)

// KindName names what an agent is asked to do, such as disk.wipe.
type KindName string

// Kind is a kind of agent command, as the control plane knows it. The agent that carries it out has one of the same name.
type Kind struct {
	Name            KindName
	RunsOn          []Role // which agents carry it out
	Destructive     bool   // can lose data or take a machine down
	SelfTerminating bool   // ends the process that carries it out
	NeedsSecret     bool   // its payload carries secret references
	Attested        bool   // its result decides a transition and must be signed
	// Payload makes an empty value into which a payload is decoded, unknown fields being refused.
	Payload func() Payload
}

// Payload is what an agent command carries.
type Payload interface {
	// Check lists what is wrong with the payload, by path.
	Check() []fault.Issue
}

// The kinds that are shipped.
const (
	DriverInvoke    KindName = "driver.invoke"
	BootEntrySet    KindName = "boot.entry.set"
	BootEntryClear  KindName = "boot.entry.clear"
	SiteHTTPProxy   KindName = "site.httpProxy"
	InspectHardware KindName = "inspect.hardware"
	BurninCPU       KindName = "burnin.cpu"
	BurninMemory    KindName = "burnin.memory"
	BurninDisk      KindName = "burnin.disk"
	BurninGPU       KindName = "burnin.gpu"
	DiskWipe        KindName = "disk.wipe"
	ImageWrite      KindName = "image.write"
	BootKexec       KindName = "boot.kexec"
	NodeReboot      KindName = "node.reboot"
)

// Kinds lists the shipped kinds.
var Kinds = []Kind{
	{Name: DriverInvoke, RunsOn: []Role{RoleSite}, NeedsSecret: true, Payload: func() Payload { return &Invoke{} }},
	{Name: BootEntrySet, RunsOn: []Role{RoleSite}, NeedsSecret: true, Payload: func() Payload { return &BootEntry{} }},
	{Name: BootEntryClear, RunsOn: []Role{RoleSite}, Payload: func() Payload { return &BootEntryGone{} }},
	{Name: SiteHTTPProxy, RunsOn: []Role{RoleSite}, Destructive: true, Payload: func() Payload { return &HTTPProxy{} }},
	{Name: InspectHardware, RunsOn: []Role{RoleRamdisk, RoleNode}, Payload: func() Payload { return &Inspect{} }},
	{Name: BurninCPU, RunsOn: []Role{RoleRamdisk}, Attested: true, Payload: func() Payload { return &Burnin{} }},
	{Name: BurninMemory, RunsOn: []Role{RoleRamdisk}, Attested: true, Payload: func() Payload { return &Burnin{} }},
	{Name: BurninDisk, RunsOn: []Role{RoleRamdisk}, Destructive: true, Attested: true, Payload: func() Payload { return &Burnin{} }},
	{Name: BurninGPU, RunsOn: []Role{RoleRamdisk}, Attested: true, Payload: func() Payload { return &Burnin{} }},
	{Name: DiskWipe, RunsOn: []Role{RoleRamdisk}, Destructive: true, Attested: true, Payload: func() Payload { return &WipeDisks{} }},
	{Name: ImageWrite, RunsOn: []Role{RoleRamdisk}, Destructive: true, NeedsSecret: true, Attested: true,
		Payload: func() Payload { return &WriteImage{} }},
	{Name: BootKexec, RunsOn: []Role{RoleRamdisk}, Destructive: true, SelfTerminating: true, Payload: func() Payload { return &Kexec{} }},
	{Name: NodeReboot, RunsOn: []Role{RoleRamdisk, RoleNode}, Destructive: true, SelfTerminating: true,
		Payload: func() Payload { return &Reboot{} }},
}

// Join makes one list of several: the shipped kinds and a host application's own. A name that stands twice, and a kind that
// is not whole, are INVALID_CONFIG.
func Join(lists ...[]Kind) ([]Kind, error) {
	var all []Kind
	for _, k := range slices.Concat(lists...) {
		switch _, doubled := Find(all, k.Name); {
		case k.Name == "" || len(k.RunsOn) == 0 || k.Payload == nil:
			return nil, fault.New(fault.InvalidConfig, "agent command kind %q needs a name, a role to run on and a payload", k.Name).
				WithDetail("kind", string(k.Name))
		case doubled:
			return nil, fault.New(fault.InvalidConfig, "agent command kind %q is defined twice", k.Name).
				WithDetail("kind", string(k.Name))
		}
		all = append(all, k)
	}
	return all, nil
}

// Find gives the kind of a name out of a list.
func Find(kinds []Kind, name KindName) (Kind, bool) {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return kinds[i], true
}

// Seconds is a length of time in whole or broken seconds, as payloads carry it.
type Seconds float64

// Duration converts.
func (s Seconds) Duration() time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

// Invoke asks the site agent's driver for one operation on one machine's controller.
type Invoke struct {
	Driver    string          `json:"driver"`    // such as redfish
	Concern   string          `json:"concern"`   // such as power
	Operation string          `json:"operation"` // such as setPower; Operations lists them
	BMC       BMC             `json:"bmc"`
	With      json.RawMessage `json:"with,omitempty"`
}

// BMC is where a controller is and how to log in, with a reference in place of the credentials.
type BMC struct {
	Address        string          `json:"address"`
	TLS            json.RawMessage `json:"tls"`            // the node's TLS policy
	CredentialsRef string          `json:"credentialsRef"` // secret:<id>; its value is {"username": …, "password": …}
	System         string          `json:"system,omitempty"`
	Quirks         json.RawMessage `json:"quirks,omitempty"` // what earlier invocations learned
}

// Invoked is the result of an Invoke.
type Invoked struct {
	Result      json.RawMessage `json:"result,omitempty"` // of the operation
	Quirks      json.RawMessage `json:"quirks,omitempty"` // where something new was learned
	Fingerprint string          `json:"fingerprint,omitempty"`
}

// Operation is one operation of a concern, with the shape of its input.
type Operation struct{ Concern, Name string }

// Operations lists what driver.invoke can ask for: bmc.identify, power.get, power.setPower {action, graceful, force},
// boot.get, management.setBootDevice {device, persistent, mode, httpUri}, management.getSensors, virtual-media.insert {url},
// virtual-media.eject, inspect.outOfBand. Results are the types of adapters/bmc of the same names.
var Operations = []Operation{
	{"bmc", "identify"}, {"power", "get"}, {"power", "setPower"}, {"boot", "get"}, {"management", "setBootDevice"},
	{"management", "getSensors"}, {"virtual-media", "insert"}, {"virtual-media", "eject"}, {"inspect", "outOfBand"},
}

// Reads reports whether the operation changes nothing at the controller or the machine: two agents may do it at the same time.
func (o Operation) Reads() bool { return slices.Contains(readings, o) }

var readings = []Operation{
	{"bmc", "identify"}, {"power", "get"}, {"boot", "get"}, {"management", "getSensors"}, {"inspect", "outOfBand"},
}

// BootEntry tells the site agent what a machine boots when it boots from the network. It replaces the machine's earlier
// entry, and dies at ExpiresAt.
type BootEntry struct {
	NodeID    string    `json:"nodeId"`
	MACs      []string  `json:"macs"`     // every one that the machine may boot from
	TokenRef  string    `json:"tokenRef"` // secret:<id> of the single-use join token
	Kernel    string    `json:"kernel"`   // URL, or a name among the boot files of the site's agent
	Initrd    string    `json:"initrd"`
	Args      []string  `json:"args,omitempty"` // of the kernel, besides the site's own
	ExpiresAt time.Time `json:"expiresAt"`
}

// BootEntryKept is its result.
type BootEntryKept struct {
	// MediumURL is where a controller finds the image that the machine boots from a virtual drive instead. It is dead as soon
	// as the machine has booted. Empty: the site has none.
	MediumURL string `json:"mediumUrl,omitempty"`
}

// BootEntryGone clears the machine's entry.
type BootEntryGone struct {
	NodeID string `json:"nodeId"`
}

// HTTPProxy is one HTTP request from the site agent to the machine's own address.
type HTTPProxy struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Header  map[string]string `json:"header,omitempty"`
	Body    []byte            `json:"body,omitempty"`
	Timeout Seconds           `json:"timeoutSeconds,omitempty"`
}

// HTTPProxied is its answer.
type HTTPProxied struct {
	Status int               `json:"status"`
	Header map[string]string `json:"header,omitempty"`
	Body   []byte            `json:"body,omitempty"`
}

// Inspect takes the inventory from inside the machine. The result is domain/node's Hardware.
type Inspect struct{}

// Burnin tries a part of the machine for a time.
type Burnin struct {
	Duration Seconds `json:"durationSeconds,omitempty"` // per part; zero: one pass
	Bytes    int64   `json:"bytes,omitempty"`           // how much of the memory or of each disk; zero: all of it
	Shared   bool    `json:"shared,omitempty"`          // as WipeDisks'
}

// Burned is the result: what was tried and what failed. It is told also where something failed; the agent command
// succeeds only where nothing did.
type Burned struct {
	Parts []BurnedPart `json:"parts"`
}

// BurnedPart is one processor, the memory, or one disk.
type BurnedPart struct {
	Name   string  `json:"name"`
	Bytes  int64   `json:"bytes,omitempty"`
	Took   Seconds `json:"tookSeconds"`
	Errors int64   `json:"errors"`
	Detail string  `json:"detail,omitempty"`
}

// WipeDisks empties every local disk. The result is {"disks": […]}, each one domain/node's WipedDisk.
type WipeDisks struct {
	Method string `json:"method"`           // domain/node's WipeMethod but none
	Shared bool   `json:"shared,omitempty"` // filesystems that other machines may share too; false: a disk with one is not touched
}

// WriteImage streams an image to one disk, with its user data beside it.
type WriteImage struct {
	URL         string   `json:"url"`
	Digest      string   `json:"digest"` // sha256:<hex> of the file as served
	Format      string   `json:"format"` // raw or qcow2, with .gz, .xz or .zst where compressed
	Bytes       int64    `json:"bytes"`  // of the file as served
	Signature   []byte   `json:"signature"`
	Signer      string   `json:"signer"` // PEM of the public key
	Disk        RootDisk `json:"disk"`
	UserDataRef string   `json:"userDataRef,omitempty"` // secret:<id>
	UserData    string   `json:"userDataKind,omitempty"`
	Hostname    string   `json:"hostname,omitempty"`
	ReadBack    bool     `json:"readBack,omitempty"` // read the whole image back from the disk
}

// RootDisk chooses the disk: every hint that is given must match; the smallest that matches wins. Without a hint it is the
// smallest disk that holds the image.
type RootDisk struct {
	Serial       string `json:"serial,omitempty"`
	WWN          string `json:"wwn,omitempty"`
	Model        string `json:"model,omitempty"`
	Name         string `json:"name,omitempty"`
	MinimumBytes int64  `json:"minimumBytes,omitempty"`
	Rotational   *bool  `json:"rotational,omitempty"`
}

// WrittenImage is its result.
type WrittenImage struct {
	Disk     string `json:"disk"` // as domain/node's Disk.Key
	Path     string `json:"path"`
	Digest   string `json:"digest"`
	Bytes    int64  `json:"bytes"` // written, after decompression
	ReadBack bool   `json:"readBack"`
}

// Kexec starts the installed OS from the ramdisk without firmware; a machine that can't falls back to a reboot.
type Kexec struct {
	Disk string `json:"disk,omitempty"` // as WrittenImage names it
}

// Reboot restarts the machine.
type Reboot struct{}
