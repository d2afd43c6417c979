package redfish

import (
	"context"
	"slices"
	"strings"

	"github.com/better-compute/metal/domain/claim"
	"github.com/better-compute/metal/domain/node"
)

// port is one place where a MAC was found.
type port struct {
	mac, name string
	local     bool // locally administered: no factory gave it
}

// ports gathers MACs from every place, each once.
type ports struct {
	t    *taking
	all  []port
	seen map[string]bool
	out  map[string]bool // those of the link between host and manager
}

// nics is the union of what the system's interfaces and the chassis' adapters tell; no place has all of them everywhere.
// Whether a link is up tells nothing. None at all is a valid answer: then the machine itself must tell.
func (t *taking) nics(ctx context.Context) {
	var s source
	p := &ports{t: t, seen: map[string]bool{}, out: map[string]bool{}}
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
	for i, d := range t.readAll(ctx, links) {
		if d == nil {
			s.missed = true
			continue
		}
		p.addPort(d, lastName(links[i]))
	}
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
	p.add(mac, name)
}

// addPort takes an adapter's port or function, in the old and the new form.
func (p *ports) addPort(d document, name string) {
	if mac := d.text("Ethernet", "PermanentMACAddress"); mac != "" {
		p.add(mac, name)
	} else if d.has("Ethernet", "MACAddress") {
		p.add(d.text("Ethernet", "MACAddress"), name)
	}
	for _, mac := range append(d.texts("AssociatedNetworkAddresses"), d.texts("Ethernet", "AssociatedMACAddresses")...) {
		if len(strings.Trim(mac, " ")) <= len("00:00:00:00:00:00") { // longer ones are of other networks
			p.add(mac, name)
		}
	}
}

func (p *ports) add(mac, name string) {
	if mac == "" {
		p.t.note("interface " + name + " has no MAC address")
		return
	}
	normal, err := claim.MAC(mac)
	if err != nil {
		p.t.note("interface " + name + " is left out: its address is no MAC of a network port")
		return
	}
	if !p.seen[normal] {
		p.seen[normal] = true
		p.all = append(p.all, port{mac: normal, name: name, local: strings.ContainsRune("26ae", rune(normal[1]))})
	}
}

// nics is what identifies the machine. Locally administered addresses are left out beside real ones: the same one stands
// on many boards. Where there are no others, as in virtual machines, they are all there is.
func (p *ports) nics() []node.NIC {
	p.all = slices.DeleteFunc(p.all, func(x port) bool { return p.out[x.mac] })
	factory := slices.ContainsFunc(p.all, func(x port) bool { return !x.local })
	var out []node.NIC
	for _, x := range p.all {
		if x.local && factory {
			p.t.note("interface " + x.name + " is left out: its MAC address is locally administered")
			continue
		}
		out = append(out, node.NIC{MAC: x.mac, Name: x.name})
	}
	return out
}
