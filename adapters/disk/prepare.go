package disk

import (
	"context"
	"sync"
)

// Reported is why a device is told of and never touched: it is not one of the machine's disks. Nothing: it is one.
func (i Info) Reported() string {
	switch {
	case i.AgentMedia:
		return "the agent itself runs from it"
	case i.Removable:
		return "it is removable"
	case i.Remote:
		return "it is on a network, where other machines may use it"
	}
	return ""
}

// unfit is why nothing can be written to one of the machine's disks as it is. Nothing: it can. A disk that does not tell its
// size is one all the same: it may be broken, or locked, and full of data.
func (i Info) unfit() string {
	switch {
	case i.ReadOnly:
		return "it is read-only"
	case i.Bytes <= 0:
		return "it does not tell its size"
	}
	return ""
}

// prepare brings a disk to where it can be written, and says why it must not be. Shared: also one that other machines may share.
func prepare(ctx context.Context, d Device, shared bool) (reason string) {
	if reason = d.Info().unfit(); reason != "" {
		return reason
	}
	if r, ok := d.(resumer); ok {
		if err := r.Resume(ctx); err != nil {
			return err.Error()
		}
	}
	if shared {
		return ""
	}
	switch name, err := sharedBy(d); {
	case err != nil:
		return err.Error()
	case name != "":
		return "it holds " + name + ", a filesystem that other machines may share: it was not touched; " + ifAlone
	}
	return ""
}

// turns keep those apart that work on disks of one name: they may be several ways to one disk, as with a SAS disk on two
// controllers. All of them are worked on, for they may as well be several disks with a bad name, but never at the same time.
type turns map[string]*sync.Mutex

func turnsOn(devices []Device) turns {
	out := turns{}
	for _, d := range devices {
		out[d.Info().Key()] = &sync.Mutex{}
	}
	return out
}

// take waits for the disk's turn; what it gives ends it.
func (t turns) take(d Device) (done func()) {
	turn := t[d.Info().Key()]
	turn.Lock()
	return turn.Unlock
}
