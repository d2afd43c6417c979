package sim

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/domain/fault"
)

// medium holds the bytes of a drive: in memory or in a file.
type medium interface {
	disk.Device
	WriteZeroes(ctx context.Context, offset, length int64) error
	SetFaults(f disk.Faults)
	Allocated() int64
}

// chunk is how much of a file is looked at at once where it is made zero.
const chunk = 256 << 10

var zeroes = make([]byte, chunk)

// fileDisk is a drive whose bytes are in a sparse file: they outlive the process, however it ends. It can do what its means
// say, as disk.Memory does.
type fileDisk struct {
	info  disk.Info
	means disk.Means
	file  *os.File

	mu     sync.RWMutex
	faults disk.Faults
}

// openFileDisk opens the file of a drive, or makes it. A drive of another size is refused: it would be cut.
func openFileDisk(dir, machine string, number int, spec DiskSpec) (*fileDisk, error) {
	name := filepath.Join(dir, strings.ReplaceAll(machine, string(filepath.Separator), "_")+fmt.Sprintf("-disk%d.raw", number))
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidConfig, "can't open the disk %s", name).
			WithRemedy("name a directory that can be written")
	}
	info, err := file.Stat()
	if err == nil && info.Size() != spec.Info.Bytes && info.Size() != 0 {
		err = fault.New(fault.InvalidConfig, "%s has %d bytes, the machine's disk %d", name, info.Size(), spec.Info.Bytes).
			WithRemedy("use another directory, or the same disks as before")
	}
	if err == nil {
		err = file.Truncate(spec.Info.Bytes)
	}
	if err != nil {
		_ = file.Close() // nothing was written
		return nil, err
	}
	return &fileDisk{info: spec.Info, means: spec.Means, file: file}, nil
}

func (d *fileDisk) Info() disk.Info { return d.info }

func (d *fileDisk) SetFaults(f disk.Faults) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = f
}

func (d *fileDisk) ReadAt(b []byte, offset int64) (int, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.faults.Read != nil {
		if err := d.faults.Read(offset, int64(len(b))); err != nil {
			return 0, err
		}
	}
	return d.file.ReadAt(b, offset)
}

func (d *fileDisk) WriteAt(b []byte, offset int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.writable(offset, int64(len(b))); err != nil {
		return 0, err
	}
	var short error
	if rest := d.info.Bytes - offset; int64(len(b)) > rest {
		b, short = b[:max(rest, 0)], io.ErrShortWrite
	}
	n, err := d.file.WriteAt(b, offset)
	if err != nil {
		return n, err
	}
	return n, short
}

func (d *fileDisk) writable(offset, length int64) error {
	switch {
	case d.info.ReadOnly:
		return fault.New(fault.DriverError, "%s is read-only", d.info.Path)
	case d.faults.Write != nil:
		return d.faults.Write(offset, length)
	}
	return nil
}

func (d *fileDisk) WriteZeroes(ctx context.Context, offset, length int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.writable(offset, length); err != nil {
		return err
	}
	if offset+length > d.info.Bytes {
		return io.ErrShortWrite
	}
	return d.clear(ctx, offset, length)
}

// clear writes zeroes where there are none: what was never written stays a hole. The lock is held.
func (d *fileDisk) clear(ctx context.Context, offset, length int64) error {
	b := make([]byte, chunk)
	for end := offset + length; offset < end; offset += chunk {
		if err := ctx.Err(); err != nil {
			return err
		}
		part := b[:min(chunk, end-offset)]
		if _, err := d.file.ReadAt(part, offset); err != nil {
			return err
		}
		if bytes.Equal(part, zeroes[:len(part)]) {
			continue
		}
		if _, err := d.file.WriteAt(zeroes[:len(part)], offset); err != nil {
			return err
		}
	}
	return nil
}

// Sync leaves it to the system: what is simulated is the machine's power, not this one's.
func (d *fileDisk) Sync(ctx context.Context) error { return ctx.Err() }

func (d *fileDisk) Discard(ctx context.Context, offset, length int64) (zeroes bool, err error) {
	if !d.means.Discard {
		return false, disk.ErrUnsupported
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.writable(offset, length); err != nil {
		return false, err
	}
	if d.means.DiscardsToZero && !d.faults.LyingDiscard {
		err = d.clear(ctx, offset, length)
	}
	return d.means.DiscardsToZero, err
}

func (d *fileDisk) SecureErase(ctx context.Context, progress disk.Progress) error {
	return d.erase(ctx, d.means.SecureErase, progress)
}

func (d *fileDisk) CryptoErase(ctx context.Context, progress disk.Progress) error {
	return d.erase(ctx, d.means.CryptoErase, progress)
}

func (d *fileDisk) erase(ctx context.Context, can bool, progress disk.Progress) error {
	if !can {
		return disk.ErrUnsupported
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.writable(0, d.info.Bytes); err != nil {
		return err
	}
	if d.faults.Erase != nil {
		if err := d.faults.Erase(); err != nil {
			return err
		}
	}
	if !d.faults.LyingErase {
		if err := d.clear(ctx, 0, d.info.Bytes); err != nil {
			return err
		}
	}
	progress(100, "")
	return ctx.Err()
}

// Allocated counts what is not zero, by chunks.
func (d *fileDisk) Allocated() (n int64) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	b := make([]byte, chunk)
	for offset := int64(0); offset < d.info.Bytes; offset += chunk {
		part := b[:min(chunk, d.info.Bytes-offset)]
		if _, err := d.file.ReadAt(part, offset); err == nil && !bytes.Equal(part, zeroes[:len(part)]) {
			n += int64(len(part))
		}
	}
	return n
}

func (d *fileDisk) Close() error { return d.file.Close() }
