package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
)

const (
	sampleCount = 64
	sampleBytes = 4096
)

// samples chooses blocks all over a disk, one in each of as many equal parts, so that no large part goes unseen.
func samples(size int64, seed uint64) (out []span) {
	random := rand.New(rand.NewPCG(seed, 0x5eed)) //nolint:gosec // not a secret: the seed comes from the caller
	blocks := size / sampleBytes
	part := max(blocks/sampleCount, 1)
	for i := int64(0); i < sampleCount && i*part < blocks; i++ {
		at := min(i*part+random.Int64N(part), blocks-1)
		out = append(out, span{at * sampleBytes, sampleBytes})
	}
	return out
}

// canary is what is planted at a place: a text that is nowhere else, and depends on the seed.
func (w *wiping) canary(at span) []byte {
	random := rand.New(rand.NewPCG(w.seed, uint64(at.offset))) //nolint:gosec // as above
	out := make([]byte, at.length)
	for i := range out {
		out[i] = byte(random.Uint32())
	}
	return out
}

// remember reads what is where canaries go. What can't be read is lost already.
func (w *wiping) remember() map[span][]byte {
	out := map[span][]byte{}
	for _, at := range w.sampled {
		p := make([]byte, at.length)
		if n, _ := w.device.ReadAt(p, at.offset); int64(n) == at.length {
			out[at] = p
		}
	}
	return out
}

func (w *wiping) putBack(ctx context.Context, before map[span][]byte) error {
	for at, p := range before {
		if _, err := w.device.WriteAt(p, at.offset); err != nil {
			return fmt.Errorf("write at %d: %w", at.offset, err)
		}
	}
	return w.sync(ctx)
}

// plant has the canaries on the medium, and sees that they are: a disk that has never kept one proves nothing by not having it.
func (w *wiping) plant(ctx context.Context) error {
	for _, at := range w.sampled {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := w.device.WriteAt(w.canary(at), at.offset); err != nil {
			return fmt.Errorf("write at %d: %w", at.offset, err)
		}
	}
	if err := w.sync(ctx); err != nil {
		return err
	}
	return w.canaries(ctx, true, "the disk takes what is written, and does not keep it")
}

// canariesGone fails where the device still holds anything that was planted: it did not erase.
func (w *wiping) canariesGone(ctx context.Context) error {
	return w.canaries(ctx, false, "the disk says that it erased itself, and still holds what was written before")
}

// canaries fails where one is not there, or is there all the same.
func (w *wiping) canaries(ctx context.Context, there bool, wrong string) error {
	for _, at := range w.sampled {
		found, err := w.read(ctx, at)
		if err != nil {
			return err
		}
		if bytes.Equal(found, w.canary(at)) != there {
			return fmt.Errorf("%s, at %d", wrong, at.offset)
		}
	}
	return nil
}

// readBack reads what was emptied, and wants zeroes.
func (w *wiping) readBack(ctx context.Context) error {
	for _, s := range w.emptied {
		for s.length > 0 {
			part := span{s.offset, min(s.length, chunk)}
			found, err := w.read(ctx, part)
			if err != nil {
				return err
			}
			if !isZero(found) {
				return fmt.Errorf("read back at %d: it is not empty", part.offset)
			}
			s.offset, s.length = s.offset+part.length, s.length-part.length
		}
	}
	w.progress(100, "")
	return nil
}

// read gives a range, valid until the next read.
func (w *wiping) read(ctx context.Context, s span) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if int64(len(w.buffer)) < s.length {
		w.buffer = make([]byte, s.length)
	}
	p := w.buffer[:s.length]
	n, err := w.device.ReadAt(p, s.offset)
	if int64(n) < s.length {
		return nil, fmt.Errorf("read back at %d: %w", s.offset, errors.Join(err, fmt.Errorf("%d of %d bytes", n, s.length)))
	}
	return p, nil
}
