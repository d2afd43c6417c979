package blockdev

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/domain/node"
)

// lookEvery is how often a long erase is looked at.
const lookEvery = 2 * time.Second

// SecureErase erases all user data by the device's own means.
func (d *Device) SecureErase(ctx context.Context, progress disk.Progress) error {
	return d.erase(func(file *os.File) (string, error) {
		switch {
		case d.info.Transport == "nvme":
			return EraseNVMe(ctx, nvmeFile{file}, false, lookEvery, progress)
		case d.speaksATA(file):
			return EraseATA(ctx, sgFile{file}, lookEvery, progress)
		case d.info.Transport == "mmc":
			return node.BySecureDiscard, d.ranges(ctx, unix.BLKSECDISCARD, 0, d.info.Bytes)
		}
		return "", disk.ErrUnsupported
	})
}

// CryptoErase throws the device's encryption key away.
func (d *Device) CryptoErase(ctx context.Context, progress disk.Progress) error {
	return d.erase(func(file *os.File) (string, error) {
		switch {
		case d.info.Transport == "nvme":
			return EraseNVMe(ctx, nvmeFile{file}, true, lookEvery, progress)
		case d.speaksATA(file):
			return CryptoEraseATA(ctx, sgFile{file}, lookEvery, progress)
		}
		return "", disk.ErrUnsupported
	})
}

// erase has nothing of before in the kernel's cache when it ends.
func (d *Device) erase(how func(*os.File) (by string, err error)) error {
	file, _, err := d.opened()
	if err != nil {
		return err
	}
	by, err := how(file)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.by = by
	d.mu.Unlock()
	return d.forget(file)
}

// ErasedBy is what the latest erase was done by, as domain/node names it.
func (d *Device) ErasedBy() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.by
}

// Resume ends what a power cut left in the middle: a disk that is locked for its erase, a sanitize that goes on.
func (d *Device) Resume(ctx context.Context) error {
	file, _, err := d.opened()
	if err != nil {
		return err
	}
	switch {
	case d.info.Transport == "nvme":
		return ResumeNVMe(ctx, nvmeFile{file}, d.readable, lookEvery)
	case d.speaksATA(file):
		return ResumeATA(ctx, sgFile{file}, d.readable, lookEvery)
	}
	return nil
}

// Hidden tells what of the device nobody reaches.
func (d *Device) Hidden(context.Context) (string, error) {
	file, _, err := d.opened()
	if err != nil {
		return "", err
	}
	switch {
	case d.info.Transport == "nvme":
		return HiddenNVMe(nvmeFile{file})
	case d.speaksATA(file):
		return HiddenATA(sgFile{file})
	}
	return "", nil
}

// readable tells why nothing can be read.
func (d *Device) readable() error {
	_, err := d.ReadAt(make([]byte, 1), 0)
	return err
}

// speaksATA tells whether a disk takes ATA commands. One behind a controller for SAS does where that hands them on.
func (d *Device) speaksATA(file *os.File) bool {
	if !d.info.ATA || d.info.Transport == "sata" {
		return d.info.ATA
	}
	_, err := identify(sgFile{file})
	return err == nil
}
