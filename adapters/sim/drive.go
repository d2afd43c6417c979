package sim

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/better-compute/metal/adapters/disk"
)

// errPowerLost is what a program gets whose machine has lost power.
var errPowerLost = errors.New("the machine has lost power")

// drive is one disk of a machine, with its faults.
type drive struct {
	medium

	mu      sync.Mutex
	garbage bool // what is read is not what was written
	faults  disk.Faults
}

// newDrive keeps a disk's bytes in a file of a directory, or in memory where there is no directory.
func newDrive(dir, machine string, number int, d DiskSpec) (*drive, error) {
	if dir == "" {
		return &drive{medium: disk.NewMemory(d.Info, d.Means)}, nil
	}
	file, err := openFileDisk(dir, machine, number, d)
	if err != nil {
		return nil, err
	}
	return &drive{medium: file}, nil
}

// close ends the use of a file.
func (d *drive) close() error {
	if c, ok := d.medium.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

func (d *drive) isGarbage() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.garbage
}

// current is the power that a program runs on. Work on a disk holds it, so that a cut falls between two operations and
// nothing reaches a disk after it.
type current struct {
	mu   sync.RWMutex
	lost bool
}

func (c *current) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = true
}

// with does something while there is power.
func (c *current) with(do func() error) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.lost {
		return errPowerLost
	}
	return do()
}

// port is a drive as the program of one boot reaches it.
type port struct {
	*drive
	on *current
}

func (p port) ReadAt(b []byte, offset int64) (n int, err error) {
	broken := p.on.with(func() error {
		n, err = p.medium.ReadAt(b, offset)
		return nil
	})
	if broken != nil {
		return 0, broken
	}
	if p.isGarbage() {
		for i := range b[:n] {
			b[i] ^= byte(offset+int64(i))*31 ^ 0x5a
		}
	}
	return n, err
}

func (p port) WriteAt(b []byte, offset int64) (n int, err error) {
	if broken := p.on.with(func() error {
		n, err = p.medium.WriteAt(b, offset)
		return nil
	}); broken != nil {
		return 0, broken
	}
	return n, err
}

func (p port) WriteZeroes(ctx context.Context, offset, length int64) error {
	return p.on.with(func() error { return p.medium.WriteZeroes(ctx, offset, length) })
}

func (p port) Sync(ctx context.Context) error {
	return p.on.with(func() error { return p.medium.Sync(ctx) })
}

func (p port) Discard(ctx context.Context, offset, length int64) (zeroes bool, err error) {
	broken := p.on.with(func() error {
		zeroes, err = p.medium.Discard(ctx, offset, length)
		return nil
	})
	return zeroes, errors.Join(broken, err)
}

func (p port) SecureErase(ctx context.Context, progress disk.Progress) error {
	return p.erase(progress, func(quiet disk.Progress) error { return p.medium.SecureErase(ctx, quiet) })
}

func (p port) CryptoErase(ctx context.Context, progress disk.Progress) error {
	return p.erase(progress, func(quiet disk.Progress) error { return p.medium.CryptoErase(ctx, quiet) })
}

// erase tells how far it is only once the power is let go of: whoever listens may take his time.
func (p port) erase(progress disk.Progress, erase func(quiet disk.Progress) error) error {
	if err := p.on.with(func() error { return erase(func(float64, string) {}) }); err != nil {
		return err
	}
	progress(100, "")
	return nil
}
