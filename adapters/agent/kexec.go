package agent

import (
	"cmp"
	"context"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
)

// kexec starts the installed OS once its result has reached the gateway. Without a disk it is the one that was written.
func (m machine) kexec(ctx context.Context, o Order) (any, func(context.Context) error, error) {
	ask, err := decode[agentcommand.Kexec](o)
	if err != nil {
		return nil, nil, err
	}
	key := cmp.Or(ask.Disk, m.written.get())
	if key == "" {
		return nil, nil, fault.New(fault.DriverError, "no disk is named, and no image was written since this boot")
	}
	devices, err := m.Machine.Disks(ctx)
	if err != nil {
		return nil, nil, machineFault(err, "list the disks")
	}
	for _, d := range devices {
		if d.Info().Key() == key {
			return none{}, func(ctx context.Context) error { return m.Machine.Kexec(ctx, key) }, nil
		}
	}
	return nil, nil, fault.New(fault.DriverError, "the disk %s is not in the machine", key)
}
