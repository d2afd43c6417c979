package ramdisk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/dhcpv6/nclient6"
	"github.com/insomniacslk/dhcp/iana"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// The addresses that routers' prefixes give, and the way to the routers, are the kernel's. It does not ask by DHCPv6 where a
// router says so, and does not look names up; that is done here.

var (
	allNodes   = &net.IPAddr{IP: net.ParseIP("ff02::1")}
	allRouters = &net.IPAddr{IP: net.ParseIP("ff02::2")}
)

const (
	hops          = 255 // of what came through no router
	solicitEvery  = 4 * time.Second
	solicitQuick  = 3 // times; then
	solicitLater  = 30 * time.Second
	informedAgain = time.Hour
)

// serve6 follows what the routers at a port say, until ctx ends.
func (n *network) serve6(ctx context.Context, name string) {
	var asking sync.WaitGroup
	defer asking.Wait()
	r := &routers{network: n, port: name, asking: &asking}
	for ctx.Err() == nil {
		if err := r.follow(ctx); err != nil && ctx.Err() == nil {
			n.log.Debug("no routers of IPv6", "port", name, "error", err)
			pause(ctx, lookAgain)
		}
	}
}

// routers are those at one port.
type routers struct {
	*network
	port   string
	asking *sync.WaitGroup

	heard          bool
	managed, other bool // what was begun
	until          time.Time
	solicited      int
	solicitNext    time.Time
}

// socket is open for advertisements at the port alone.
func (r *routers) socket(ctx context.Context) (*ipv6.PacketConn, error) {
	link, err := net.InterfaceByName(r.port)
	if err != nil {
		return nil, err
	}
	bind := func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), r.port) }), err)
	}
	raw, err := (&net.ListenConfig{Control: bind}).ListenPacket(ctx, "ip6:ipv6-icmp", "::")
	if err != nil {
		return nil, err
	}
	conn := ipv6.NewPacketConn(raw)
	var only ipv6.ICMPFilter
	only.SetAll(true)
	only.Accept(ipv6.ICMPTypeRouterAdvertisement)
	err = errors.Join(
		conn.SetICMPFilter(&only), conn.JoinGroup(link, allNodes), conn.SetControlMessage(ipv6.FlagHopLimit, true),
		conn.SetMulticastInterface(link), conn.SetMulticastHopLimit(hops),
	)
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return conn, nil
}

func (r *routers) follow(ctx context.Context) error {
	conn, err := r.socket(ctx)
	if err != nil {
		return err
	}
	stopped := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() {
		if stopped() {
			_ = conn.Close()
		}
	}()
	buffer := make([]byte, 1<<14)
	for {
		r.solicit(conn)
		r.expire()
		if err := conn.SetReadDeadline(time.Now().Add(lookAgain)); err != nil {
			return err
		}
		got, control, from, err := conn.ReadFrom(buffer)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			continue
		case err != nil:
			return err
		}
		router, ok := from.(*net.IPAddr)
		if control == nil || control.HopLimit != hops || !ok || !router.IP.IsLinkLocalUnicast() {
			continue
		}
		if a, ok := parseAdvertisement(buffer[:got]); ok {
			r.take(ctx, a)
		}
	}
}

// solicit asks for routers until one has spoken. The kernel does so too, before anybody listened here.
func (r *routers) solicit(conn *ipv6.PacketConn) {
	if r.heard || time.Now().Before(r.solicitNext) {
		return
	}
	text, err := (&icmp.Message{Type: ipv6.ICMPTypeRouterSolicitation, Body: &icmp.RawBody{Data: make([]byte, 4)}}).Marshal(nil)
	if err != nil {
		return
	}
	if _, err := conn.WriteTo(text, nil, allRouters); err != nil {
		return // the port has no address of its own yet
	}
	r.solicited++
	r.solicitNext = time.Now().Add(solicitEvery)
	if r.solicited >= solicitQuick {
		r.solicitNext = time.Now().Add(solicitLater)
	}
}

// take does what a router says.
func (r *routers) take(ctx context.Context, a advertisement) {
	if !r.heard {
		r.log.Info("a router of IPv6", "port", r.port, "managed", a.managed, "other", a.other)
		r.heard = true
	}
	if len(a.servers) > 0 || len(a.search) > 0 {
		told := lease{search: a.search}
		for _, server := range a.servers {
			if server.IsLinkLocalUnicast() {
				server = server.WithZone(r.port)
			}
			told.servers = append(told.servers, server)
		}
		r.until = time.Now().Add(a.lifetime)
		r.note(r.port+" routers", told)
	}
	switch {
	case a.managed && !r.managed:
		r.managed = true
		r.asking.Go(func() { r.lease(ctx) })
	case a.other && !r.managed && !r.other:
		r.other = true
		r.asking.Go(func() { r.inform(ctx) })
	}
}

// expire forgets the servers of a router that has not named them for as long as it said.
func (r *routers) expire() {
	if !r.until.IsZero() && time.Now().After(r.until) {
		r.until = time.Time{}
		r.forget(r.port + " routers")
	}
}

// lease keeps an address from a DHCPv6 server.
func (r *routers) lease(ctx context.Context) {
	p := &port{
		name: r.port, ask: &dhcp6{name: r.port}, log: r.log, again: time.Second,
		apply: func(l lease) error { return r.apply(r.port, r.port+" managed", l) },
		drop:  func(l lease) { r.drop(r.port, r.port+" managed", l) },
	}
	p.run(ctx)
}

// inform asks a DHCPv6 server where names are looked up.
func (r *routers) inform(ctx context.Context) {
	for ctx.Err() == nil {
		told, err := (&dhcp6{name: r.port}).inform(ctx)
		if err != nil {
			r.log.Debug("no answer by DHCPv6", "port", r.port, "error", err)
			pause(ctx, solicitLater)
			continue
		}
		r.note(r.port+" informed", told)
		pause(ctx, informedAgain)
	}
}

// dhcp6 asks DHCPv6 servers over one port.
type dhcp6 struct {
	name string
	last *dhcpv6.Message
}

func (d *dhcp6) with(do func(*nclient6.Client) (*dhcpv6.Message, error)) (*dhcpv6.Message, error) {
	client, err := nclient6.New(d.name, nclient6.WithTimeout(2*time.Second), nclient6.WithRetry(2))
	if err != nil {
		return nil, err
	}
	defer client.Close() //nolint:errcheck // nothing is left to be sent
	return do(client)
}

// self names the machine by its port, the same at every boot: so it gets the same address.
func self(c *nclient6.Client) dhcpv6.Modifier {
	return dhcpv6.WithClientID(&dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: c.InterfaceAddr()})
}

// Request gets a lease.
func (d *dhcp6) Request(ctx context.Context) (lease, error) {
	got, err := d.with(func(c *nclient6.Client) (*dhcpv6.Message, error) { return c.RapidSolicit(ctx, self(c)) })
	if err != nil {
		return lease{}, err
	}
	d.last = got
	return lease6Of(got)
}

// Renew keeps it for longer: with the server that gave it, else with any.
func (d *dhcp6) Renew(ctx context.Context) (lease, error) {
	got, err := d.with(func(c *nclient6.Client) (*dhcpv6.Message, error) {
		for _, kind := range []dhcpv6.MessageType{dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRebind} {
			ask, err := d.again(kind)
			if err != nil {
				return nil, err
			}
			got, err := c.SendAndRead(ctx, c.RemoteAddr(), ask, nclient6.IsMessageType(dhcpv6.MessageTypeReply))
			if err == nil || !errors.Is(err, nclient6.ErrNoResponse) {
				return got, err
			}
		}
		return nil, nclient6.ErrNoResponse
	})
	if err != nil {
		return lease{}, err
	}
	return lease6Of(got)
}

// again asks for what was had before.
func (d *dhcp6) again(kind dhcpv6.MessageType) (*dhcpv6.Message, error) {
	ask, err := dhcpv6.NewMessage()
	if err != nil {
		return nil, err
	}
	ask.MessageType = kind
	ask.AddOption(dhcpv6.OptElapsedTime(0))
	ask.AddOption(dhcpv6.OptRequestedOption(dhcpv6.OptionDNSRecursiveNameServer, dhcpv6.OptionDomainSearchList))
	codes := []dhcpv6.OptionCode{dhcpv6.OptionClientID, dhcpv6.OptionIANA, dhcpv6.OptionServerID}
	if kind == dhcpv6.MessageTypeRebind {
		codes = codes[:2]
	}
	for _, code := range codes {
		o := d.last.GetOneOption(code)
		if o == nil {
			return nil, fmt.Errorf("the server's answer has no %s", code)
		}
		ask.AddOption(o)
	}
	return ask, nil
}

// inform asks for everything but an address.
func (d *dhcp6) inform(ctx context.Context) (lease, error) {
	got, err := d.with(func(c *nclient6.Client) (*dhcpv6.Message, error) {
		wanted := dhcpv6.WithRequestedOptions(dhcpv6.OptionDNSRecursiveNameServer, dhcpv6.OptionDomainSearchList)
		ask, err := dhcpv6.NewMessage(self(c), wanted)
		if err != nil {
			return nil, err
		}
		ask.MessageType = dhcpv6.MessageTypeInformationRequest
		ask.AddOption(dhcpv6.OptElapsedTime(0))
		return c.SendAndRead(ctx, c.RemoteAddr(), ask, nclient6.IsMessageType(dhcpv6.MessageTypeReply))
	})
	if err != nil {
		return lease{}, err
	}
	return resolversOf(got), nil
}

// lease6Of reads what a server replied.
func lease6Of(reply *dhcpv6.Message) (lease, error) {
	if s := reply.Options.Status(); s != nil && s.StatusCode != iana.StatusSuccess {
		return lease{}, fmt.Errorf("the server says %s: %s", s.StatusCode, s.StatusMessage)
	}
	for _, association := range reply.Options.IANA() {
		if s := association.Options.Status(); s != nil && s.StatusCode != iana.StatusSuccess {
			return lease{}, fmt.Errorf("the server says %s: %s", s.StatusCode, s.StatusMessage)
		}
		for _, a := range association.Options.Addresses() {
			address, ok := netip.AddrFromSlice(a.IPv6Addr.To16())
			if !ok || address.Is4In6() || !address.IsGlobalUnicast() || a.ValidLifetime <= 0 {
				continue
			}
			out := resolversOf(reply)
			out.address, out.duration = netip.PrefixFrom(address, 128), a.ValidLifetime
			return out, nil
		}
	}
	return lease{}, errors.New("the server's answer has no address")
}

func resolversOf(reply *dhcpv6.Message) (out lease) {
	for _, ip := range reply.Options.DNS() {
		if a, ok := netip.AddrFromSlice(ip.To16()); ok && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLinkLocalUnicast() {
			out.servers = append(out.servers, a)
		}
	}
	if list := reply.Options.DomainSearchList(); list != nil {
		for _, name := range list.Labels {
			if isDomain(name) {
				out.search = append(out.search, name)
			}
		}
	}
	return out
}
