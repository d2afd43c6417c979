package disk

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/better-compute/metal/domain/fault"
)

// page is how much of a Memory comes and goes at once.
const page = 16 << 10

// Means is what a Memory can do beside reading and writing.
type Means struct {
	Discard        bool
	DiscardsToZero bool // a discarded block reads as zeroes
	SecureErase    bool
	CryptoErase    bool
}

// Faults makes a Memory behave as broken disks do. A nil hook breaks nothing.
type Faults struct {
	Read   func(offset, length int64) error
	Write  func(offset, length int64) error
	Erase  func() error // of secure and crypto erase
	Hidden string       // what of it nobody reaches
	// LyingDiscard and LyingErase say that it is done, and do nothing.
	LyingDiscard, LyingErase bool
}

// Memory is a Device whose bytes are in memory; it costs only what was written and is not zero. Safe for concurrent use.
type Memory struct {
	info  Info
	means Means

	mu     sync.RWMutex
	pages  map[int64]*[page]byte
	faults Faults
}

// NewMemory makes an empty device of info.Bytes bytes.
func NewMemory(info Info, means Means) *Memory {
	return &Memory{info: info, means: means, pages: map[int64]*[page]byte{}}
}

// SetFaults makes it break from now on; the zero value heals it.
func (m *Memory) SetFaults(f Faults) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = f
}

// Allocated is how many bytes it holds in memory.
func (m *Memory) Allocated() int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return int64(len(m.pages)) * page
}

// Info tells what the device is.
func (m *Memory) Info() Info { return m.info }

// ReadAt reads as a disk does: nothing beyond its end.
func (m *Memory) ReadAt(p []byte, offset int64) (int, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if offset < 0 || offset >= m.info.Bytes {
		return 0, io.EOF
	}
	if m.faults.Read != nil {
		if err := m.faults.Read(offset, int64(len(p))); err != nil {
			return 0, err
		}
	}
	var end error
	if rest := m.info.Bytes - offset; int64(len(p)) > rest {
		p, end = p[:rest], io.EOF
	}
	eachPage(p, offset, func(number, at int64, part []byte) {
		if stored := m.pages[number]; stored != nil {
			copy(part, stored[at:])
		} else {
			clear(part)
		}
	})
	return len(p), end
}

// WriteAt writes as a disk does: io.ErrShortWrite at its end, an error where it is read-only.
func (m *Memory) WriteAt(p []byte, offset int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.writable(offset, int64(len(p))); err != nil {
		return 0, err
	}
	var short error
	if rest := m.info.Bytes - offset; int64(len(p)) > rest {
		p, short = p[:max(rest, 0)], io.ErrShortWrite
	}
	eachPage(p, offset, m.store)
	return len(p), short
}

func (m *Memory) writable(offset, length int64) error {
	switch {
	case m.info.ReadOnly:
		return fault.New(fault.DriverError, "%s is read-only", m.info.Path)
	case offset < 0:
		return fmt.Errorf("offset %d of %s", offset, m.info.Path)
	case m.faults.Write != nil:
		return m.faults.Write(offset, length)
	}
	return nil
}

// store keeps one part of a page. A page of zeroes needs no memory.
func (m *Memory) store(number, at int64, part []byte) {
	stored := m.pages[number]
	if stored == nil {
		if isZero(part) {
			return
		}
		stored = new([page]byte)
		m.pages[number] = stored
	}
	copy(stored[at:], part)
	if len(part) == page && isZero(part) {
		delete(m.pages, number)
	}
}

// eachPage cuts p, which lies at offset, along the pages.
func eachPage(p []byte, offset int64, do func(number, at int64, part []byte)) {
	for len(p) > 0 {
		number, at := offset/page, offset%page
		n := min(int64(len(p)), page-at)
		do(number, at, p[:n])
		p, offset = p[n:], offset+n
	}
}

// WriteZeroes is quick: what is zero is not kept.
func (m *Memory) WriteZeroes(ctx context.Context, offset, length int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.writable(offset, length); err != nil {
		return err
	}
	if offset+length > m.info.Bytes {
		return io.ErrShortWrite
	}
	m.drop(offset, length)
	return ctx.Err()
}

// drop forgets the bytes of a range, page by page where that is cheaper than going through the range.
func (m *Memory) drop(offset, length int64) {
	end := offset + length
	for number, stored := range m.pages {
		from, to := max(offset, number*page), min(end, (number+1)*page)
		switch {
		case from >= to:
		case to-from == page:
			delete(m.pages, number)
		default:
			clear(stored[from-number*page : to-number*page])
		}
	}
}

// Sync has nothing to do.
func (m *Memory) Sync(ctx context.Context) error { return ctx.Err() }

// Discard forgets the range where the device can.
func (m *Memory) Discard(ctx context.Context, offset, length int64) (zeroes bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.means.Discard {
		return false, ErrUnsupported
	}
	if err := m.writable(offset, length); err != nil {
		return false, err
	}
	if m.means.DiscardsToZero && !m.faults.LyingDiscard {
		m.drop(offset, length)
	}
	return m.means.DiscardsToZero, ctx.Err()
}

// SecureErase empties the device where it can.
func (m *Memory) SecureErase(ctx context.Context, progress Progress) error {
	return m.erase(ctx, m.means.SecureErase, progress)
}

// CryptoErase empties the device where it can.
func (m *Memory) CryptoErase(ctx context.Context, progress Progress) error {
	return m.erase(ctx, m.means.CryptoErase, progress)
}

func (m *Memory) erase(ctx context.Context, can bool, progress Progress) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !can {
		return ErrUnsupported
	}
	if err := m.writable(0, m.info.Bytes); err != nil {
		return err
	}
	if m.faults.Erase != nil {
		if err := m.faults.Erase(); err != nil {
			return err
		}
	}
	if !m.faults.LyingErase {
		clear(m.pages)
	}
	progress(100, "")
	return ctx.Err()
}

// Hidden implements what devices with areas that nobody reaches do.
func (m *Memory) Hidden(context.Context) (string, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.faults.Hidden, nil
}
