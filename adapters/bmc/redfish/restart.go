package redfish

import (
	"context"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

// cycle takes the power away and gives it back, each observed. Where the controller lacks one of the two it has to do both
// by itself, and off must still be seen.
func (w *powering) cycle(ctx context.Context, off bool) error {
	if off {
		return w.reach(ctx, node.ActionOn, node.PowerOn)
	}
	if w.offers(schemas.ForceOffResetType) && (w.offers(schemas.OnResetType) || w.offers(schemas.ForceOnResetType)) {
		if err := w.reach(ctx, node.ActionOff, node.PowerOff); err != nil {
			return err
		}
		return w.reach(ctx, node.ActionOn, node.PowerOn)
	}
	types, err := w.choose([]schemas.ResetType{
		schemas.PowerCycleResetType, schemas.FullPowerCycleResetType, schemas.ForceRestartResetType,
	})
	if err != nil {
		return err
	}
	before := bootEvidence(w.sys)
	ctx, cancel := context.WithTimeout(ctx, powerPolls*w.m.c.d.o.Poll)
	defer cancel()
	if err := w.send(ctx, types, ""); err != nil && !unsure(err) {
		return w.missed(err, node.PowerOff)
	}
	w.result.Changed = true
	if err := w.restarted(ctx, before); err != nil {
		return w.missed(err, node.PowerOff)
	}
	return w.comeBack(ctx)
}

// unsure reports an error after which the action may have been done all the same.
func unsure(err error) bool {
	return fault.CodeOf(err) == fault.Unavailable || (reasonOf(err) != bmc.TaskFailed && perhapsDone(statusOf(err)))
}

// comeBack waits for a machine that restarts. Some only go off; those are switched on.
func (w *powering) comeBack(ctx context.Context) error {
	limit := powerPolls * w.m.c.d.o.Poll
	_, unable := w.choose(resetTypes[node.ActionOn])
	if unable == nil {
		limit /= 3
	}
	ok, err := w.watch(ctx, node.PowerOn, limit)
	switch {
	case ok || err != nil:
		return w.missed(err, node.PowerOn)
	case at(w.sys, node.PowerOff) && unable == nil:
		return w.reach(ctx, node.ActionOn, node.PowerOn)
	}
	return w.missed(fault.New(fault.Timeout, "the machine did not come back"), node.PowerOn)
}

// bootEvidence changes when a machine boots afresh.
func bootEvidence(sys document) string {
	return sys.text("LastResetTime") + " " + sys.text("BootProgress", "LastState") + " " + sys.text("BootProgress", "LastStateTime")
}

// tellsBoots reports whether the controller dates its boots, so that a restart can be told from none.
func tellsBoots(sys document) bool {
	return sys.text("LastResetTime") != "" || sys.text("BootProgress", "LastStateTime") != ""
}

// restarted waits until the machine was seen off, or shows that it booted afresh.
func (w *powering) restarted(ctx context.Context, before string) error {
	for p := w.m.c.d.pace(); ; {
		sys, _, err := w.m.system(ctx)
		switch {
		case err == nil:
			w.sys = sys
			if powerOf(sys) == node.PowerOff || bootEvidence(sys) != before {
				return nil
			}
		case !passing(err) || ctx.Err() != nil:
			return err
		}
		if p.wait(ctx, 0) != nil {
			return ended(ctx)
		}
	}
}

// arrived looks, after the answer to a restart was lost, for signs of it.
func (w *powering) arrived(ctx context.Context, before string) bool {
	ctx, cancel := context.WithTimeout(ctx, powerPolls/10*w.m.c.d.o.Poll)
	defer cancel()
	return w.restarted(ctx, before) == nil
}

// reset restarts a machine that is on; one that is off is switched on. A controller that dates its boots must show one.
func (w *powering) reset(ctx context.Context, off bool) error {
	if off {
		return w.reach(ctx, node.ActionOn, node.PowerOn)
	}
	types, err := w.choose(resetTypes[node.ActionReset])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, powerPolls*w.m.c.d.o.Poll)
	defer cancel()
	before := bootEvidence(w.sys)
	if err := w.send(ctx, types, ""); err != nil {
		if !unsure(err) || !w.arrived(ctx, before) {
			return w.missed(err, node.PowerOn)
		}
		w.result.Changed = true
	}
	if tellsBoots(w.sys) {
		if err := w.restarted(ctx, before); err != nil {
			return w.missed(err, node.PowerOn)
		}
	}
	return w.comeBack(ctx)
}
