package ramdisk

import (
	"context"
	"time"

	"github.com/better-compute/metal/adapters/agent"
	"github.com/better-compute/metal/domain/fault"
)

const (
	// clockMayBeOff is what a clock may differ from the gateway's: an answer takes a while.
	clockMayBeOff = 2 * time.Second
	// timeAgain is the pause before a gateway that did not tell the time is asked again.
	timeAgain = 2 * time.Second
)

// learnTime sets the clock by what the gateway says, once. Until then a clock that is ahead keeps the agent out, which asks
// again. A server that is not the gateway is for the agent to tell of.
func (l *Life) learnTime(ctx context.Context) {
	for {
		told, err := agent.GatewayTime(ctx, l.Settings.Gateway, l.Settings.CA)
		if err == nil {
			l.correct(told)
			return
		}
		l.Logger.Debug("the time is not known yet", "error", err)
		if code := fault.CodeOf(err); code == fault.Unauthenticated || code == fault.InvalidConfig || !pause(ctx, timeAgain) {
			return
		}
	}
}

func (l *Life) correct(server time.Time) {
	if server.IsZero() || l.SetClock == nil {
		return
	}
	if off := time.Until(server); off > clockMayBeOff || off < -clockMayBeOff {
		l.Logger.Info("the clock is set to the gateway's", "off", off.Round(time.Second).String())
		l.SetClock(server)
	}
}
