// Package dhcp tells machines what they boot from the network: as a ProxyDHCP server beside the one that gives out
// addresses, or as a small DHCP server itself.
//
// What is answered is decided by pure functions from the packet, what is known of the machine, and the time; Server puts
// them on sockets.
package dhcp

import (
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/better-compute/metal/adapters/netboot"
)

// The ports of DHCP and of ProxyDHCP.
const (
	PortServer = 67
	PortClient = 68
	PortProxy  = 4011
)

// Site is what a site's machines are told.
type Site struct {
	Address netip.Addr // of this server, on the machines' network
	TFTP    netip.Addr // of the TFTP server; zero: there is none, and PXE firmware without iPXE is not answered
	URL     string     // of the boot server
	Loaders map[Platform]string
	Unknown bool // answer machines without a boot entry too: they get a script that goes on to the next boot device

	// Of the DHCP server only.
	Network netip.Prefix
	Routers []netip.Addr
	DNS     []netip.Addr
	Lease   time.Duration
}

// loaderNames are the iPXE programs by platform, the first one that there is counts. Distributions and boot.ipxe.org name
// those for arm64 in various ways.
var loaderNames = map[Platform][]string{
	BIOS:  {"undionly.kpxe"},
	X8664: {"snponly.efi", "x86_64-efi/snponly.efi", "ipxe-x86_64.efi", "ipxe.efi"},
	ARM64: {"snponly-arm64.efi", "arm64-efi/snponly.efi", "arm64/snponly.efi", "ipxe-arm64.efi", "arm64-efi/ipxe.efi"},
}

// FindLoaders looks for the iPXE program of each platform in a directory.
func FindLoaders(dir fs.FS) map[Platform]string {
	out := map[Platform]string{}
	for platform, names := range loaderNames {
		for _, name := range names {
			if info, err := fs.Stat(dir, name); err == nil && info.Mode().IsRegular() {
				out[platform] = name
				break
			}
		}
	}
	return out
}

// Answer is what becomes of a packet.
type Answer struct {
	Packet *dhcpv4.DHCPv4 // nil: none, Why tells the reason
	Why    string
}

func silence(why string, args ...any) Answer { return Answer{Why: fmt.Sprintf(why, args...)} }

// Proxy decides what a ProxyDHCP server says on one of its ports. known is whether the machine has a boot entry.
func (s Site) Proxy(req *dhcpv4.DHCPv4, port int, known bool) Answer {
	if !isRequest(req) {
		return silence("not a request of a machine on Ethernet")
	}
	kind := req.MessageType()
	var reply dhcpv4.MessageType
	switch {
	case port == PortServer && kind == dhcpv4.MessageTypeDiscover:
		reply = dhcpv4.MessageTypeOffer
	case port == PortProxy && (kind == dhcpv4.MessageTypeRequest || kind == dhcpv4.MessageTypeInform):
		reply = dhcpv4.MessageTypeAck
	default:
		return silence("%s on port %d is for the DHCP server", kind, port)
	}
	if !known && !s.Unknown {
		return silence("the machine has no boot entry")
	}
	firmware, ok := FirmwareOf(req)
	if !ok {
		return silence("not firmware that is served")
	}
	packet := s.reply(req, reply)
	if !s.boot(packet, req, firmware) {
		return silence("there is nothing to boot for %s by %s here", firmware.Platform, firmware.Loader)
	}
	return Answer{packet, fmt.Sprintf("%s to %s by %s: %s", reply, firmware.Platform, firmware.Loader, fileOf(packet))}
}

// isRequest tells whether a packet is what a machine sends that can be answered.
func isRequest(req *dhcpv4.DHCPv4) bool {
	return req.OpCode == dhcpv4.OpcodeBootRequest && req.HWType == iana.HWTypeEthernet && len(req.ClientHWAddr) == 6 &&
		req.ClientHWAddr[0]&1 == 0 // a group is no machine
}

// echoed are the options of a request that its answer repeats: client (RFC 6842), relay (RFC 3046), machine (RFC 4578).
var echoed = []dhcpv4.OptionCode{
	dhcpv4.OptionClientIdentifier, dhcpv4.OptionRelayAgentInformation, dhcpv4.OptionClientMachineIdentifier,
}

// reply begins an answer.
func (s Site) reply(req *dhcpv4.DHCPv4, kind dhcpv4.MessageType) *dhcpv4.DHCPv4 {
	packet := &dhcpv4.DHCPv4{
		OpCode: dhcpv4.OpcodeBootReply, HWType: req.HWType, TransactionID: req.TransactionID, Flags: req.Flags,
		ClientIPAddr: net.IPv4zero, YourIPAddr: net.IPv4zero, ServerIPAddr: net.IPv4zero,
		GatewayIPAddr: req.GatewayIPAddr, ClientHWAddr: req.ClientHWAddr, Options: dhcpv4.Options{},
	}
	packet.UpdateOption(dhcpv4.OptMessageType(kind))
	packet.UpdateOption(dhcpv4.OptServerIdentifier(ip(s.Address)))
	for _, code := range echoed {
		if value := req.Options.Get(code); len(value) > 0 {
			packet.UpdateOption(dhcpv4.OptGeneric(code, value))
		}
	}
	return packet
}

// fileMost is what the header's field for the file name holds, with the zero that ends it.
const fileMost = 127

// boot adds what the firmware fetches next. It is not ok if there is nothing for it here.
func (s Site) boot(packet, req *dhcpv4.DHCPv4, firmware Firmware) bool {
	loader, found := s.Loaders[firmware.Platform]
	class, server := classPXE, s.Address
	var file string
	switch firmware.Loader {
	case IPXE:
		file = netboot.ScriptURL(s.URL, req.ClientHWAddr.String())
	case HTTP:
		if !found {
			return false
		}
		class, file = classHTTP, netboot.LoaderURL(s.URL, loader)
	case PXE:
		if !found || !s.TFTP.IsValid() {
			return false
		}
		server, file = s.TFTP, loader
	}
	packet.ServerIPAddr = ip(server)
	packet.UpdateOption(dhcpv4.OptClassIdentifier(class))
	if class == classPXE {
		packet.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionVendorSpecificInformation, vendorOptions(req)))
	}
	if len(file) <= fileMost {
		packet.BootFileName = file
	}
	// PXE ROMs read the header; some of them take what follows option 67 for a part of the name.
	if firmware.Loader != PXE {
		packet.UpdateOption(dhcpv4.OptBootFileName(file))
	}
	return true
}

// The options of PXE within option 43, and the bit that has firmware fetch the file which this answer names, without a
// search for boot servers and without a menu.
const (
	pxeDiscoveryControl = 6
	pxeBootItem         = 71
	pxeEnd              = 255
	useThisFile         = 8
)

// vendorOptions writes option 43. A request that chose a boot item has it repeated, as PXE 2.1 demands.
func vendorOptions(req *dhcpv4.DHCPv4) []byte {
	out := []byte{pxeDiscoveryControl, 1, useThisFile}
	if item := subOption(req.Options.Get(dhcpv4.OptionVendorSpecificInformation), pxeBootItem); len(item) == 4 {
		out = append(append(out, pxeBootItem, 4), item...)
	}
	return append(out, pxeEnd)
}

// subOption finds one option within another.
func subOption(data []byte, code byte) []byte {
	for len(data) >= 2 && data[0] != pxeEnd {
		if data[0] == 0 { // padding
			data = data[1:]
			continue
		}
		size := int(data[1])
		if len(data) < 2+size {
			return nil
		}
		if data[0] == code {
			return data[2 : 2+size]
		}
		data = data[2+size:]
	}
	return nil
}

func fileOf(packet *dhcpv4.DHCPv4) string {
	if name := packet.BootFileNameOption(); name != "" {
		return name
	}
	return packet.BootFileName
}

func ip(a netip.Addr) net.IP { return net.IP(a.AsSlice()) }

// address reads an IPv4 address of a packet; zero if there is none.
func address(a net.IP) netip.Addr {
	out, ok := netip.AddrFromSlice(a.To4())
	if !ok || out.IsUnspecified() {
		return netip.Addr{}
	}
	return out
}
