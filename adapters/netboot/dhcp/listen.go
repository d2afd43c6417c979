package dhcp

import (
	"net"
	"net/netip"
	"syscall"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/better-compute/metal/domain/fault"
)

// bindTo has a socket hear and speak on one interface only.
func bindTo(link string) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var bound error
		if err := c.Control(func(fd uintptr) { bound = dhcpv4.BindToInterface(int(fd), link) }); err != nil {
			return err
		}
		return bound
	}
}

// NetworkOf gives the address of this host on an interface, with its network: the one that holds within, if that is valid.
func NetworkOf(link string, within netip.Addr) (netip.Prefix, error) {
	found, err := net.InterfaceByName(link)
	if err != nil {
		return netip.Prefix{}, fault.New(fault.InvalidConfig, "there is no interface %q", link)
	}
	addresses, err := found.Addrs()
	if err != nil {
		return netip.Prefix{}, fault.Wrap(err, fault.InvalidConfig, "the addresses of %s can't be read: %v", link, err)
	}
	for _, a := range addresses {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil || !prefix.Addr().Is4() {
			continue
		}
		if !within.IsValid() || prefix.Contains(within) {
			return prefix, nil
		}
	}
	if within.IsValid() {
		return netip.Prefix{}, fault.New(fault.InvalidConfig, "%s has no address on the network of %s", link, within)
	}
	return netip.Prefix{}, fault.New(fault.InvalidConfig, "%s has no IPv4 address", link)
}
