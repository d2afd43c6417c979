// Package ramdisk is the agent as the first process of a machine that was booted from the network to be worked on. It brings
// the machine up, joins, and carries out what it is ordered. Without an order it waits, and touches nothing.
package ramdisk

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/better-compute/metal/adapters/agent"
	"github.com/better-compute/metal/adapters/netboot"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
)

// lastWords is how long what went wrong stays on the screen before the machine starts anew.
const lastWords = time.Minute

// Life is the agent's way from a machine that is up to its end.
type Life struct {
	Settings Settings
	Machine  agent.Machine
	Version  string
	SetClock func(time.Time) // to the gateway's time
	Logger   *slog.Logger
	Backoff  agent.Backoff
}

// Run joins and carries out orders until ctx ends, the gateway refuses what the agent is, or the gateway was out of reach for
// too long while there was nothing to do.
func (l *Life) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := newWatchdog(l.Settings.RebootAfter)
	var watching sync.WaitGroup
	watching.Go(func() {
		if watch.expire(ctx) {
			cancel(fault.New(fault.Unavailable, "the gateway was out of reach for %v", l.Settings.RebootAfter))
		}
	})
	defer watching.Wait()
	defer cancel(nil)

	watching.Go(func() { l.learnTime(ctx) })
	token, err := l.token(ctx)
	if err != nil {
		return because(ctx, err)
	}
	err = agent.Run(ctx, agent.Options{
		Gateway: l.Settings.Gateway, CA: l.Settings.CA, Token: token, Role: agentcommand.RoleRamdisk, State: agent.MemoryState(),
		Machine: l.Machine, Version: l.Version, Room: 1, Logger: l.Logger, Backoff: l.Backoff,
		Kinds: watch.during(agent.MachineHandlers(l.deps())),
		Heard: func(server time.Time) {
			watch.heard()
			l.correct(server)
		},
	})
	return because(ctx, err)
}

// deps are what orders are carried out with: the boot servers of the command line may keep images.
func (l *Life) deps() agent.MachineDeps {
	return agent.MachineDeps{Machine: l.Machine, Sites: netboot.Sites(l.Settings.Site), Logger: l.Logger}
}

// because prefers the reason why ctx ended to what came of it.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// token fetches the join token that the boot's reference stands for, asking again while the site's agent is away.
func (l *Life) token(ctx context.Context) (string, error) {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		claims, err := l.Machine.Claims(ctx)
		if err == nil {
			var token string
			if token, err = netboot.FetchToken(ctx, client, l.Settings.Boot, claims.MACs, claims.ProductUUID); err == nil {
				return token, nil
			}
		}
		if !again(err) {
			return "", err
		}
		l.Logger.Warn("there is no join token yet", "error", err)
		if !pause(ctx, 2*time.Second) {
			return "", ctx.Err()
		}
	}
}

func again(err error) bool {
	switch fault.CodeOf(err) {
	case fault.Unavailable, fault.Internal, fault.RateLimited, fault.Timeout:
		return true
	}
	return false
}

// pause waits, and tells whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// watchdog notices that the gateway is out of reach. What runs is finished first: a wipe needs no gateway.
type watchdog struct {
	after time.Duration
	last  atomic.Pointer[time.Time]
	busy  atomic.Int64
}

func newWatchdog(after time.Duration) *watchdog {
	w := &watchdog{after: after}
	w.heard()
	return w
}

// heard notes that the gateway has answered. Times are compared by the monotonic clock: the other one is set on the way.
func (w *watchdog) heard() {
	now := time.Now()
	w.last.Store(&now)
}

// expire returns true once the gateway is out of reach for too long, or false when ctx ends.
func (w *watchdog) expire(ctx context.Context) bool {
	for {
		rest := w.after - time.Since(*w.last.Load())
		if w.busy.Load() > 0 {
			rest = w.after
		}
		if rest <= 0 {
			return true
		}
		if !pause(ctx, rest) {
			return false
		}
	}
}

// during counts what runs.
func (w *watchdog) during(kinds map[agentcommand.KindName]agent.Handler) map[agentcommand.KindName]agent.Handler {
	out := map[agentcommand.KindName]agent.Handler{}
	for name, handler := range kinds {
		out[name] = func(ctx context.Context, o agent.Order) (any, func(context.Context) error, error) {
			w.busy.Add(1)
			defer w.busy.Add(-1)
			defer w.heard() // the result has its time to arrive
			return handler(ctx, o)
		}
	}
	return out
}
