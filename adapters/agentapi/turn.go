package agentapi

import (
	"time"

	"github.com/better-compute/metal/domain/agentcommand"
)

// turn is what of its site's orders an agent may have: those about network boot are for the agent with the boot lease alone, and
// it comes first for the others, while it has room.
type turn struct {
	boots  bool // it has the lease
	second bool // another agent has it
}

// from is since when an agent may have an order that nobody has; not ok: it may not.
func (t turn) from(o *order) (from time.Time, ok bool) {
	switch {
	case agentcommand.KindName(o.row.Kind).Boots():
		return o.since, t.boots
	case t.second && !o.since.IsZero():
		return o.since.Add(standby), true
	}
	return o.since, true
}
