package disk

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/better-compute/metal/domain/agentcommand"
)

// Burn tries every local disk: patterns are written and read back, over and over until the time has passed; without a time, once.
// Of a disk that is too large for the time a part is tried, which the result tells. What was on the disks is lost; they end zeroed
// where they were tried. What they are recognised by elsewhere is emptied before: the wipe that follows does not find it once the
// tables and superblocks that tell where it is were written over. Disks are tried at the same time, and each error is counted, not
// the end of it.
func Burn(ctx context.Context, devices []Device, with agentcommand.Burnin, seed uint64, progress Progress,
) ([]agentcommand.BurnedPart, error) {
	var local []Device
	for _, d := range devices {
		if d.Info().Reported() == "" {
			local = append(local, d)
		}
	}
	out := make([]agentcommand.BurnedPart, len(local))
	all, byName := newTotal(len(local), progress), turnsOn(local)
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, d := range local {
		group.Go(func() error {
			defer byName.take(d)()
			out[i] = burnOne(ctx, d, with, seed+uint64(i), all.part(i, d.Info().Path))
			return nil
		})
	}
	_ = group.Wait() // none of them fails: errors are counted
	return out, ctx.Err()
}

func burnOne(ctx context.Context, d Device, with agentcommand.Burnin, seed uint64, progress Progress) agentcommand.BurnedPart {
	info := d.Info()
	b := burning{device: d, size: info.Bytes, progress: progress, part: agentcommand.BurnedPart{Name: info.Key()}}
	if with.Bytes > 0 {
		b.size = min(b.size, with.Bytes)
	}
	if reason := prepare(ctx, d, with.Shared); reason != "" {
		b.failed("%s", reason)
		return b.part
	}
	if err := (&wiping{device: d, traces: tracesOf(d)}).zeroTraces(ctx); err != nil {
		b.failed("%v", err)
		return b.part
	}
	began := time.Now()
	if limit := with.Duration.Duration(); limit > 0 {
		b.until, b.limit = began.Add(limit), limit
	}
	for pass := uint64(0); ctx.Err() == nil; pass++ {
		if b.pass(ctx, seed+pass<<32); b.over(0) {
			break
		}
	}
	if err := zero(ctx, d, 0, b.written, nil); err != nil && ctx.Err() == nil {
		b.failed("write: %v", err)
	}
	b.part.Took = agentcommand.Seconds(time.Since(began).Seconds())
	return b.part
}

// burning is one disk being tried.
type burning struct {
	device   Device
	size     int64
	progress Progress
	part     agentcommand.BurnedPart

	until   time.Time // when it has to end; zero: after one pass
	limit   time.Duration
	written int64 // up to where it was written
}

// failed counts an error; the first is told.
func (b *burning) failed(format string, args ...any) {
	if b.part.Errors++; b.part.Errors == 1 {
		b.part.Detail = fmt.Sprintf(format, args...)
	}
}

// over tells whether no more than a part of the time is left; without a time it always is.
func (b *burning) over(left time.Duration) bool { return time.Until(b.until) <= left }

// tell tells how far it is: in its time, or else in its one pass.
func (b *burning) tell(percent float64) {
	if b.limit > 0 {
		percent = min(100, 100*float64(b.limit-time.Until(b.until))/float64(b.limit))
	}
	b.progress(percent, "")
}

// pass writes a pattern that is another one in each block, then reads all of it: a disk that writes one block to the place
// of another is found out. Half of the time that is left is for writing, and the rest for reading that back.
func (b *burning) pass(ctx context.Context, seed uint64) {
	want, got, end := make([]byte, chunk), make([]byte, chunk), b.size
	half := time.Until(b.until) / 2
	for at := int64(0); at < end && ctx.Err() == nil; at += chunk {
		p := pattern(want[:min(chunk, b.size-at)], seed, at)
		if _, err := b.device.WriteAt(p, at); err != nil {
			b.failed("write at %d: %v", at, err)
		}
		b.written = max(b.written, at+int64(len(p)))
		if b.limit > 0 && b.over(half) {
			end = at + int64(len(p))
		}
		b.tell(50 * float64(at) / float64(b.size))
	}
	if err := b.device.Sync(ctx); err != nil && ctx.Err() == nil {
		b.failed("sync: %v", err)
	}
	for at := int64(0); at < end && ctx.Err() == nil; at += chunk {
		if at > 0 && b.limit > 0 && b.over(0) {
			return
		}
		p := pattern(want[:min(chunk, b.size-at)], seed, at)
		if n, err := b.device.ReadAt(got[:len(p)], at); n < len(p) {
			b.failed("read at %d: %v", at, err)
		} else if !bytes.Equal(got[:len(p)], p) {
			b.failed("read at %d: it is not what was written", at)
		}
		b.part.Bytes += int64(len(p))
		b.tell(50 + 50*float64(at)/float64(b.size))
	}
}

// pattern fills p with numbers that belong to the place.
func pattern(p []byte, seed uint64, at int64) []byte {
	var key [32]byte
	for i := range 8 {
		key[i], key[8+i] = byte(seed>>(8*i)), byte(uint64(at)>>(8*i))
	}
	random := rand.NewChaCha8(key)
	_, _ = random.Read(p) // never fails
	return p
}
