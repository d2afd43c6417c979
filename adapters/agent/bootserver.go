package agent

import (
	"context"
	"time"

	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/adapters/netboot"
)

// BootServer is the network boot that a site's agent would serve. It does while it holds the site's boot lease.
type BootServer struct {
	URL     string // as machines reach it
	Entries *netboot.Entries
	Lease   *netboot.Lease
}

// leasePoll is how long a poll of an agent with a boot server stays open: its polls keep the lease.
const leasePoll = 2 * time.Second

// offer is what a poll says.
func (b *BootServer) offer() *protocol.BootOffer {
	if b == nil {
		return nil
	}
	return &protocol.BootOffer{URL: b.URL}
}

// bootHeard takes what a poll that was sent at a time was answered. The time counts from there, by this computer's clock: how long
// the answer was on its way makes the lease no longer.
func (a *runner) bootHeard(answer *protocol.BootLease, asked time.Time) {
	b := a.Boot
	switch {
	case b == nil:
		return
	case answer == nil:
		if b.Lease.Held() {
			a.log.Warn("another agent of this site serves network boot now")
		}
		b.Lease.Lose()
		return
	}
	held := b.Lease.Held()
	if err := b.Entries.Begin(answer.Term); err != nil {
		a.log.Error("network boot is not served", "term", answer.Term, "error", err)
		b.Lease.Lose()
		return
	}
	b.Lease.Hold(asked.Add(time.Duration(answer.Seconds*float64(time.Second))), answer.Complete, answer.Servers)
	if !held {
		a.log.Info("this agent serves its site's network boot", "term", answer.Term, "complete", answer.Complete)
	}
}

// giveBootBack says that no machine is answered any more, so that another agent does at once.
func (a *runner) giveBootBack(ctx context.Context) {
	if a.Boot == nil || !a.Boot.Lease.Held() {
		return
	}
	a.Boot.Lease.Lose()
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	err := a.link.call(leaving, protocol.PathPoll, protocol.PollRequest{BootID: a.bootID, Doing: a.book.doing()}, nil, 2*time.Second)
	if err != nil {
		a.log.Debug("the boot lease can't be given back", "error", err) // it runs out
	}
}
