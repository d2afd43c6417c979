package disk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/better-compute/metal/domain/node"
)

// atOnce is how many disks are worked on at the same time.
const atOnce = 8

// Wiping is how disks are emptied.
type Wiping struct {
	Method node.WipeMethod
	Seed   uint64 // chooses the sampled blocks
	Shared bool   // also disks with a filesystem that other machines may share; false: they are not touched
}

// Wipe empties every device and reads it back. It accounts for each of them, in their order: a disk that is left alone, or
// could not be emptied, has the method none or no read-back, and a reason.
//
// Only the end of ctx is an error; the disks that were done by then are told all the same.
func Wipe(ctx context.Context, devices []Device, as Wiping, progress Progress) ([]node.WipedDisk, error) {
	out := make([]node.WipedDisk, len(devices))
	total, byName := newTotal(len(devices), progress), turnsOn(devices)
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, d := range devices {
		group.Go(func() error {
			defer byName.take(d)()
			part := total.part(i, d.Info().Path)
			one := as
			one.Seed += uint64(i)
			out[i] = wipeOne(ctx, d, one, part)
			part(100, "") // also of one that is left alone
			return nil
		})
	}
	_ = group.Wait() // none of them fails: what went wrong is the disk's reason
	return out, ctx.Err()
}

// wipeOne never fails: what went wrong is the disk's reason.
func wipeOne(ctx context.Context, d Device, as Wiping, progress Progress) node.WipedDisk {
	info := d.Info()
	out := node.WipedDisk{Disk: info.Disk, Method: node.WipeNone}
	if out.Reason = info.Reported(); out.Reason != "" {
		return out
	}
	if out.Reason = prepare(ctx, d, as.Shared); out.Reason != "" {
		return out
	}
	w := wiping{
		device: d, size: info.Bytes, progress: progress, sampled: samples(info.Bytes, as.Seed), seed: as.Seed, traces: tracesOf(d),
	}
	if err := w.run(ctx, as.Method); err != nil {
		out.Reason = err.Error()
		return out
	}
	out.Method, out.By = as.Method, w.by
	if err := w.readBack(ctx); err != nil {
		out.Reason = err.Error()
		return out
	}
	if out.Reason = hiddenOf(ctx, d); out.Reason != "" {
		return out
	}
	out.ReadBack = true
	return out
}

// hiddenOf is why a disk is not empty although all of it that can be reached is.
func hiddenOf(ctx context.Context, d Device) string {
	h, may := d.(hider)
	if !may {
		return ""
	}
	what, err := h.Hidden(ctx)
	if err != nil {
		return "what can be reached is empty; whether there is more is not known: " + err.Error()
	}
	return what
}

// wiping is one disk on its way.
type wiping struct {
	device   Device
	size     int64
	progress Progress
	seed     uint64
	sampled  []span
	traces   [][]span // of what was on it; see tracesOf

	by      string // what emptied it
	emptied []span // what was written as zeroes, and is read back
	buffer  []byte // of the latest read
}

func (w *wiping) run(ctx context.Context, method node.WipeMethod) error {
	switch method {
	case node.WipeQuick:
		return w.quick(ctx)
	case node.WipeSecureErase:
		err := w.erase(ctx, w.device.SecureErase)
		if errors.Is(err, ErrUnsupported) {
			return w.overwrite(ctx)
		}
		return err
	case node.WipeCryptoErase:
		err := w.erase(ctx, w.device.CryptoErase)
		if errors.Is(err, ErrUnsupported) {
			return errors.New("the disk can't throw a key away, and nothing weaker was done")
		}
		return err
	case node.WipeNone:
	}
	return fmt.Errorf("there is no wipe method %q", method)
}

// quick empties the marks, and gives all blocks back where the device then reads them as zeroes. The traces go first: what tells
// of them may be among the blocks that are given back.
func (w *wiping) quick(ctx context.Context) error {
	if err := w.zeroTraces(ctx); err != nil {
		return err
	}
	w.progress(40, "")
	_, err := w.device.Discard(ctx, 0, w.size)
	switch {
	case errors.Is(err, ErrUnsupported):
		w.by = node.ByZeroes
		return w.zeroMarks(ctx)
	case err != nil:
		return fmt.Errorf("discard: %w", err)
	}
	w.progress(80, "")
	w.by = node.ByDiscard
	return w.zeroAll(ctx)
}

// zeroAll writes zeroes over everything that a disk is recognised by. What the device said of erased and discarded blocks is not
// relied upon.
func (w *wiping) zeroAll(ctx context.Context) error {
	if err := w.zeroTraces(ctx); err != nil {
		return err
	}
	return w.zeroMarks(ctx)
}

func (w *wiping) zeroTraces(ctx context.Context) error {
	for _, level := range w.traces {
		if err := w.zeroSpans(ctx, level); err != nil {
			return err
		}
	}
	return nil
}

func (w *wiping) zeroMarks(ctx context.Context) error {
	w.emptied = merged(slices.Concat(append(slices.Clone(w.traces), marks(w.size))...))
	return w.zeroSpans(ctx, marks(w.size))
}

// zeroSpans returns once they are empty for good.
func (w *wiping) zeroSpans(ctx context.Context, spans []span) error {
	for _, s := range spans {
		if err := zero(ctx, w.device, s.offset, s.length, nil); err != nil {
			return fmt.Errorf("write at %d: %w", s.offset, err)
		}
	}
	if len(spans) == 0 {
		return nil
	}
	return w.sync(ctx)
}

// erase lets the device erase itself. Before that it gets canaries: a device that says it is done and did nothing still
// holds them. One that can't, gets back what was there: who is refused has lost nothing.
func (w *wiping) erase(ctx context.Context, by func(context.Context, Progress) error) error {
	before := w.remember()
	if err := w.plant(ctx); err != nil {
		return err
	}
	if err := by(ctx, w.progress); errors.Is(err, ErrUnsupported) {
		return cmp.Or(w.putBack(ctx, before), err)
	} else if err != nil {
		return fmt.Errorf("erase: %w", err)
	}
	w.by = node.ByDevice
	if d, ok := w.device.(eraser); ok {
		w.by = d.ErasedBy()
	}
	if err := w.canariesGone(ctx); err != nil {
		return err
	}
	return w.zeroAll(ctx)
}

// overwrite writes zeroes over all of it.
func (w *wiping) overwrite(ctx context.Context) error {
	var done int64
	w.by = node.ByOverwrite
	err := zero(ctx, w.device, 0, w.size, func(n int64) {
		done += n
		w.progress(99*float64(done)/float64(w.size), "")
	})
	if err != nil {
		return fmt.Errorf("overwrite, after %d of %d bytes: %w", done, w.size, err)
	}
	w.emptied = merged(append(append(w.emptied, marks(w.size)...), w.sampled...))
	return w.sync(ctx)
}

func (w *wiping) sync(ctx context.Context) error {
	if err := w.device.Sync(ctx); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return nil
}

// total makes one progress of that of several disks.
type total struct {
	mu       sync.Mutex
	parts    []float64
	progress Progress
}

func newTotal(n int, progress Progress) *total {
	return &total{parts: make([]float64, n), progress: progress}
}

func (t *total) part(i int, name string) Progress {
	return func(percent float64, message string) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.parts[i] = percent
		sum := 0.0
		for _, p := range t.parts {
			sum += p
		}
		if message == "" {
			message = name
		}
		t.progress(sum/float64(len(t.parts)), message)
	}
}
