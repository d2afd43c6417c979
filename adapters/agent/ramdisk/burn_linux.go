package ramdisk

import (
	"context"
	"errors"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/domain/agentcommand"
)

// Burn tries the processors or the memory.
func (m *machine) Burn(
	ctx context.Context, kind agentcommand.KindName, with agentcommand.Burnin, progress disk.Progress,
) (out agentcommand.Burned, err error) {
	switch kind {
	case agentcommand.BurninCPU:
		var all unix.CPUSet
		if err := unix.SchedGetaffinity(0, &all); err != nil {
			return out, err
		}
		var processors []int
		for p := 0; len(processors) < all.Count(); p++ {
			if all.IsSet(p) {
				processors = append(processors, p)
			}
		}
		out = burnProcessors(ctx, processors, with, pin, progress)
	case agentcommand.BurninMemory:
		areas, free, err := takeMemory(m.memoryToTry(with.Bytes))
		if err != nil {
			return out, err
		}
		defer free()
		out = burnMemory(ctx, areas, with, progress)
	default:
		return out, disk.ErrUnsupported
	}
	return out, ctx.Err()
}

// pin keeps the goroutine on one processor. Its thread ends with it.
func pin(processor int) error {
	runtime.LockOSThread()
	var one unix.CPUSet
	one.Set(processor)
	return unix.SchedSetaffinity(0, &one)
}

// Memory that is not tried: the kernel, this process and what arrives meanwhile need some.
const (
	memoryLeft  = 128 << 20
	memoryShare = 8 // one of as many parts
	memoryPiece = 64 << 20
)

// memoryToTry is as much of what is available as can be done without, at most the bytes wanted.
func (m *machine) memoryToTry(wanted int64) int64 {
	available := kibOf(readText(m.root, "proc/meminfo"), "MemAvailable:")
	room := available - max(memoryLeft, available/memoryShare)
	if wanted > 0 {
		room = min(room, wanted)
	}
	return room
}

// takeMemory gets memory straight from the kernel, in pieces.
func takeMemory(bytes int64) (areas [][]uint64, free func(), err error) {
	var maps [][]byte
	free = func() {
		for _, m := range maps {
			_ = unix.Munmap(m) // it was mapped as it is
		}
	}
	for bytes >= 8 {
		n := min(bytes, memoryPiece) &^ 7
		m, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if errors.Is(err, unix.ENOMEM) && len(maps) > 0 {
			break
		}
		if err != nil {
			free()
			return nil, nil, err
		}
		maps = append(maps, m)
		areas = append(areas, unsafe.Slice((*uint64)(unsafe.Pointer(&m[0])), n/8)) //nolint:gosec // pages begin at whole words
		bytes -= n
	}
	if len(areas) == 0 {
		return nil, nil, errors.New("there is no memory to spare")
	}
	return areas, free, nil
}
