package ramdisk

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/domain/agentcommand"
)

// calculate is a piece of work whose result is known: whole numbers, numbers with fractions, and memory in between.
func calculate() string {
	const side = 48
	var a, b, c [side][side]float64
	for i := range side {
		for j := range side {
			a[i][j], b[i][j] = math.Sqrt(float64(i*side+j+1)), 1/float64(i+j+1)
		}
	}
	for range 4 {
		for i := range side {
			for j := range side {
				sum := 0.0
				for k := range side {
					sum = math.FMA(a[i][k], b[k][j], sum) // one rounding, on every processor
				}
				c[i][j] = sum / side
			}
		}
		a, c = c, a
	}
	sum := sha256.New()
	for i := range side {
		for j := range side {
			_ = binary.Write(sum, binary.LittleEndian, a[i][j]) // a hash takes everything
		}
	}
	digest := sum.Sum(nil)
	for range 2000 {
		next := sha256.Sum256(digest)
		digest = next[:]
	}
	return hex.EncodeToString(digest)
}

// calculated is what comes of it on a processor in order.
const calculated = "9dda1c6ad4b32b0b6014112359acc0ae26596f9a7f5fb0fddb0ea3387c46c736"

// burnProcessors has every processor do the same work at the same time, over and over, and counts wrong results. Pin keeps
// the calling goroutine on one processor.
func burnProcessors(
	ctx context.Context, processors []int, with agentcommand.Burnin, pin func(int) error, progress disk.Progress,
) agentcommand.Burned {
	out := agentcommand.Burned{Parts: make([]agentcommand.BurnedPart, len(processors))}
	began := time.Now()
	var working sync.WaitGroup
	for i, p := range processors {
		working.Go(func() {
			part := agentcommand.BurnedPart{Name: fmt.Sprintf("cpu%d", p)}
			if err := pin(p); err != nil {
				part.Errors, part.Detail = 1, fmt.Sprintf("it can't be chosen: %v", err)
			}
			for done := false; !done && ctx.Err() == nil; {
				if got := calculate(); got != calculated {
					if part.Errors++; part.Errors == 1 {
						part.Detail = fmt.Sprintf("a calculation gave %.16s, not %.16s", got, calculated)
					}
				}
				done = time.Since(began) >= with.Duration.Duration()
				if i == 0 {
					progress(share(began, with.Duration.Duration()), "")
				}
			}
			part.Took = agentcommand.Seconds(time.Since(began).Seconds())
			out.Parts[i] = part
		})
	}
	working.Wait()
	return out
}

// share is how much of a time has passed, in percent.
func share(began time.Time, of time.Duration) float64 {
	if of <= 0 {
		return 100
	}
	return min(100, 100*float64(time.Since(began))/float64(of))
}

// patterns are what memory is filled with, in turn: each bit both ways, neighbours different, and the place itself, which
// finds address lines that are stuck.
var patterns = []func(place uint64) uint64{
	func(uint64) uint64 { return 0 },
	func(uint64) uint64 { return math.MaxUint64 },
	func(uint64) uint64 { return 0x5555555555555555 },
	func(uint64) uint64 { return 0xaaaaaaaaaaaaaaaa },
	func(place uint64) uint64 { return place * 0x9e3779b97f4a7c15 },
	func(place uint64) uint64 { return ^(place * 0x9e3779b97f4a7c15) },
}

func fill(words []uint64, first uint64, pattern func(uint64) uint64) {
	for i := range words {
		words[i] = pattern(first + uint64(i))
	}
}

// differences counts words that are not what they were filled with, and tells of the first.
func differences(words []uint64, first uint64, pattern func(uint64) uint64) (n int64, detail string) {
	for i, word := range words {
		want := pattern(first + uint64(i))
		if word == want {
			continue
		}
		if n++; n == 1 {
			detail = fmt.Sprintf("word %d reads %#016x, not %#016x", first+uint64(i), word, want)
		}
	}
	return n, detail
}

// burnMemory fills all areas with one pattern, then reads all of them: what is written to one place must not show at another.
// It goes through the patterns over and over until the time has passed; without a time once. A pattern that is begun is ended.
func burnMemory(ctx context.Context, areas [][]uint64, with agentcommand.Burnin, progress disk.Progress) agentcommand.Burned {
	began, limit := time.Now(), with.Duration.Duration()
	part := agentcommand.BurnedPart{Name: "memory"}
	steps := 2 * len(areas) * len(patterns)
	for n := 0; ctx.Err() == nil; n++ {
		round := n % len(patterns)
		if n > 0 && time.Since(began) >= limit && (limit > 0 || round == 0) {
			break
		}
		step := 2 * len(areas) * round
		burnPattern(ctx, areas, patterns[round], &part, func() {
			step++
			percent := share(began, limit)
			if limit <= 0 {
				percent = 100 * float64(step) / float64(steps)
			}
			progress(percent, "")
		})
		if round == 0 && ctx.Err() == nil {
			part.Bytes += 8 * total(areas)
		}
	}
	part.Took = agentcommand.Seconds(time.Since(began).Seconds())
	return agentcommand.Burned{Parts: []agentcommand.BurnedPart{part}}
}

// burnPattern fills the areas with one pattern and reads them.
func burnPattern(ctx context.Context, areas [][]uint64, pattern func(uint64) uint64, part *agentcommand.BurnedPart, step func()) {
	for check := range 2 {
		place := uint64(0)
		for _, area := range areas {
			if ctx.Err() != nil {
				return
			}
			if check == 0 {
				fill(area, place, pattern)
			} else if n, detail := differences(area, place, pattern); n > 0 {
				if part.Errors == 0 {
					part.Detail = detail
				}
				part.Errors += n
			}
			place += uint64(len(area))
			step()
		}
	}
}

func total(areas [][]uint64) (words int64) {
	for _, a := range areas {
		words += int64(len(a))
	}
	return words
}
