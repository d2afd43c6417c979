package agent

import (
	"context"
	"fmt"
	"slices"
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
	now, err := m.Machine.Disks(ctx)
	if err != nil {
		return out, nil, machineFault(err, "list the disks once more")
	}
	for _, d := range came(localDisks(devices), localDisks(now)) {
		out.Disks = append(out.Disks, node.WipedDisk{Disk: d, Method: node.WipeNone, Reason: "it came while the others were wiped"})
	}
	var failed []string
	for i, d := range out.Disks {
		if leftAlone := i < len(devices) && devices[i].Info().Reported() != ""; !leftAlone && !d.ReadBack {
			failed = append(failed, fmt.Sprintf("%s: %s", d.Disk.Key(), d.Reason))
		}
	}
	if len(failed) > 0 {
		return out, nil, fault.New(fault.DriverError, "%d of %d disks are not proven empty: %s", len(failed), len(out.Disks), firstOf(failed)).
			WithDetail("disks", failed)
	}
	return out, nil, nil
}

// came lists the disks that were not there before. A wipe may take hours, and bays open: what nobody wiped must not go unseen.
func came(before, now []node.Disk) []node.Disk {
	there := map[string]int{}
	for _, d := range before {
		there[d.Key()]++
	}
	return slices.DeleteFunc(now, func(d node.Disk) bool {
		there[d.Key()]--
		return there[d.Key()] >= 0
	})
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
