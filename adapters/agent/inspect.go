package agent

import (
	"context"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

// inspect takes the inventory. Its disks are those that a wipe has to empty: what a wipe only reports is not the machine's.
func (m machine) inspect(ctx context.Context, o Order) (any, func(context.Context) error, error) {
	if _, err := decode[agentcommand.Inspect](o); err != nil {
		return nil, nil, err
	}
	hardware, err := m.Machine.Hardware(ctx)
	if err != nil {
		return nil, nil, machineFault(err, "take the inventory")
	}
	devices, err := m.Machine.Disks(ctx)
	if err != nil {
		return nil, nil, machineFault(err, "list the disks")
	}
	hardware.Disks = localDisks(devices)
	return hardware, nil, nil
}

func localDisks(devices []disk.Device) (out []node.Disk) {
	for _, d := range devices {
		if i := d.Info(); i.Reported() == "" {
			out = append(out, i.Told())
		}
	}
	return out
}

func machineFault(err error, what string) error {
	return fault.Wrap(err, fault.DriverError, "%s: %v", what, err)
}
