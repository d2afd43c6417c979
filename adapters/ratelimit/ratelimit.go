// Package ratelimit bounds what each of many may do.
package ratelimit

import (
	"container/list"
	"math"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/better-compute/metal/domain/fault"
)

// Limiter lets each do a burst at once, then one each refill. The least recently used are forgotten where there are more than it
// remembers. A clock that is set back makes nobody wait for longer. It is safe for concurrent use.
type Limiter[K comparable] struct {
	mu     sync.Mutex
	burst  time.Duration
	refill time.Duration
	most   int
	order  *list.List // of *spent[K], the most recently used first
	known  map[K]*list.Element
}

// spent is what one has used of its burst, as a length of time: how long at a moment it took until the burst were whole again.
type spent[K comparable] struct {
	who  K
	used time.Duration
	at   time.Time
}

// settle brings it to a moment.
func (s *spent[K]) settle(now time.Time) {
	if passed := now.Sub(s.at); passed > 0 {
		s.used = max(0, s.used-passed)
	}
	s.at = now
}

// New makes a limiter that remembers so many at the most.
func New[K comparable](burst int, refill time.Duration, most int) *Limiter[K] {
	return &Limiter[K]{
		burst: time.Duration(burst) * refill, refill: refill, most: most, order: list.New(), known: map[K]*list.Element{},
	}
}

// Check is RATE_LIMITED, with fault.RetryAfter, where who has to wait.
func (l *Limiter[K]) Check(who K, now time.Time, what string) error {
	wait := l.wait(who, now)
	if wait <= 0 {
		return nil
	}
	return fault.New(fault.RateLimited, "%s", what).WithDetail(fault.RetryAfter, int(math.Ceil(wait.Seconds())))
}

func (l *Limiter[K]) wait(who K, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	el, known := l.known[who]
	if !known {
		return 0
	}
	s := el.Value.(*spent[K])
	s.settle(now)
	return s.used + l.refill - l.burst
}

// Spend counts one.
func (l *Limiter[K]) Spend(who K, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	el, known := l.known[who]
	if !known {
		el = l.order.PushFront(&spent[K]{who: who, at: now})
		l.known[who] = el
	}
	l.order.MoveToFront(el)
	s := el.Value.(*spent[K])
	s.settle(now)
	s.used = min(s.used+l.refill, l.burst) // where several were let in at once: nobody waits for longer than for the next
	if l.order.Len() > l.most {
		oldest := l.order.Back()
		l.order.Remove(oldest)
		delete(l.known, oldest.Value.(*spent[K]).who)
	}
}

// Address is whom a client's attempts are counted against: an IPv4 address, or the /64 of an IPv6 address, which one client
// holds whole. Anything else, such as a unix socket, is one client.
func Address(remote string) netip.Prefix {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Prefix{}
	}
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	prefix, err := addr.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}
