package agentapi

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/bootlease"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// offered takes the offer of a poll. An agent that had the lease and offers nothing any more gives it back.
func (g *Gateway) offered(ctx context.Context, who caller, in protocol.PollRequest, now time.Time) (server string) {
	if in.Boot != nil {
		server = serverURL(in.Boot.URL)
	}
	if holder := g.leases.note(who, in.BootID, server, now); !id.IsZero(holder) {
		g.queue.nudge(holder.String())
	}
	if server == "" {
		g.release(ctx, who, "it serves no network boot any more")
	}
	return server
}

// serverURL is a URL that machines may be told; empty: it is none.
func serverURL(text string) string {
	const most = 256
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return ""
	}
	if len(text) > most || strings.Contains(text, ",") || clean(text, most) != text {
		return ""
	}
	return text
}

// lease is what the answer to a poll says of network boot.
func (g *Gateway) lease(who caller, bootID string, asked time.Time) *protocol.BootLease {
	as, of := g.leases.serving(who, bootID, g.Clock())
	window := of.Window(who.ID, bootID, asked)
	if !as.holds || window <= 0 {
		return nil
	}
	return &protocol.BootLease{
		Term: as.term, Seconds: window.Seconds(), Complete: as.complete, Servers: strings.Split(as.servers, ","),
	}
}

// keepLeases writes the leases of the agents that poll here until ctx ends: those that are due in one statement, however many.
func (g *Gateway) keepLeases(ctx context.Context) {
	ticker := time.NewTicker(leaseTick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-g.leases.kick:
		}
		if err := g.moveLeases(ctx); err != nil && ctx.Err() == nil {
			g.Logger.Warn("boot leases can't be kept", "error", err)
			pause(ctx, awayPause)
		}
	}
}

// moveLeases does what is due, which may make more due.
func (g *Gateway) moveLeases(ctx context.Context) error {
	const rounds = 4
	for range rounds {
		next, look, fresh, untold := g.leases.work(g.Clock())
		if len(next)+len(look)+len(untold) == 0 {
			return nil
		}
		for _, at := range fresh {
			state, err := g.Service.BootLease(ctx, at)
			if err != nil && fault.CodeOf(err) != fault.NotFound {
				return err
			}
			state.Site = at
			g.leases.tell(state)
		}
		if len(next)+len(look) > 0 {
			if err := g.swapLeases(ctx, next, look); err != nil {
				return err
			}
		}
		for _, taken := range untold {
			if err := g.taken(ctx, taken); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *Gateway) swapLeases(ctx context.Context, next []bootlease.Lease, look []id.Site) error {
	const within = 3 * time.Second // what takes longer is tried again while it still helps
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	since := g.leases.moment()
	found, err := g.Presence.SwapBootLeases(ctx, next, look)
	if err != nil {
		return err
	}
	now := g.Clock()
	for _, s := range found {
		if holder := g.leases.set(s, since, now); !id.IsZero(holder) {
			g.queue.nudge(holder.String())
		}
	}
	return nil
}

// taken has the log know of a new holder, who is told only then.
func (g *Gateway) taken(ctx context.Context, facts bootlease.Taken) error {
	state, err := g.Service.OnBootLease(ctx, g.call(facts.Agent), facts.Site, bootlease.Take{Facts: facts})
	if err != nil {
		return err
	}
	g.leases.tell(state)
	g.Observer.BootLease("taken")
	g.Logger.Info("an agent serves network boot", "site", facts.Site, "agent", facts.Agent, "term", facts.Term)
	g.queue.nudge(facts.Agent.String())
	return nil
}

// release gives back the lease of an agent that says that it has stopped. Where that fails it runs out.
func (g *Gateway) release(ctx context.Context, who caller, reason string) {
	const tries = 3 // another gateway may have renewed it just now
	for range tries {
		next, held := g.leases.release(who, g.Clock())
		if !held {
			return
		}
		if err := g.swapLeases(context.WithoutCancel(ctx), []bootlease.Lease{next}, nil); err != nil {
			g.Logger.Warn("a boot lease can't be given back", "site", who.Site, "agent", who.ID, "error", err)
			return
		}
		if _, still := g.leases.release(who, g.Clock()); still {
			continue
		}
		_, err := g.Service.OnBootLease(context.WithoutCancel(ctx), g.call(who.ID), who.Site, bootlease.Release{Facts: bootlease.Released{
			Site: who.Site, Agent: who.ID, Term: next.Term, Reason: reason, At: g.Clock().UTC(),
		}})
		if err != nil {
			g.Logger.Warn("that a boot lease was given back can't be noted", "site", who.Site, "agent", who.ID, "error", err)
		}
		g.Observer.BootLease("released")
		g.leases.look()
		return
	}
}

// stale ends a boot order whose agent lost the boot lease while it was given out: the next holder never hears of it otherwise.
func (g *Gateway) stale(ctx context.Context, who caller, bootID string, command string) bool {
	if as, _ := g.leases.serving(who, bootID, g.Clock()); as.holds {
		return false
	}
	g.expire(ctx, []string{command}, bootID+"/", agentcommand.LeaseLost)
	return true
}
