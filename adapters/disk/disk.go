// Package disk wipes disks and reads them back, and writes images to them. It works on Device: the block devices of a Linux
// machine, or a simulated one whose bytes are in memory.
package disk

import (
	"context"
	"errors"
	"io"

	"github.com/better-compute/metal/domain/node"
)

// ErrUnsupported says that a device can't do what was asked; nothing was changed.
var ErrUnsupported = errors.New("the device does not support this")

// Info is what is known about a device.
type Info struct {
	node.Disk
	Rotational bool
	ReadOnly   bool
	Removable  bool   // such as a USB stick: reported, never wiped
	AgentMedia bool   // the agent itself runs from it: reported, never wiped
	Remote     bool   // on a network, such as iSCSI or Fibre Channel: others may use it; reported, never wiped
	Transport  string // nvme, sata, sas, usb, virtio
	ATA        bool   // it takes ATA commands, be it behind a controller for SAS
	BlockBytes int64  // of its sectors, as a partition table counts them; zero: not known
}

// Progress is told how much of a long piece of work is done, from 0 to 100.
type Progress func(percent float64, message string)

// Device is one disk.
type Device interface {
	Info() Info
	io.ReaderAt
	io.WriterAt
	// Sync returns once what was written is on the medium.
	Sync(ctx context.Context) error
	// Discard gives blocks back; zeroes tells whether the device then reads them as zeroes. ErrUnsupported.
	Discard(ctx context.Context, offset, length int64) (zeroes bool, err error)
	// SecureErase erases all user data by the device's own means (ATA security erase, NVMe format). ErrUnsupported.
	SecureErase(ctx context.Context, progress Progress) error
	// CryptoErase throws the device's encryption key away (NVMe format or sanitize). ErrUnsupported.
	CryptoErase(ctx context.Context, progress Progress) error
}

// eraser is a device that tells by what it has erased itself last, as domain/node names that.
type eraser interface {
	ErasedBy() string
}

// hider is a device that may hold more than anybody reaches.
type hider interface {
	// Hidden tells what that is, and what to do about it; empty: nothing.
	Hidden(ctx context.Context) (string, error)
}

// resumer is a device that may be in the middle of an erase which was cut short, by a power cut for instance.
type resumer interface {
	// Resume brings it to where it can be read and written again.
	Resume(ctx context.Context) error
}
