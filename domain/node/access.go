package node

import (
	"cmp"

	"github.com/better-compute/metal/domain/fault"
)

// BMCChanged says how the machine's controller is reached from now on: at which address, with which credentials, trusted how.
type BMCChanged struct {
	BMC BMC `json:"bmc"`
}

// EventType is the stored name.
func (BMCChanged) EventType() string { return "node.bmc.changed" }

func (BMCChanged) nodeEvent() {}

// changeBMC takes new credentials and another trust at any time: a step that fails for want of them then succeeds. The address
// changes only while nothing is under way. A certificate that is pinned stays so at another address, and the machine is
// from then on found by its serial number or UUID: whoever answers there must be the same machine.
func changeBMC(s State, to BMC) ([]Event, error) {
	switch {
	case s.BMC == nil || s.Provision == Retired:
		return nil, fault.New(fault.InvalidState, "the node has no BMC to change").WithDetail("state", string(s.Provision))
	case *s.BMC == to:
		return nil, nil
	case s.BMC.Address == to.Address:
		return []Event{BMCChanged{to}}, nil
	case s.Workflow != nil:
		return nil, busy(s)
	case s.PowerAction != "":
		return nil, fault.New(fault.Conflict, "power %s is under way", s.PowerAction).WithRemedy("wait until it has ended")
	}
	events := []Event{BMCChanged{to}}
	if known := s.Hardware.OutOfBand; known != nil {
		if name := cmp.Or(known.Serial, known.UUID); name != "" && name != s.Learned.System {
			events = append(events, BMCLearned{System: name})
		}
	}
	return events, nil
}
