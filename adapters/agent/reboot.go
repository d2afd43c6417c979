package agent

import (
	"context"

	"github.com/better-compute/metal/domain/agentcommand"
)

// reboot restarts the machine once its result has reached the gateway.
func (m machine) reboot(_ context.Context, o Order) (any, func(context.Context) error, error) {
	if _, err := decode[agentcommand.Reboot](o); err != nil {
		return nil, nil, err
	}
	return none{}, m.Machine.Reboot, nil
}
