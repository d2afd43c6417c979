package netns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// SwitchID names the bridge as a switch.
const SwitchID = "02:00:00:6c:ab:00"

// Announce says at the end of a cable every second, as a switch does, which of its ports it is, until ctx ends.
func Announce(ctx context.Context, name string) error {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	id, err := net.ParseMAC(SwitchID)
	if err != nil {
		return err
	}
	const etherType = 0x88cc
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("speak as a switch: %w", err)
	}
	frame := append([]byte{0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e}, id...)
	frame = binary.BigEndian.AppendUint16(frame, etherType)
	part := func(kind int, value string) {
		frame = binary.BigEndian.AppendUint16(frame, uint16(kind<<9|len(value)))
		frame = append(frame, value...)
	}
	part(1, "\x04"+string(id))
	part(2, "\x05"+name)
	part(3, "\x00\x78") // two minutes
	part(5, Bridge)
	part(0, "")
	to := &unix.SockaddrLinklayer{Ifindex: link.Index, Halen: 6}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		// With nobody at the other end there is no carrier, and nothing to say.
		if err := unix.Sendto(socket, frame, 0, to); err != nil && !errors.Is(err, unix.ENETDOWN) && !errors.Is(err, unix.ENOBUFS) {
			return errors.Join(fmt.Errorf("speak as a switch: %w", err), unix.Close(socket))
		}
		select {
		case <-ctx.Done():
			return unix.Close(socket)
		case <-tick.C:
		}
	}
}
