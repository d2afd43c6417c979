package agent

import (
	"context"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
)

// burnin tries the processors or the memory.
func (m machine) burnin(kind agentcommand.KindName) Handler {
	return func(ctx context.Context, o Order) (any, func(context.Context) error, error) {
		ask, err := decode[agentcommand.Burnin](o)
		if err != nil {
			return nil, nil, err
		}
		burned, err := m.Machine.Burn(ctx, kind, ask, o.Progress)
		if err != nil {
			return burned, nil, machineFault(err, string(kind))
		}
		return burned, nil, judge(burned)
	}
}

// burninDisk writes patterns to every local disk and reads them back.
func (m machine) burninDisk(ctx context.Context, o Order) (any, func(context.Context) error, error) {
	ask, err := decode[agentcommand.Burnin](o)
	if err != nil {
		return nil, nil, err
	}
	devices, err := m.Machine.Disks(ctx)
	if err != nil {
		return nil, nil, machineFault(err, "list the disks")
	}
	m.written.set("")
	parts, err := disk.Burn(ctx, devices, ask, m.Seed(), o.Progress)
	burned := agentcommand.Burned{Parts: parts}
	if err != nil {
		return burned, nil, err
	}
	return burned, nil, judge(burned)
}

// judge fails a burn-in in which anything failed.
func judge(b agentcommand.Burned) error {
	var failed []string
	for _, p := range b.Parts {
		if p.Errors > 0 {
			failed = append(failed, p.Name)
		}
	}
	if len(failed) > 0 {
		return fault.New(fault.DriverError, "the burn-in found errors in %d of %d parts", len(failed), len(b.Parts)).
			WithDetail("parts", failed)
	}
	return nil
}
