package ramdisk

import (
	"context"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/better-compute/metal/adapters/agent/linux"
	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/adapters/disk/blockdev"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

// machine is the machine under the ramdisk: it is this process's own.
type machine struct {
	*linux.Machine
	root      fs.FS
	modules   *modules
	neighbors *neighbors
	log       *slog.Logger

	mu      sync.Mutex
	settled bool
	kept    []*blockdev.Device
}

func newMachine(seen *linux.Machine, root fs.FS, modules *modules, neighbors *neighbors, log *slog.Logger) *machine {
	return &machine{Machine: seen, root: root, modules: modules, neighbors: neighbors, log: log}
}

// Hardware is the inventory, once all devices are there and the ports have listened long enough to know their neighbours.
func (m *machine) Hardware(ctx context.Context) (node.Hardware, error) {
	if _, err := m.devices(ctx); err != nil {
		return node.Hardware{}, err
	}
	m.neighbors.await(ctx)
	hardware, err := m.Machine.Hardware(ctx)
	if err != nil {
		return hardware, err
	}
	m.neighbors.add(hardware.NICs)
	return hardware, ctx.Err()
}

// Disks lists every disk.
func (m *machine) Disks(ctx context.Context) (out []disk.Device, err error) {
	devices, err := m.devices(ctx)
	for _, d := range devices {
		out = append(out, d)
	}
	return out, err
}

// devices gives the disks as they are now. One that is still the same stays open.
func (m *machine) devices(ctx context.Context) ([]*blockdev.Device, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.settled {
		if err := settle(ctx, m.look); err != nil {
			return nil, err
		}
		for _, place := range blockdev.Driverless(m.root) {
			m.log.Warn("a controller of disks has no driver in this ramdisk: nobody sees its disks", "pci", place)
		}
		m.settled = true
	}
	found, err := blockdev.Scan(m.root)
	if err != nil {
		return nil, err
	}
	var now []*blockdev.Device
	for _, i := range found {
		same := slices.IndexFunc(m.kept, func(d *blockdev.Device) bool { return d.Info() == i })
		if same >= 0 {
			now = append(now, m.kept[same])
		} else {
			now = append(now, blockdev.Open(m.root, i))
		}
	}
	for _, d := range m.kept {
		if !slices.Contains(now, d) {
			if err := d.Close(); err != nil {
				m.log.Warn("a disk that is gone", "disk", d.Info().Path, "error", err)
			}
		}
	}
	m.kept = now
	return slices.Clone(now), nil
}

// look tells of the disks that are there, and of the controllers that may bring others.
func (m *machine) look() (there []disk.Info, starting []string, err error) {
	starting = blockdev.Starting(m.root) // before: who is done meanwhile has shown its disks, or is about to
	there, err = blockdev.Scan(m.root)
	return there, starting, err
}

// Disks are found one after the other, also by controllers that take their time. A list that some are missing from would be
// taken for the whole.
const (
	settleQuiet    = 2 * time.Second
	settleMost     = time.Minute
	settleStarting = 3 * time.Minute // a controller may take two for its start
	settleLook     = 100 * time.Millisecond
)

// settle waits until the disks have stayed the same for a while, and no controller is starting. Where they never do, nobody
// knows which there are.
func settle(ctx context.Context, look func() (there []disk.Info, starting []string, err error)) error {
	began, since := time.Now(), time.Now()
	up := began // since when no controller is starting
	seen, starting, err := look()
	for err == nil && (len(starting) > 0 || time.Since(since) < settleQuiet) {
		if len(starting) > 0 {
			up, since = time.Now(), time.Now()
		}
		switch {
		case time.Since(up) >= settleMost:
			return fault.New(fault.DriverError, "disks still came and went after %v", settleMost)
		case len(starting) > 0 && time.Since(began) >= settleStarting:
			return fault.New(fault.DriverError, "controllers of disks are not up after %v", settleStarting).WithDetail("controllers", starting)
		}
		if !pause(ctx, settleLook) {
			return ctx.Err()
		}
		var now []disk.Info
		if now, starting, err = look(); !slices.Equal(now, seen) {
			seen, since = now, time.Now()
		}
	}
	return err
}

// Reboot restarts the machine at once: there is nothing that has to be ended first.
func (m *machine) Reboot(context.Context) error { return restart() }

// PowerOff switches it off.
func (m *machine) PowerOff(context.Context) error { return powerOff() }
