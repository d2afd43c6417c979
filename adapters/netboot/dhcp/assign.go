package dhcp

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// declinedFor is how long an address stays unused that a machine found in use.
const declinedFor = 10 * time.Minute

// Serve decides what a DHCP server says, and changes the leases accordingly. A machine without a boot entry gets an address
// if it has or had one here, so that its OS goes on after its boot entry is over; what to boot it is told only with an entry.
func (s Site) Serve(req *dhcpv4.DHCPv4, known bool, leases *Leases, now time.Time) Answer {
	if !isRequest(req) {
		return silence("not a request of a machine on Ethernet")
	}
	if relay := address(req.GatewayIPAddr); relay.IsValid() && !s.Network.Contains(relay) {
		return silence("relayed from another network")
	}
	mac := req.ClientHWAddr.String()
	if !known && !s.Unknown && !leases.Has(mac) {
		return silence("the machine has no boot entry and no lease")
	}
	known = known || s.Unknown
	switch kind := req.MessageType(); kind {
	case dhcpv4.MessageTypeDiscover:
		offered, ok := leases.Offer(mac, address(req.RequestedIPAddress()), now)
		if !ok {
			return silence("no address is free")
		}
		return s.assign(req, dhcpv4.MessageTypeOffer, offered, known)
	case dhcpv4.MessageTypeRequest:
		return s.request(req, known, leases, now)
	case dhcpv4.MessageTypeInform:
		packet := s.reply(req, dhcpv4.MessageTypeAck)
		packet.ClientIPAddr = req.ClientIPAddr
		s.configure(packet)
		return s.booted(packet, req, known)
	case dhcpv4.MessageTypeRelease:
		leases.Release(mac, address(req.ClientIPAddr), now)
		return silence("the machine gave its address back")
	case dhcpv4.MessageTypeDecline:
		if a := address(req.RequestedIPAddress()); leases.Decline(mac, a, now.Add(declinedFor)) {
			return silence("%s is in use by somebody else", a)
		}
		return silence("the machine declines what it was not given")
	default:
		return silence("%s is not for a server", kind)
	}
}

// request answers the four kinds of DHCPREQUEST (RFC 2131, 4.3.2).
func (s Site) request(req *dhcpv4.DHCPv4, known bool, leases *Leases, now time.Time) Answer {
	mac := req.ClientHWAddr.String()
	if server := address(req.ServerIdentifier()); server.IsValid() && server != s.Address {
		leases.Forget(mac)
		return silence("the machine took the offer of %s", server)
	}
	wants := address(req.RequestedIPAddress()) // selecting, or back after a restart
	if !wants.IsValid() {
		wants = address(req.ClientIPAddr) // renewing or rebinding
	}
	if !leases.Bind(mac, wants, now.Add(s.Lease), now) {
		packet := s.reply(req, dhcpv4.MessageTypeNak)
		packet.UpdateOption(dhcpv4.OptMessage("the address is not yours"))
		if address(req.GatewayIPAddr).IsValid() {
			packet.SetBroadcast() // the relay has no other way to a machine without an address
		}
		return Answer{packet, fmt.Sprintf("refused %s", wants)}
	}
	answer := s.assign(req, dhcpv4.MessageTypeAck, wants, known)
	answer.Packet.ClientIPAddr = req.ClientIPAddr
	return answer
}

// assign offers or gives an address.
func (s Site) assign(req *dhcpv4.DHCPv4, kind dhcpv4.MessageType, a netip.Addr, known bool) Answer {
	packet := s.reply(req, kind)
	packet.YourIPAddr = ip(a)
	packet.UpdateOption(dhcpv4.OptIPAddressLeaseTime(s.Lease))
	packet.UpdateOption(dhcpv4.OptRenewTimeValue(s.Lease / 2))
	packet.UpdateOption(dhcpv4.OptRebindingTimeValue(s.Lease * 7 / 8))
	s.configure(packet)
	return s.booted(packet, req, known)
}

// configure adds what a machine has to know of the network.
func (s Site) configure(packet *dhcpv4.DHCPv4) {
	packet.UpdateOption(dhcpv4.OptSubnetMask(net.CIDRMask(s.Network.Bits(), 32)))
	if len(s.Routers) > 0 {
		packet.UpdateOption(dhcpv4.OptRouter(ips(s.Routers)...))
	}
	if len(s.DNS) > 0 {
		packet.UpdateOption(dhcpv4.OptDNS(ips(s.DNS)...))
	}
}

// ipxeNoProxy is option 175 with the setting that spares iPXE the wait for ProxyDHCP offers.
var ipxeNoProxy = dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(175), []byte{176, 1, 1})

// booted adds what to boot, for firmware of a machine that may.
func (s Site) booted(packet, req *dhcpv4.DHCPv4, known bool) Answer {
	what := fmt.Sprintf("%s of %s", packet.MessageType(), packet.YourIPAddr)
	if !known {
		return Answer{packet, what}
	}
	firmware, ok := FirmwareOf(req)
	if !ok || !s.boot(packet, req, firmware) {
		return Answer{packet, what}
	}
	if firmware.Loader == IPXE {
		packet.UpdateOption(ipxeNoProxy)
	}
	return Answer{packet, fmt.Sprintf("%s to %s by %s: %s", what, firmware.Platform, firmware.Loader, fileOf(packet))}
}

func ips(addresses []netip.Addr) []net.IP {
	out := make([]net.IP, len(addresses))
	for i, a := range addresses {
		out[i] = ip(a)
	}
	return out
}
