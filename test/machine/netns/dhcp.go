package netns

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/server4"
)

// GiveAddresses is the DHCP server that a site has already: it gives out addresses from first on, and knows nothing of network
// boot. It serves on a host whose own address is given, until ctx ends.
func (h *Host) GiveAddresses(ctx context.Context, own, first netip.Addr) error {
	s := &addresses{own: own, next: first, given: map[string]netip.Addr{}}
	var server *server4.Server
	err := h.Within(func() (err error) {
		server, err = server4.NewServer(HostPort, &net.UDPAddr{IP: net.IPv4zero, Port: dhcpv4.ServerPort}, s.answer)
		return err
	})
	if err != nil {
		return err
	}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() }) // nobody asks any more
	defer stopped()
	if err := server.Serve(); ctx.Err() == nil {
		return err
	}
	return nil
}

type addresses struct {
	own netip.Addr

	mu    sync.Mutex
	next  netip.Addr
	given map[string]netip.Addr
}

func (a *addresses) answer(conn net.PacketConn, peer net.Addr, req *dhcpv4.DHCPv4) {
	kind := dhcpv4.MessageTypeOffer
	switch req.MessageType() {
	case dhcpv4.MessageTypeDiscover:
	case dhcpv4.MessageTypeRequest:
		if other := req.ServerIdentifier(); other != nil && !other.Equal(a.own.AsSlice()) {
			return
		}
		kind = dhcpv4.MessageTypeAck
	default:
		return
	}
	reply, err := dhcpv4.NewReplyFromRequest(req, dhcpv4.WithMessageType(kind), dhcpv4.WithYourIP(a.of(req.ClientHWAddr.String())),
		dhcpv4.WithServerIP(net.IPv4zero), dhcpv4.WithNetmask(net.CIDRMask(24, 32)), dhcpv4.WithLeaseTime(uint32(time.Hour/time.Second)),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(a.own.AsSlice())))
	if err != nil {
		return // the machine asks again
	}
	_, _ = conn.WriteTo(reply.ToBytes(), peer) // as above
}

func (a *addresses) of(mac string) net.IP {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, has := a.given[mac]; !has {
		a.given[mac], a.next = a.next, a.next.Next()
	}
	return a.given[mac].AsSlice()
}
