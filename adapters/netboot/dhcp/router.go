package dhcp

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"

	"github.com/better-compute/metal/domain/fault"
)

// Solicitations answers IPv6 router solicitations with an advertisement that says: no router here, no prefix. Firmware on a
// network without IPv6 then goes on at once instead of waiting for a router.
type Solicitations struct {
	link   *net.Interface
	conn   *ipv6.PacketConn
	raw    net.PacketConn
	logger *slog.Logger
}

// advertisement is a router advertisement (RFC 4861, 4.2) of a lifetime of zero, without options; type, code and checksum
// are written before it.
var advertisement = make([]byte, 12)

// hops is what neighbour discovery demands: a packet that came through no router.
const hops = 255

var (
	allNodes   = net.ParseIP("ff02::1")
	allRouters = net.ParseIP("ff02::2")
)

// ListenSolicitations begins to hear them on an interface. It needs root, or the capability NET_RAW.
func ListenSolicitations(ctx context.Context, link string, logger *slog.Logger) (*Solicitations, error) {
	found, err := net.InterfaceByName(link)
	if err != nil {
		return nil, fault.New(fault.InvalidConfig, "there is no interface %q", link)
	}
	raw, err := (&net.ListenConfig{Control: bindTo(link)}).ListenPacket(ctx, "ip6:ipv6-icmp", "::")
	if errors.Is(err, os.ErrPermission) {
		return nil, fault.Wrap(err, fault.InvalidConfig, "router advertisements need root, or the capability NET_RAW").
			WithRemedy("run it as root, or give it the capability")
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidConfig, "router advertisements on %s: %v", link, err)
	}
	s := &Solicitations{link: found, conn: ipv6.NewPacketConn(raw), raw: raw, logger: logger}
	if err := s.prepare(); err != nil {
		_ = raw.Close() // nobody has it
		return nil, fault.Wrap(err, fault.InvalidConfig, "router advertisements on %s: %v", link, err)
	}
	return s, nil
}

func (s *Solicitations) prepare() error {
	var only ipv6.ICMPFilter
	only.SetAll(true)
	only.Accept(ipv6.ICMPTypeRouterSolicitation)
	return errors.Join(
		s.conn.SetICMPFilter(&only),
		s.conn.JoinGroup(s.link, &net.UDPAddr{IP: allRouters}),
		s.conn.SetControlMessage(ipv6.FlagHopLimit|ipv6.FlagInterface, true),
		s.conn.SetMulticastInterface(s.link),
		s.conn.SetMulticastHopLimit(hops),
		s.conn.SetHopLimit(hops),
	)
}

// Close gives the socket up.
func (s *Solicitations) Close() error { return s.raw.Close() }

// Serve answers until ctx ends.
func (s *Solicitations) Serve(ctx context.Context) error {
	stopped := context.AfterFunc(ctx, func() { _ = s.raw.Close() }) // nothing was promised to anybody
	defer stopped()
	text, err := (&icmp.Message{Type: ipv6.ICMPTypeRouterAdvertisement, Body: &icmp.RawBody{Data: advertisement}}).Marshal(nil)
	if err != nil {
		return fault.Wrap(err, fault.Internal, "the router advertisement can't be written")
	}
	buffer := make([]byte, packetMost)
	for {
		n, control, from, err := s.conn.ReadFrom(buffer)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fault.Wrap(err, fault.Unavailable, "the socket of router solicitations was closed")
		case err != nil:
			s.logger.Warn("router solicitations can't be read", "error", err)
			if pause(ctx, time.Second) != nil {
				return nil
			}
			continue
		case control == nil || control.HopLimit != hops || control.IfIndex != s.link.Index || n < 8:
			continue
		}
		to := &net.IPAddr{IP: allNodes}
		if a, ok := from.(*net.IPAddr); ok && !a.IP.IsUnspecified() {
			to.IP = a.IP
		}
		way := &ipv6.ControlMessage{IfIndex: s.link.Index, HopLimit: hops}
		if _, err := s.conn.WriteTo(text, way, to); err != nil && ctx.Err() == nil {
			s.logger.Warn("a router advertisement can't be sent", "error", err)
		}
	}
}
