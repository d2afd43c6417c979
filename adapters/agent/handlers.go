package agent

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/netip"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/adapters/netboot"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
)

// SiteDeps is what a site agent carries orders out with.
type SiteDeps struct {
	Drivers map[string]bmc.Driver // by name, such as redfish
	Entries *netboot.Entries      // nil: this agent serves no network boot
	// Medium is where the image is that a machine with an entry boots from a virtual drive; nil: nowhere.
	Medium func(nodeID string) string
	Proxy  ProxyLimits
}

// ProxyLimits bounds site.httpProxy.
type ProxyLimits struct {
	Allow []netip.Prefix // addresses that may be reached although they are of a kind that is refused
	Deny  []netip.Prefix // addresses that are refused besides, such as the control plane's
	Hosts []string       // names whose addresses are refused, such as the gateway's
}

// SiteHandlers are the kinds of a site agent.
func SiteHandlers(d SiteDeps) map[agentcommand.KindName]Handler {
	out := map[agentcommand.KindName]Handler{
		agentcommand.DriverInvoke:  driverInvoke(d.Drivers),
		agentcommand.SiteHTTPProxy: siteHTTPProxy(d.Proxy),
	}
	if d.Entries != nil {
		out[agentcommand.BootEntrySet] = bootEntrySet(d.Entries, d.Medium)
		out[agentcommand.BootEntryClear] = bootEntryClear(d.Entries)
	}
	return out
}

// MachineDeps is what a ramdisk or node agent carries orders out with.
type MachineDeps struct {
	Machine Machine
	Images  *http.Client      // fetches images; nil: a client of its own
	Sites   []string          // URLs of the site's boot servers, which may keep images
	Seed    func() uint64     // of sampled blocks; nil: random
	Role    agentcommand.Role // whose kinds; empty: the ramdisk's
	Logger  *slog.Logger      // nil: nothing is logged
}

// MachineHandlers are the kinds of a ramdisk, or of the agent in an installed OS. Nothing is done to a machine but what an
// order says: an agent without orders waits.
func MachineHandlers(d MachineDeps) map[agentcommand.KindName]Handler {
	m := d.withDefaults()
	all := map[agentcommand.KindName]Handler{
		agentcommand.InspectHardware: m.inspect,
		agentcommand.BurninCPU:       m.burnin(agentcommand.BurninCPU),
		agentcommand.BurninMemory:    m.burnin(agentcommand.BurninMemory),
		agentcommand.BurninDisk:      m.burninDisk,
		agentcommand.DiskWipe:        m.wipe,
		agentcommand.ImageWrite:      m.writeImage,
		agentcommand.BootKexec:       m.kexec,
		agentcommand.NodeReboot:      m.reboot,
	}
	out := map[agentcommand.KindName]Handler{}
	for _, k := range agentcommand.Kinds {
		for _, role := range k.RunsOn {
			if role == m.Role && all[k.Name] != nil {
				out[k.Name] = all[k.Name]
			}
		}
	}
	return out
}

// decode reads an order's payload, field by field as the control plane writes it.
func decode[T any, P interface {
	*T
	agentcommand.Payload
}](o Order) (T, error) {
	var out T
	in := json.NewDecoder(bytes.NewReader(o.Payload))
	in.DisallowUnknownFields()
	if err := in.Decode(&out); err != nil {
		return out, fault.Invalid(fault.Issue{Path: "payload", Message: err.Error()})
	}
	if _, err := in.Token(); err != io.EOF {
		return out, fault.Invalid(fault.Issue{Path: "payload", Message: "there is more than one value"})
	}
	if issues := P(&out).Check(); len(issues) > 0 {
		return out, fault.Invalid(issues...)
	}
	return out, nil
}
