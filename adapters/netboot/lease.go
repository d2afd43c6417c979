package netboot

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/better-compute/metal/domain/fault"
)

// Lease says whether this server may answer machines now: of several at one site one does. It lapses by this computer's own
// clock, so that a server that is cut off from the control plane has stopped before another one begins. A nil *Lease is a
// server's that is alone. Safe for concurrent use.
type Lease struct {
	now func() time.Time

	mu       sync.Mutex
	until    time.Time
	complete bool
	servers  []string
}

// NewLease is one that is not held; now is the clock.
func NewLease(now func() time.Time) *Lease { return &Lease{now: now} }

// Hold holds the lease until a time. Complete says that every boot entry of the site is here; servers are the URLs of all of
// the site's boot servers.
func (l *Lease) Hold(until time.Time, complete bool, servers []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until, l.complete, l.servers = until, complete, servers
}

// Lose gives it up.
func (l *Lease) Lose() { l.Hold(time.Time{}, false, nil) }

// Held reports whether machines are answered. A clock that was set forward ends it early; one that was set back does not make
// it longer, as the monotonic one counts too.
func (l *Lease) Held() bool {
	if l == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held()
}

func (l *Lease) held() bool {
	now := l.now()
	return now.Before(l.until) && now.Round(0).Before(l.until.Round(0))
}

// knows reports whether a machine without an entry here has none at all.
func (l *Lease) knows() bool {
	if l == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held() && l.complete
}

// sites are where machines find a boot server of the site: at own first, then at the others.
func (l *Lease) sites(own string) string {
	if l == nil {
		return own
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	all := []string{own}
	for _, s := range l.servers {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return strings.Join(all, siteSeparator)
}

// siteSeparator is between the URLs of metal.site.
const siteSeparator = ","

// Sites are the boot servers that a machine may ask, as Boot.Site lists them.
func Sites(text string) []string { return strings.Split(text, siteSeparator) }

// errNotServing is what a machine is told that asks a server which may not answer. It is no "go on to the next boot device":
// whether somebody wants the machine, only the server with the lease knows.
func errNotServing() error {
	return fault.New(fault.Unavailable, "another boot server of this site answers machines now, or none does yet").
		WithRemedy("ask again in a moment, or ask the site's other boot servers")
}
