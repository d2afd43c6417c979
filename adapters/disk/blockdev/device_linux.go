package blockdev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/better-compute/metal/adapters/disk"
)

// Device is a block device. It is opened at its first use. Safe for concurrent use.
type Device struct {
	info disk.Info
	root fs.FS // where Scan found it; nil: it is a file

	mu     sync.Mutex
	file   *os.File // through the kernel's cache
	direct *os.File // from the medium; nil: the file system has no such way
	align  int64    // of what is read from the medium
	by     string   // what the latest erase was done by
}

var _ disk.Device = (*Device)(nil)

// Open gives the device at info.Path, as Scan found it below root. It may be a file: then there is no root.
func Open(root fs.FS, info disk.Info) *Device { return &Device{info: info, root: root} }

// Close gives back what was opened; the next use opens anew.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := errors.Join(closeFile(d.file), closeFile(d.direct))
	d.file, d.direct = nil, nil
	return err
}

func closeFile(f *os.File) error {
	if f == nil {
		return nil
	}
	return f.Close()
}

// Info tells what the device is.
func (d *Device) Info() disk.Info { return d.info }

// opened gives the device's files.
func (d *Device) opened() (file, direct *os.File, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.file != nil {
		return d.file, d.direct, nil
	}
	flags := os.O_RDWR
	if d.info.ReadOnly {
		flags = os.O_RDONLY
	}
	if file, err = os.OpenFile(d.info.Path, flags, 0); err != nil {
		return nil, nil, err
	}
	if err := d.isTheSame(file); err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	direct, err = os.OpenFile(d.info.Path, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil && !errors.Is(err, unix.EINVAL) {
		return nil, nil, errors.Join(err, file.Close())
	}
	if err != nil { // a file system without such a way
		direct = nil
	}
	d.align = 4096
	if size, err := unix.IoctlGetInt(int(file.Fd()), unix.BLKSSZGET); err == nil && size > 0 {
		d.align = int64(size)
	}
	d.file, d.direct = file, direct
	return file, direct, nil
}

// isTheSame refuses what is not as large as what was looked at, or tells other names of itself: another disk may have got the
// path meanwhile, and of a disk that has grown the end would be left as it is. No disk gets the path of one that is open, so that
// what is told now is of the one that was opened.
func (d *Device) isTheSame(file *os.File) error {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if size != d.info.Bytes {
		return fmt.Errorf("%s has %d bytes, and had %d: it is not the disk that was looked at", d.info.Path, size, d.info.Bytes)
	}
	if d.root == nil {
		return nil
	}
	name := path.Base(d.info.Path)
	now := sysfs{d.root}.names(name, "sys/block/"+name)
	if now.WWN != d.info.WWN || now.Model != d.info.Model || now.Serial != d.info.Serial {
		return fmt.Errorf("%s is %s now, and was %s: it is not the disk that was looked at", d.info.Path, now.Key(), d.info.Key())
	}
	return nil
}

// ReadAt reads from the medium, not from what the kernel remembers of it, wherever that can be had.
func (d *Device) ReadAt(p []byte, offset int64) (int, error) {
	file, direct, err := d.opened()
	if err != nil {
		return 0, err
	}
	if offset < 0 || offset >= d.info.Bytes {
		return 0, io.EOF
	}
	wanted := min(int64(len(p)), d.info.Bytes-offset)
	read := func() (int, error) { return file.ReadAt(p[:wanted], offset) }
	if direct != nil {
		read = func() (int, error) { return d.readDirect(direct, p[:wanted], offset) }
	}
	n, err := read()
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// bounceMost is how much is read from the medium at once.
const bounceMost = 1 << 20

// readDirect reads whole blocks into memory that begins at a whole page, as the kernel wants it.
func (d *Device) readDirect(from *os.File, p []byte, offset int64) (n int, err error) {
	for n < len(p) {
		at := offset + int64(n)
		begin := at / d.align * d.align
		length := (at - begin + int64(len(p)-n) + d.align - 1) / d.align * d.align
		buffer := aligned(min(length, bounceMost))
		got, err := from.ReadAt(buffer, begin)
		useful := max(int64(got)-(at-begin), 0)
		copied := copy(p[n:], buffer[min(at-begin, int64(got)):][:useful])
		n += copied
		if n == len(p) {
			return n, nil
		}
		if err != nil || copied == 0 {
			return n, errors.Join(err, io.ErrUnexpectedEOF)
		}
	}
	return n, nil
}

// aligned gives memory that begins at a whole page.
func aligned(length int64) []byte {
	const pageBytes = 4096
	all := make([]byte, length+pageBytes)
	skip := (pageBytes - int64(uintptr(unsafe.Pointer(&all[0]))%pageBytes)) % pageBytes //nolint:gosec // the address is only looked at
	return all[skip:][:length]
}

// WriteAt writes through the kernel's cache; Sync makes it last.
func (d *Device) WriteAt(p []byte, offset int64) (int, error) {
	file, _, err := d.opened()
	if err != nil {
		return 0, err
	}
	room := max(d.info.Bytes-offset, 0)
	if int64(len(p)) <= room {
		return file.WriteAt(p, offset)
	}
	n, err := file.WriteAt(p[:room], offset)
	return n, errors.Join(err, io.ErrShortWrite)
}

// Sync writes out what the kernel holds back, has the device write out its own cache, and forgets what was read.
func (d *Device) Sync(context.Context) error {
	file, _, err := d.opened()
	if err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return d.forget(file)
}

// forget drops what the kernel remembers of the device.
func (d *Device) forget(file *os.File) error {
	_, err := ioctl(file, unix.BLKFLSBUF, nil)
	if errors.Is(err, unix.ENOTTY) { // a file
		return unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED)
	}
	return err
}

// step is how much the kernel is asked to empty at once: it does not answer before it is done.
const step = 256 << 20

// ranges asks for one ioctl over a range, piece by piece.
func (d *Device) ranges(ctx context.Context, request uintptr, offset, length int64) error {
	file, _, err := d.opened()
	if err != nil {
		return err
	}
	for length > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(length, step)
		piece := [2]uint64{uint64(offset), uint64(n)}
		if _, err := ioctl(file, request, unsafe.Pointer(&piece)); err != nil { //nolint:gosec // as the kernel wants it
			return unsupported(err)
		}
		offset, length = offset+n, length-n
	}
	return nil
}

// unsupported recognises what a device, or a file in its place, answers where it can't.
func unsupported(err error) error {
	for _, e := range []error{unix.EOPNOTSUPP, unix.ENOTTY, unix.ENOSYS} {
		if errors.Is(err, e) {
			return disk.ErrUnsupported
		}
	}
	return err
}

// Discard gives blocks back. What they read as is not relied upon: the kernel does not tell any more.
func (d *Device) Discard(ctx context.Context, offset, length int64) (zeroes bool, err error) {
	begin := (offset + d.blockBytes() - 1) / d.blockBytes() * d.blockBytes()
	length = (length - (begin - offset)) / d.blockBytes() * d.blockBytes()
	return false, d.ranges(ctx, unix.BLKDISCARD, begin, length)
}

func (d *Device) blockBytes() int64 {
	if _, _, err := d.opened(); err != nil {
		return 4096
	}
	return d.align
}

// WriteZeroes writes zeroes, by the device's own means where it has some.
func (d *Device) WriteZeroes(ctx context.Context, offset, length int64) error {
	if offset%d.blockBytes() == 0 && length%d.blockBytes() == 0 {
		if err := d.ranges(ctx, unix.BLKZEROOUT, offset, length); !errors.Is(err, disk.ErrUnsupported) {
			return err
		}
	}
	empty := make([]byte, min(length, bounceMost))
	for length > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := d.WriteAt(empty[:min(length, int64(len(empty)))], offset)
		if err != nil {
			return err
		}
		offset, length = offset+int64(n), length-int64(n)
	}
	return nil
}

// Partitions has the kernel read the partition table anew, and gives the device files of the partitions.
func (d *Device) Partitions(root fs.FS) ([]string, error) {
	file, _, err := d.opened()
	if err != nil {
		return nil, err
	}
	if _, err := ioctl(file, unix.BLKRRPART, nil); err != nil {
		return nil, err
	}
	name := strings.TrimPrefix(d.info.Path, "/dev/")
	s := sysfs{root}
	var out []string
	for _, part := range s.list("sys/block/" + name) {
		if strings.HasPrefix(part, name) && s.exists("sys/block/"+name+"/"+part+"/partition") {
			out = append(out, "/dev/"+part)
		}
	}
	return out, nil
}

// ioctl asks the kernel about an open device.
func ioctl(file *os.File, request uintptr, argument unsafe.Pointer) (result uintptr, err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var errno syscall.Errno
	err = raw.Control(func(fd uintptr) {
		for {
			if result, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(argument)); errno != unix.EINTR {
				return
			}
		}
	})
	if err != nil {
		return 0, err
	}
	if errno != 0 {
		return 0, errno
	}
	return result, nil
}
