package agentapi

import (
	"context"
	"time"

	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/bootlease"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/agentqueue"
)

const (
	followLimit = 1000
	followPause = time.Millisecond // on a busy log events gather for so long; after a quiet moment nothing waits
	awayPause   = 500 * time.Millisecond
	sweepPeriod = 500 * time.Millisecond
)

// followed is what the gateway reads of the log.
var followed = append(projections.Types(agent.Events, bootlease.Events), agentqueue.Consumes...)

// follow keeps the queue and the cache of agents level with the log until ctx ends.
func (g *Gateway) follow(ctx context.Context) {
	after, ok := g.load(ctx)
	if !ok {
		return
	}
	first := true
	for ctx.Err() == nil {
		looked := time.Now()
		events, head, err := g.Log.ReadAll(ctx, after, followed, followLimit)
		if err != nil {
			g.away(ctx, err)
			continue
		}
		g.read.Store(uint64(head)) // before what it makes stale is forgotten
		g.take(events)
		more := head > after && event.MayHaveMore(g.Log, head)
		after = head
		switch {
		case more:
			pause(ctx, followPause)
		case first: // the queue is as the log has it
			first = false
			close(g.loaded)
		default:
			if err := g.Log.Changed(ctx, after); err != nil {
				g.away(ctx, err)
			}
			pause(ctx, followPause-time.Since(looked))
		}
	}
}

// load starts from the read model.
func (g *Gateway) load(ctx context.Context) (event.Position, bool) {
	for {
		rows, at, err := agentqueue.All(ctx, g.DB)
		if err == nil {
			g.queue.reset(rows, g.Clock())
			return at, true
		}
		if ctx.Err() != nil {
			return 0, false
		}
		g.away(ctx, err)
	}
}

func (g *Gateway) away(ctx context.Context, err error) {
	if ctx.Err() == nil {
		g.Logger.Warn("the gateway can't follow the log", "error", err)
		pause(ctx, awayPause)
	}
}

func (g *Gateway) take(events []event.Recorded) {
	for _, e := range events {
		switch e.Stream.Category() {
		case agent.Category:
			g.known.forget(e.Stream.ID())
			g.queue.nudge(e.Stream.ID()) // its poll looks again whether it may go on
		case bootlease.Category:
			if holder := g.leases.follow(e); !id.IsZero(holder) {
				g.queue.nudge(holder.String())
			}
		}
	}
	g.queue.apply(events, g.Clock())
}

// sweep ends orders whose deadline has passed. While there are none it waits.
func (g *Gateway) sweep(ctx context.Context) {
	for await(ctx, g.queue.filled) && pause(ctx, sweepPeriod) {
		g.expire(ctx, g.queue.overdue(g.Clock()), "", "")
		g.queue.stir()
	}
}

// expire ends orders that nobody will finish. What can't be ended now is seen again by the next look.
func (g *Gateway) expire(ctx context.Context, ids []string, bootID, reason string) {
	for _, text := range ids {
		c, err := id.Parse[id.AgentCommand](text)
		if err != nil {
			continue
		}
		done, err := g.Service.ExpireAgentCommand(ctx, g.call(id.Agent{}), c, bootID, reason)
		switch {
		case err == nil:
			g.queue.handed(done.State, done.Position, g.Clock())
		case ctx.Err() != nil:
			return
		case fault.CodeOf(err) != fault.Conflict:
			g.Logger.Warn("an agent command can't be expired", "agentCommandId", text, "error", err)
		}
	}
}

// await waits for a value and tells whether it came before ctx ended.
func await(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// nudge leaves a value for whoever awaits one.
func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // one is there already
	}
}

// pause waits and tells whether the time passed before ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// live tells whether an agent command may still be worked on by a boot of an agent, by its stream.
func live(s agentcommand.State, a id.Agent, bootID string) bool {
	return !s.Status.Settled() && s.Agent == a && s.BootID == bootID
}
