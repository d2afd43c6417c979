package sim

import (
	"context"
	"errors"
	"sync"

	"github.com/better-compute/metal/adapters/disk"
)

// errPowerLost is what a program gets whose machine has lost power.
var errPowerLost = errors.New("the machine has lost power")

// drive is one disk of a machine, with its faults.
type drive struct {
	*disk.Memory

	mu      sync.Mutex
	garbage bool // what is read is not what was written
	faults  disk.Faults
}

func newDrive(d DiskSpec) *drive { return &drive{Memory: disk.NewMemory(d.Info, d.Means)} }

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
		n, err = p.Memory.ReadAt(b, offset)
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
		n, err = p.Memory.WriteAt(b, offset)
		return nil
	}); broken != nil {
		return 0, broken
	}
	return n, err
}

func (p port) WriteZeroes(ctx context.Context, offset, length int64) error {
	return p.on.with(func() error { return p.Memory.WriteZeroes(ctx, offset, length) })
}

func (p port) Sync(ctx context.Context) error {
	return p.on.with(func() error { return p.Memory.Sync(ctx) })
}

func (p port) Discard(ctx context.Context, offset, length int64) (zeroes bool, err error) {
	broken := p.on.with(func() error {
		zeroes, err = p.Memory.Discard(ctx, offset, length)
		return nil
	})
	return zeroes, errors.Join(broken, err)
}

func (p port) SecureErase(ctx context.Context, progress disk.Progress) error {
	return p.on.with(func() error { return p.Memory.SecureErase(ctx, progress) })
}

func (p port) CryptoErase(ctx context.Context, progress disk.Progress) error {
	return p.on.with(func() error { return p.Memory.CryptoErase(ctx, progress) })
}
