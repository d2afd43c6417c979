package agentapi

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/better-compute/metal/domain/bootlease"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
)

const (
	// bootPoll is how long a poll of an agent that serves network boot stays open at most: what keeps the lease alive.
	bootPoll = 2 * time.Second
	// leaseTick is how often it is looked in memory whether a lease is to be written.
	leaseTick = 500 * time.Millisecond
	// renewAfter is the least time between two writes of a lease that goes on.
	renewAfter = 2500 * time.Millisecond
	// offerLife is for how long after its contact an agent is given a lease: longer than its polls are apart.
	offerLife = 3 * bootPoll
	// standby is for how long an order of a site waits for the agent with the boot lease before another may have it.
	standby = 2 * time.Second
)

// leases is who serves network boot at the sites whose agents poll here, as far as this process knows. The rows that all
// gateways share decide; what was read of one is good until its time is over, as nobody may take it before.
type leases struct {
	mu    sync.Mutex
	sites map[id.Site]*bootSite
	kick  chan struct{} // of capacity 1: look now
	// doubts counts the events of the log after which a row was to be looked at anew.
	doubts int64
}

type bootSite struct {
	tenant id.Tenant
	bootlease.Standing
	state  bootlease.State // as the log has it
	looked bool            // both are known
	offers map[id.Agent]bootOffer
	// doubted is what doubts was at the last such event: no read that began before it is believed.
	doubted int64
}

type bootOffer struct {
	bootID string
	url    string
	at     time.Time
	used   bool // it has renewed a lease
}

func newLeases() *leases {
	return &leases{sites: map[id.Site]*bootSite{}, kick: make(chan struct{}, 1)}
}

// note takes what an agent of a site says in a poll: where it would serve network boot; empty: nowhere. It gives the holder where
// that has to hear of another boot server.
func (l *leases) note(who caller, bootID, server string, now time.Time) (holder id.Agent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sites[who.Site]
	if s == nil {
		s = &bootSite{tenant: who.Tenant, offers: map[id.Agent]bootOffer{}}
		s.Site = who.Site
		l.sites[who.Site] = s
	}
	before := s.offers[who.ID]
	if server == "" {
		delete(s.offers, who.ID)
	} else {
		s.offers[who.ID] = bootOffer{bootID: bootID, url: server, at: now}
	}
	if _, due := s.due(now); due || !s.looked {
		l.look()
	}
	if server != before.url {
		return s.Agent
	}
	return id.Agent{}
}

// gone forgets the offer of a poll whose agent has hung up, unless it has polled anew since.
func (l *leases) gone(who caller, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.sites[who.Site]; s != nil && s.offers[who.ID].at.Equal(at) {
		delete(s.offers, who.ID)
	}
}

func (l *leases) look() {
	select {
	case l.kick <- struct{}{}:
	default: // it looks already
	}
}

// due is the lease that is to be written for an agent of the site, if any is.
func (s *bootSite) due(now time.Time) (bootlease.Lease, bool) {
	if !s.looked {
		return bootlease.Lease{}, false
	}
	if s.Held(now) {
		o, here := s.offers[s.Agent]
		if !here || o.bootID == s.BootID && (o.used || s.Until.Sub(now) > bootlease.TTL-renewAfter) {
			return bootlease.Lease{}, false
		}
		return s.Claimed(s.Agent, o.bootID, now)
	}
	a, o := s.candidate(now)
	if id.IsZero(a) {
		return bootlease.Lease{}, false
	}
	return s.Claimed(a, o.bootID, now)
}

// candidate is the agent that takes a lease which nobody has: the one that had it, for it has the boot entries; else the one
// that was heard of last.
func (s *bootSite) candidate(now time.Time) (best id.Agent, found bootOffer) {
	for a, o := range s.offers {
		switch {
		case now.Sub(o.at) > offerLife:
			delete(s.offers, a)
		case a == s.Agent:
			return a, o
		case o.at.After(found.at):
			best, found = a, o
		}
	}
	return best, found
}

// work is what there is to do: leases to write, sites to look at, and holders of which the log does not tell yet.
func (l *leases) work(now time.Time) (next []bootlease.Lease, look, fresh []id.Site, untold []bootlease.Taken) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at, s := range l.sites {
		if !s.looked {
			look = append(look, at)
			if !s.state.Exists() {
				fresh = append(fresh, at)
			}
			continue
		}
		if lease, due := s.due(now); due {
			next = append(next, lease)
		} else if _, here := s.offers[s.Agent]; here && s.Held(now) && !s.state.With(s.Agent, s.Term) {
			untold = append(untold, bootlease.Taken{Site: at, Tenant: s.tenant, Agent: s.Agent, Term: s.Term, At: now.UTC()})
		}
	}
	return next, look, fresh, untold
}

// moment is what set is told of a read that begins now.
func (l *leases) moment() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.doubts
}

// set takes what was read of a site since a moment, and gives the agent here that may learn from it that it has the lease. What the log
// has told to look at anew meanwhile was perhaps read before: it is read again.
func (l *leases) set(read bootlease.Standing, since int64, now time.Time) (holder id.Agent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sites[read.Site]
	if s == nil || s.doubted > since || s.looked && read.Revision < s.Revision {
		return id.Agent{}
	}
	switch { // a table that was lost, or restored, knows less than the log: terms go on from there
	case read.Revision == 0:
		read.Agent, read.Term = s.state.Agent, s.state.Term
	case read.Term < s.state.Term && read.Agent == s.state.Agent:
		read.Term = s.state.Term
	case read.Term < s.state.Term:
		read.Term = s.state.Term + 1
	}
	first := !s.looked
	s.Standing, s.looked = read, true
	o, here := s.offers[s.Agent]
	if !here || !s.Held(now) {
		return id.Agent{}
	}
	o.used = true
	s.offers[s.Agent] = o
	if first {
		return s.Agent
	}
	return id.Agent{}
}

// tell takes what the log has of a site; what is older than what is known changes nothing.
func (l *leases) tell(state bootlease.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.sites[state.Site]; s != nil && state.Term >= s.state.Term {
		s.state = state
	}
}

// follow folds an event of the log. After one that this process did not bring about the row is looked at again.
func (l *leases) follow(e event.Recorded) (holder id.Agent) {
	known, ok := e.Event.(bootlease.Event)
	at, err := id.Parse[id.Site](e.Stream.ID())
	if !ok || err != nil {
		return id.Agent{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sites[at]
	if s == nil {
		return id.Agent{}
	}
	switch known := known.(type) {
	case bootlease.Taken:
		if known.Term < s.state.Term {
			return id.Agent{}
		}
		s.looked = s.looked && s.Agent == known.Agent && s.Term == known.Term
	case bootlease.Released:
		s.looked = s.looked && s.Until.Before(known.At)
	case bootlease.Completed:
		if known.Term != s.state.Term {
			return id.Agent{}
		}
	}
	s.state = bootlease.Evolve(s.state, known)
	if !s.looked {
		l.doubts++
		s.doubted = l.doubts
		l.look()
	}
	return s.Agent
}

// release is the lease that an agent gives back, if it has it.
func (l *leases) release(who caller, now time.Time) (bootlease.Lease, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sites[who.Site]
	if s == nil || !s.looked {
		return bootlease.Lease{}, false
	}
	return s.Released(who.ID, now)
}

// serving is how an agent stands to its site's boot lease.
type serving struct {
	holds    bool
	complete bool
	term     int64
	servers  string // with commas between them
}

func (l *leases) serving(who caller, bootID string, now time.Time) (as serving, of bootlease.Standing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sites[who.Site]
	if s == nil || !s.looked {
		return serving{}, bootlease.Standing{}
	}
	as.holds = s.Window(who.ID, bootID, now) > 0 && s.state.With(who.ID, s.Term)
	if as.holds {
		as.term, as.complete, as.servers = s.Term, s.state.Complete, strings.Join(s.servers(), ",")
	}
	return as, s.Standing
}

// servers are the boot servers of the site: those that all gateways know, and those whose agents have just come here.
func (s *bootSite) servers() []string {
	all := slices.Clone(s.Servers)
	for _, o := range s.offers {
		if !slices.Contains(all, o.url) {
			all = append(all, o.url)
		}
	}
	slices.Sort(all)
	return all
}

// turn is what of its site's orders an agent may have now. What network boot is told is for the holder of the boot lease; of
// the rest it is asked first.
func (l *leases) turn(who caller, bootID string, now time.Time) turn {
	as, _ := l.serving(who, bootID, now)
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sites[who.Site]
	other := s != nil && s.state.Exists() && !s.state.Released && s.state.Agent != who.ID && s.Held(now)
	return turn{boots: as.holds, second: other}
}

// holding is at how many sites an agent that polls here has the boot lease, for meters.
func (l *leases) holding(now time.Time) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sites {
		if _, here := s.offers[s.Agent]; here && s.looked && s.Held(now) {
			n++
		}
	}
	return n
}
