// Package bootlease is who serves network boot at a site: of several agents exactly one, which holds the boot lease.
//
// Lease is the lease itself, a row that the gateways share and that is kept alive by what its holder asks anyway: it is no
// history. State is what the log keeps of it: who took it, when its holder had every boot entry of the site, and who gave it
// back.
package bootlease

import (
	"time"

	"github.com/better-compute/metal/domain/id"
)

const (
	// TTL is how long after its holder's last contact a lease goes to another agent.
	TTL = 10 * time.Second
	// Guard is by how much earlier the holder stops by its own clock: what clocks may run apart in TTL, and gateways disagree
	// about the time.
	Guard = time.Second
)

// Lease is the boot lease of a site as it was read.
type Lease struct {
	Site     id.Site
	Agent    id.Agent // zero: nobody ever had it
	BootID   string   // of the holder
	Term     int64    // raised whenever another agent takes it
	Until    time.Time
	Revision int64 // of the row: whoever writes says what it has read
}

// Standing is how network boot stands at a site.
type Standing struct {
	Lease
	Servers []string // URLs of the boot servers of the site's connected agents, also of those without the lease
}

// Held reports whether somebody has the lease.
func (l Lease) Held(now time.Time) bool { return !id.IsZero(l.Agent) && now.Before(l.Until) }

// Claimed is the lease after an agent that serves network boot was heard of, and whether it is that agent's now: the holder
// renews it, anybody takes one that is over. A later boot of the holder goes on with it: the session of an agent is one boot's
// only. What a holder was promised is never made shorter.
func (l Lease) Claimed(a id.Agent, bootID string, now time.Time) (Lease, bool) {
	switch {
	case l.Agent == a:
	case l.Held(now):
		return l, false
	default:
		l.Agent, l.Until = a, time.Time{}
		l.Term++
	}
	l.BootID = bootID
	if until := now.Add(TTL); until.After(l.Until) {
		l.Until = until
	}
	return l, true
}

// Released is the lease after an agent has said that it no longer serves, and whether that changed anything.
func (l Lease) Released(a id.Agent, now time.Time) (Lease, bool) {
	if l.Agent != a || !l.Held(now) {
		return l, false
	}
	l.Until = now
	return l, true
}

// Window is for how long after it has asked something a boot of an agent may serve, having asked no later than a moment of
// this clock. Zero: not at all; nor for what was asked so long ago that clocks may have run further apart than the guard allows. As
// it is a length of time, it holds by the agent's clock whatever time that shows.
func (l Lease) Window(a id.Agent, bootID string, asked time.Time) time.Duration {
	window := l.Until.Sub(asked) - Guard
	if l.Agent != a || l.BootID != bootID || id.IsZero(a) || window > 2*TTL {
		return 0
	}
	return max(window, 0)
}
