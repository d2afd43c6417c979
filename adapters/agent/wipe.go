package agent

import (
	"context"
	"fmt"
	"strings"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

// wiped is the result of disk.wipe.
type wiped struct {
	Disks []node.WipedDisk `json:"disks"`
}

// wipe empties every local disk and reads it back. One that was not proven empty fails it; the result tells all of them
// either way.
func (m machine) wipe(ctx context.Context, o Order) (any, func(context.Context) error, error) {
	ask, err := decode[agentcommand.WipeDisks](o)
	if err != nil {
		return nil, nil, err
	}
	devices, err := m.Machine.Disks(ctx)
	if err != nil {
		return nil, nil, machineFault(err, "list the disks")
	}
	m.written.set("")
	disks, err := disk.Wipe(ctx, devices, disk.Wiping{Method: node.WipeMethod(ask.Method), Seed: m.Seed(), Shared: ask.Shared}, o.Progress)
	out := wiped{Disks: disks}
	if err != nil {
		return out, nil, err
	}
	var failed []string
	for i, d := range disks {
		if devices[i].Info().Reported() == "" && !d.ReadBack {
			failed = append(failed, fmt.Sprintf("%s: %s", d.Disk.Key(), d.Reason))
		}
	}
	if len(failed) > 0 {
		return out, nil, fault.New(fault.DriverError, "%d of %d disks are not proven empty: %s", len(failed), len(disks), firstOf(failed)).
			WithDetail("disks", failed)
	}
	return out, nil, nil
}

// firstOf is what fits into one line.
func firstOf(all []string) string {
	const most = 3
	text := strings.Join(all[:min(most, len(all))], "; ")
	if more := len(all) - most; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}
