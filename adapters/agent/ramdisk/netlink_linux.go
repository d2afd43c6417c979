package ramdisk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// linkUp switches a port on.
func linkUp(name string) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket) //nolint:errcheck // nothing was written to it
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(socket, unix.SIOCGIFFLAGS, request); err != nil {
		return err
	}
	request.SetUint16(request.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
}

func addAddress(index int, address netip.Prefix) error {
	return addressMessage(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, index, address)
}

func deleteAddress(index int, address netip.Prefix) error {
	return addressMessage(unix.RTM_DELADDR, 0, index, address)
}

func addressMessage(kind, flags uint16, index int, address netip.Prefix) error {
	family := byte(unix.AF_INET)
	if address.Addr().Is6() {
		family = unix.AF_INET6
	}
	body := []byte{family, byte(address.Bits()), 0, unix.RT_SCOPE_UNIVERSE}
	body = binary.NativeEndian.AppendUint32(body, uint32(index))
	body = attribute(body, unix.IFA_LOCAL, address.Addr().AsSlice())
	body = attribute(body, unix.IFA_ADDRESS, address.Addr().AsSlice())
	if err := netlink(kind, flags, body); err != nil {
		return fmt.Errorf("address %s: %w", address, err)
	}
	return nil
}

// addRoute adds a route. Ports have different metrics, so that each may have its own default route; the lowest counts.
func addRoute(index, metric int, r route) error {
	scope, flags := byte(unix.RT_SCOPE_LINK), uint32(0)
	if r.via.IsValid() && !r.via.IsUnspecified() {
		scope, flags = unix.RT_SCOPE_UNIVERSE, unix.RTNH_F_ONLINK // a router outside the port's network is one all the same
	}
	body := []byte{unix.AF_INET, byte(r.to.Bits()), 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_DHCP, scope, unix.RTN_UNICAST}
	body = binary.NativeEndian.AppendUint32(body, flags)
	if r.to.Bits() > 0 {
		body = attribute(body, unix.RTA_DST, r.to.Masked().Addr().AsSlice())
	}
	if scope == unix.RT_SCOPE_UNIVERSE {
		body = attribute(body, unix.RTA_GATEWAY, r.via.AsSlice())
	}
	body = attribute(body, unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, uint32(index)))
	body = attribute(body, unix.RTA_PRIORITY, binary.NativeEndian.AppendUint32(nil, uint32(metric)))
	if err := netlink(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, body); err != nil {
		return fmt.Errorf("route to %s: %w", r.to, err)
	}
	return nil
}

func attribute(body []byte, kind uint16, value []byte) []byte {
	body = binary.NativeEndian.AppendUint16(body, uint16(4+len(value)))
	body = binary.NativeEndian.AppendUint16(body, kind)
	body = append(body, value...)
	for len(body)%4 != 0 {
		body = append(body, 0)
	}
	return body
}

// netlink sends the kernel one message about its network and waits for its answer.
func netlink(kind, flags uint16, body []byte) error {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(socket) //nolint:errcheck // what was sent has been answered
	message := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	message = binary.NativeEndian.AppendUint16(message, kind)
	message = binary.NativeEndian.AppendUint16(message, flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	message = append(message, make([]byte, 8)...) // sequence and sender: there is one message only
	message = append(message, body...)
	if err := unix.Sendto(socket, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(socket, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return errors.New("the kernel's answer can't be understood")
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}
