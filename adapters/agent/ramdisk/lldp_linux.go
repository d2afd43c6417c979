package ramdisk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lldpGroups are where neighbours speak to: the nearest bridge, the nearest one that is none of a provider's, the nearest
// that is of a customer.
var lldpGroups = [][6]byte{
	{0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e}, {0x01, 0x80, 0xc2, 0x00, 0x00, 0x03}, {0x01, 0x80, 0xc2, 0x00, 0x00, 0x00},
}

// lldpFrames opens a port for frames of LLDP alone.
func lldpFrames(name string) (*os.File, error) {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	// Of no protocol until it is bound to the port: it hears nothing of others.
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open a port for LLDP: %w", err)
	}
	file := os.NewFile(uintptr(socket), "lldp "+name)
	for _, group := range lldpGroups {
		ask := unix.PacketMreq{Ifindex: int32(link.Index), Type: unix.PACKET_MR_MULTICAST, Alen: uint16(len(group))}
		copy(ask.Address[:], group[:])
		if err := unix.SetsockoptPacketMreq(socket, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &ask); err != nil {
			return nil, errors.Join(fmt.Errorf("listen for LLDP: %w", err), file.Close())
		}
	}
	protocol := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, lldpEtherType))
	if err := unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: link.Index}); err != nil {
		return nil, errors.Join(fmt.Errorf("bind to %s: %w", name, err), file.Close())
	}
	return file, nil
}

// listen hears the neighbour at a port until ctx ends.
func (n *neighbors) listen(ctx context.Context, root fs.FS, name string) error {
	file, err := lldpFrames(name)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // nothing was written to it
	stopped := context.AfterFunc(ctx, func() { _ = file.SetReadDeadline(time.Unix(1, 0)) })
	defer stopped()
	buffer := make([]byte, 1<<14)
	for ctx.Err() == nil {
		n.link(name, readText(root, "sys/class/net/"+name+"/carrier") == "1")
		if err := file.SetReadDeadline(time.Now().Add(lookAgain)); err != nil {
			return err
		}
		if ctx.Err() != nil {
			break // it ended before the deadline was set anew
		}
		got, err := file.Read(buffer)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, unix.ENETDOWN):
			continue
		case err != nil:
			return err
		}
		n.frame(name, buffer[:got])
	}
	return nil
}
