package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"golang.org/x/sys/unix"
)

// network gives the first port an address by DHCP. The lease outlives every test.
func network(ctx context.Context) error {
	name := ""
	err := await("a network port", func() error {
		ports, err := filepath.Glob("/sys/class/net/*/device")
		if err != nil || len(ports) == 0 {
			return errors.Join(errors.New("there is none"), err)
		}
		name = filepath.Base(filepath.Dir(ports[0]))
		return nil
	})
	if err != nil {
		return err
	}
	for _, port := range []string{"lo", name} {
		if err := withPort(port, func(fd int, r *unix.Ifreq) error {
			r.SetUint16(unix.IFF_UP)
			return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
		}); err != nil {
			return fmt.Errorf("switch %s on: %w", port, err)
		}
	}
	client, err := nclient4.New(name, nclient4.WithTimeout(2*time.Second), nclient4.WithRetry(15))
	if err != nil {
		return err
	}
	lease, err := client.Request(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("DHCP: %w", err), client.Close())
	}
	if err := client.Close(); err != nil {
		return err
	}
	fmt.Println("labos: address", lease.ACK.YourIPAddr)
	return configure(name, lease.ACK)
}

func configure(name string, ack *dhcpv4.DHCPv4) error {
	if err := withPort(name, func(fd int, r *unix.Ifreq) error {
		if err := r.SetInet4Addr(ack.YourIPAddr.To4()); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, unix.SIOCSIFADDR, r); err != nil {
			return err
		}
		if err := r.SetInet4Addr(net.IP(ack.SubnetMask()).To4()); err != nil {
			return err
		}
		return unix.IoctlIfreq(fd, unix.SIOCSIFNETMASK, r)
	}); err != nil {
		return fmt.Errorf("%s gets its address: %w", name, err)
	}
	if routers := ack.Router(); len(routers) > 0 {
		return defaultRoute(routers[0].To4())
	}
	return nil
}

func withPort(name string, do func(fd int, r *unix.Ifreq) error) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	r, err := unix.NewIfreq(name)
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	return errors.Join(do(fd, r), unix.Close(fd))
}

// defaultRoute asks the kernel, in its own words, to send everything else to a router.
func defaultRoute(router net.IP) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer os.NewFile(uintptr(fd), "netlink").Close() //nolint:errcheck // it was answered
	order := binary.NativeEndian
	var b []byte
	b = order.AppendUint32(b, 0) // the length, below
	b = order.AppendUint16(b, unix.RTM_NEWROUTE)
	b = order.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_CREATE|unix.NLM_F_ACK)
	b = order.AppendUint32(b, 1)
	b = order.AppendUint32(b, 0)
	b = append(b, unix.AF_INET, 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_BOOT, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST)
	b = order.AppendUint32(b, 0)
	b = order.AppendUint16(b, 8)
	b = order.AppendUint16(b, unix.RTA_GATEWAY)
	b = append(b, router...)
	order.PutUint32(b, uint32(len(b)))
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil || n < 20 {
		return errors.Join(errors.New("the kernel gave no answer"), err)
	}
	if code := int32(order.Uint32(answer[16:])); code != 0 {
		return fmt.Errorf("default route: %w", unix.Errno(-code))
	}
	return nil
}
