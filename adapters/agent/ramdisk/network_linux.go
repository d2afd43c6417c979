package ramdisk

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
)

// network brings every port up, gets it addresses and hears what it is plugged into. Which of them leads to the control plane
// is not known; the others do no harm.
type network struct {
	root      fs.FS
	log       *slog.Logger
	neighbors *neighbors
	resolvers string // the file that says where names are looked up
	boot      string // MAC of the port that the machine has booted over; empty: not known

	mu     sync.Mutex
	leases map[string]lease // by who told them: a port, or its routers
}

func newNetwork(root fs.FS, neighbors *neighbors, log *slog.Logger) *network {
	return &network{root: root, log: log, neighbors: neighbors, resolvers: "/etc/resolv.conf", leases: map[string]lease{}}
}

// lookAgain is how often new ports are looked for: a driver may take a while, and cards may be slow.
const lookAgain = time.Second

func (n *network) run(ctx context.Context) {
	if err := linkUp("lo"); err != nil {
		n.log.Warn("the loopback can't be used", "error", err)
	}
	var ports sync.WaitGroup
	defer ports.Wait()
	seen := map[string]bool{}
	for {
		for _, name := range etherPorts(n.root) {
			if seen[name] {
				continue
			}
			if err := linkUp(name); err != nil {
				n.log.Debug("a port can't be brought up", "port", name, "error", err)
				continue
			}
			seen[name] = true
			ports.Go(func() { n.serve(ctx, name) })
			ports.Go(func() { n.serve6(ctx, name) })
			ports.Go(func() {
				if err := n.neighbors.listen(ctx, n.root, name); err != nil {
					n.log.Warn("the neighbour is not heard", "port", name, "error", err)
				}
			})
		}
		if !pause(ctx, lookAgain) {
			return
		}
	}
}

// etherPorts are the Ethernet ports that are hardware.
func etherPorts(root fs.FS) (out []string) {
	entries, err := fs.ReadDir(root, "sys/class/net")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if _, err := fs.Stat(root, "sys/class/net/"+e.Name()+"/device"); err == nil && readText(root, "sys/class/net/"+e.Name()+"/type") == "1" {
			out = append(out, e.Name())
		}
	}
	return out
}

func (n *network) serve(ctx context.Context, name string) {
	p := &port{
		name: name, ask: &dhcp{name: name}, log: n.log, again: time.Second,
		apply: func(l lease) error { return n.apply(name, name, l) },
		drop:  func(l lease) { n.drop(name, name, l) },
	}
	p.run(ctx)
}

// apply gives a port its address, and keeps the rest under who told it.
func (n *network) apply(name, source string, l lease) error {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	if err := addAddress(link.Index, l.address); err != nil {
		return err
	}
	for _, r := range l.routes {
		if err := addRoute(link.Index, n.metric(link), r); err != nil {
			return err
		}
	}
	n.note(source, l)
	return nil
}

// metric makes routes of different ports different ones. Several ports may be told of a router that leads everywhere, and not
// each does: the port that the machine has booted over has led to its site.
func (n *network) metric(link *net.Interface) int {
	const booted, others = 512, 1024
	if n.boot != "" && strings.EqualFold(link.HardwareAddr.String(), n.boot) {
		return booted
	}
	return others + link.Index
}

func (n *network) drop(name, source string, l lease) {
	if link, err := net.InterfaceByName(name); err == nil {
		if err := deleteAddress(link.Index, l.address); err != nil { // its routes go with it
			n.log.Warn("an address stays", "port", name, "error", err)
		}
	}
	n.forget(source)
}

// note keeps what somebody told of where names are looked up, in place of what was told before.
func (n *network) note(source string, l lease) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leases[source] = l
	n.writeResolvers()
}

func (n *network) forget(source string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.leases, source)
	n.writeResolvers()
}

// writeResolvers tells the resolver of this process where to ask.
func (n *network) writeResolvers() {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(n.leases)) {
		for _, server := range n.leases[name].servers {
			text.WriteString("nameserver " + server.String() + "\n")
		}
		if search := n.leases[name].search; len(search) > 0 {
			text.WriteString("search " + strings.Join(search, " ") + "\n")
		}
	}
	if err := os.WriteFile(n.resolvers, []byte(text.String()), 0o644); err != nil { //nolint:gosec // as everywhere
		n.log.Warn("names can't be looked up", "error", err)
	}
}

// dhcp asks over one port.
type dhcp struct {
	name string
	last *nclient4.Lease
}

func (d *dhcp) with(do func(*nclient4.Client) (*nclient4.Lease, error)) (lease, error) {
	client, err := nclient4.New(d.name, nclient4.WithTimeout(2*time.Second), nclient4.WithRetry(2))
	if err != nil {
		return lease{}, err
	}
	defer client.Close() //nolint:errcheck // nothing is left to be sent
	got, err := do(client)
	if err != nil {
		return lease{}, err
	}
	d.last = got
	return leaseOf(got.ACK)
}

// Request gets a lease.
func (d *dhcp) Request(ctx context.Context) (lease, error) {
	return d.with(func(c *nclient4.Client) (*nclient4.Lease, error) {
		return c.Request(ctx, dhcpv4.WithRequestedOptions(dhcpv4.OptionSubnetMask, dhcpv4.OptionRouter, dhcpv4.OptionDomainNameServer,
			dhcpv4.OptionDomainName, dhcpv4.OptionClasslessStaticRoute, dhcpv4.OptionIPAddressLeaseTime))
	})
}

// Renew keeps it for longer.
func (d *dhcp) Renew(ctx context.Context) (lease, error) {
	return d.with(func(c *nclient4.Client) (*nclient4.Lease, error) { return c.Renew(ctx, d.last) })
}

// endless is the time of a lease whose server names none.
const endless = 24 * time.Hour

// leaseOf reads what the server acknowledged.
func leaseOf(ack *dhcpv4.DHCPv4) (lease, error) {
	address, ok := netip.AddrFromSlice(ack.YourIPAddr.To4())
	if !ok || address.IsUnspecified() {
		return lease{}, errors.New("the server's answer has no address")
	}
	bits := 32
	if mask := ack.SubnetMask(); mask != nil {
		bits, _ = mask.Size()
	}
	out := lease{address: netip.PrefixFrom(address, bits), duration: ack.IPAddressLeaseTime(endless)}
	for _, ip := range ack.DNS() {
		if a, ok := netip.AddrFromSlice(ip.To4()); ok {
			out.servers = append(out.servers, a)
		}
	}
	out.search = slices.DeleteFunc(strings.Fields(ack.DomainName()), func(name string) bool { return !isDomain(name) })
	// A server that gives routes by name means them instead of its router.
	for _, r := range ack.ClasslessStaticRoute() {
		to, ok := netip.AddrFromSlice(r.Dest.IP.To4())
		via, _ := netip.AddrFromSlice(r.Router.To4())
		if ones, _ := r.Dest.Mask.Size(); ok {
			out.routes = append(out.routes, route{to: netip.PrefixFrom(to, ones), via: via})
		}
	}
	if len(out.routes) == 0 {
		for _, ip := range ack.Router() {
			if via, ok := netip.AddrFromSlice(ip.To4()); ok {
				out.routes = []route{{to: netip.PrefixFrom(netip.IPv4Unspecified(), 0), via: via}}
				break
			}
		}
	}
	return out, nil
}
