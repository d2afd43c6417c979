package disk

import (
	"bytes"
	"cmp"
	"context"
	"slices"
)

// zeroer is a device that has a quick way to write zeroes.
type zeroer interface {
	WriteZeroes(ctx context.Context, offset, length int64) error
}

// chunk is how much is read or written at once.
const chunk = 1 << 20

// quickChunk is how much a device is asked to zero by itself before that is told: some minutes of a slow disk.
const quickChunk = 16 << 30

var zeroes [chunk]byte

func isZero(p []byte) bool {
	for len(p) > chunk {
		if !bytes.Equal(p[:chunk], zeroes[:]) {
			return false
		}
		p = p[chunk:]
	}
	return bytes.Equal(p, zeroes[:len(p)])
}

// zero writes zeroes over a range, telling after each piece how many bytes are done.
func zero(ctx context.Context, d Device, offset, length int64, done func(int64)) error {
	quick, isQuick := d.(zeroer)
	for length > 0 {
		n := min(length, chunk)
		if isQuick {
			n = min(length, quickChunk)
		}
		if err := zeroOnce(ctx, d, quick, offset, n); err != nil {
			return err
		}
		offset, length = offset+n, length-n
		if done != nil {
			done(n)
		}
	}
	return ctx.Err()
}

func zeroOnce(ctx context.Context, d Device, quick zeroer, offset, n int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if quick != nil {
		return quick.WriteZeroes(ctx, offset, n)
	}
	_, err := d.WriteAt(zeroes[:n], offset)
	return err
}

// span is a range of a device.
type span struct{ offset, length int64 }

// clip keeps of s what lies on a device of size bytes.
func (s span) clip(size int64) (span, bool) {
	from, to := max(s.offset, 0), min(s.offset+s.length, size)
	return span{from, to - from}, from < to
}

// merged gives the same ranges in order, without what several of them have in common.
func merged(spans []span) (out []span) {
	spans = slices.SortedFunc(slices.Values(spans), func(a, b span) int { return cmp.Compare(a.offset, b.offset) })
	for _, s := range spans {
		if last := len(out) - 1; last >= 0 && s.offset <= out[last].offset+out[last].length {
			out[last].length = max(out[last].length, s.offset+s.length-out[last].offset)
		} else {
			out = append(out, s)
		}
	}
	return out
}
