package redfish

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/better-compute/metal/domain/claim"
	"github.com/better-compute/metal/domain/node"
)

// port is a MAC, and what is told of it wherever it is found.
type port struct {
	node.NIC
	local bool // locally administered: no factory gave it
}

// ports gathers MACs from every place, each once.
type ports struct {
	t    *taking
	all  []port
	seen map[string]int  // where in all a MAC is
	out  map[string]bool // those of the link between host and manager
}

// nics is the union of what the system's interfaces and the chassis' adapters tell; no place has all of them everywhere.
// Whether a link is up is told as it is, and chooses nothing: some controllers call all of them down. None at all is a
// valid answer: then the machine itself must tell.
func (t *taking) nics(ctx context.Context) {
	var s source
	p := &ports{t: t, seen: map[string]int{}, out: map[string]bool{}}
	for _, d := range t.collection(ctx, &s, t.sys.link("EthernetInterfaces")) {
		p.addInterface(d)
	}
	for _, adapter := range t.adapters(ctx, &s) {
		t.adapterPorts(ctx, &s, p, adapter)
	}
	t.inv.Hardware.NICs = p.nics()
	t.inv.Sources["nics"] = s.String()
}

// adapters lists the network adapters that the system refers to, and those of its chassis.
func (t *taking) adapters(ctx context.Context, s *source) []document {
	var links []string
	seen := map[string]bool{}
	add := func(found ...string) {
		for _, l := range found {
			if l != "" && !seen[canonical(l)] {
				seen[canonical(l)] = true
				links = append(links, l)
			}
		}
	}
	for _, d := range t.collection(ctx, s, t.sys.link("NetworkInterfaces")) {
		add(d.link("Links", "NetworkAdapter"))
	}
	for _, chassis := range t.chassis(ctx) {
		path := chassis.link("NetworkAdapters")
		if path == "" {
			continue
		}
		found, err := t.c.list(ctx, path, true)
		s.missed = s.missed || err != nil
		s.found = s.found || err == nil
		add(found...)
	}
	return t.present(s, t.readAll(ctx, links))
}

// adapterPorts reads an adapter's ports and functions, also those that only its controllers refer to.
func (t *taking) adapterPorts(ctx context.Context, s *source, p *ports, adapter document) {
	var links []string
	seen := map[string]bool{}
	for _, name := range []string{"NetworkDeviceFunctions", "Ports", "NetworkPorts"} {
		var found []string
		if path := adapter.link(name); path != "" {
			members, err := t.c.list(ctx, path, true)
			s.missed = s.missed || err != nil
			found = members
		}
		for _, controller := range adapter.objects("Controllers") {
			found = append(found, controller.links("Links", name)...)
		}
		for _, l := range found {
			if !seen[canonical(l)] {
				seen[canonical(l)] = true
				links = append(links, l)
			}
		}
	}
	docs, at := t.readAll(ctx, links), map[string]document{}
	for i, l := range links {
		at[canonical(l)] = docs[i]
	}
	for i, d := range docs {
		if d == nil {
			s.missed = true
			continue
		}
		p.addPort(d, at[canonical(assigned(d))], lastName(links[i]))
	}
}

// assigned is the link from a function to the port that it uses.
func assigned(function document) string {
	return cmp.Or(function.link("Links", "PhysicalNetworkPortAssignment"), function.link("Links", "PhysicalPortAssignment"),
		function.link("PhysicalPortAssignment"))
}

func (p *ports) addInterface(d document) {
	name := d.label("Id")
	mac := d.text("PermanentMACAddress")
	if mac == "" {
		mac = d.text("MACAddress")
	}
	if strings.EqualFold(name, "ToManager") || d.has("Links", "HostInterface") && d.link("Links", "HostInterface") != "" {
		if normal, err := claim.MAC(mac); err == nil {
			p.out[normal] = true
		}
		p.t.note("interface " + name + " is left out: it links the host with its manager")
		return
	}
	p.add(mac, name, wired(d))
}

// addPort takes an adapter's port or function, in the old and the new form. A function's port tells of the link.
func (p *ports) addPort(d, port document, name string) {
	nic := wired(d)
	nic.join(wired(port))
	if mac := d.text("Ethernet", "PermanentMACAddress"); mac != "" {
		p.add(mac, name, nic)
	} else if d.has("Ethernet", "MACAddress") {
		p.add(d.text("Ethernet", "MACAddress"), name, nic)
	}
	for _, mac := range append(d.texts("AssociatedNetworkAddresses"), d.texts("Ethernet", "AssociatedMACAddresses")...) {
		if len(strings.Trim(mac, " ")) <= len("00:00:00:00:00:00") { // longer ones are of other networks
			p.add(mac, name, nic)
		}
	}
}

// linkStates are the states that interfaces and ports, old and new, tell of; those between up and down are neither.
var linkStates = map[string]node.LinkState{
	string(schemas.LinkUpPortLinkStatus):      node.LinkUp,
	string(schemas.UpNetworkPortLinkStatus):   node.LinkUp,
	string(schemas.LinkDownPortLinkStatus):    node.LinkDown,
	string(schemas.NoLinkPortLinkStatus):      node.LinkDown,
	string(schemas.DownNetworkPortLinkStatus): node.LinkDown,
}

// wired is what an interface or a port tells of its link, its speed, and its neighbour.
func wired(d document) (w port) {
	w.Link = linkStates[d.text("LinkStatus")]
	if w.Link != node.LinkUp {
		return w
	}
	w.SpeedMbps = bounded(cmp.Or(d.whole("SpeedMbps"), d.whole("CurrentLinkSpeedMbps")))
	if gbps, _ := d.number("CurrentSpeedGbps"); w.SpeedMbps == 0 && gbps > 0 && gbps < 1<<20 {
		w.SpeedMbps = int(gbps * 1000)
	}
	w.LLDP = neighbor(d.object("Ethernet", "LLDPReceive"))
	return w
}

// neighbor is the switch's port, where one was heard.
func neighbor(heard document) *node.LLDPNeighbor {
	out := node.LLDPNeighbor{
		ChassisID: heard.known("ChassisId"), PortID: heard.known("PortId"), SystemName: heard.known("SystemName"),
	}
	if out.ChassisID == "" || out.PortID == "" {
		return nil
	}
	for _, id := range []*string{&out.ChassisID, &out.PortID} {
		if mac, err := claim.MAC(*id); err == nil {
			*id = mac
		}
	}
	return &out
}

// join adds what another place tells of the same port: one that sees the link up is right.
func (x *port) join(other port) {
	if x.Link != node.LinkUp && other.Link != "" {
		x.Link = other.Link
	}
	x.SpeedMbps = cmp.Or(x.SpeedMbps, other.SpeedMbps)
	x.LLDP = cmp.Or(x.LLDP, other.LLDP)
}

func (p *ports) add(mac, name string, w port) {
	if mac == "" {
		p.t.note("interface " + name + " has no MAC address")
		return
	}
	normal, err := claim.MAC(mac)
	if err != nil {
		p.t.note("interface " + name + " is left out: its address is no MAC of a network port")
		return
	}
	if i, twice := p.seen[normal]; twice {
		p.all[i].join(w)
		return
	}
	p.seen[normal] = len(p.all)
	w.MAC, w.Name, w.local = normal, name, strings.ContainsRune("26ae", rune(normal[1]))
	p.all = append(p.all, w)
}

// nics is what identifies the machine. Locally administered addresses are left out beside real ones: the same one stands
// on many boards. Where there are no others, as in virtual machines, they are all there is.
func (p *ports) nics() []node.NIC {
	p.all = slices.DeleteFunc(p.all, func(x port) bool { return p.out[x.MAC] })
	factory := slices.ContainsFunc(p.all, func(x port) bool { return !x.local })
	var out []node.NIC
	for _, x := range p.all {
		if x.local && factory {
			p.t.note("interface " + x.Name + " is left out: its MAC address is locally administered")
			continue
		}
		out = append(out, x.NIC)
	}
	return out
}
