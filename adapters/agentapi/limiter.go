package agentapi

import (
	"math"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/better-compute/metal/domain/fault"
)

// mostLimited bounds what a limiter remembers. Where there is more, all is forgotten: what is guessed at has 256 random bits,
// and a limit only keeps the log and the processors free.
const mostLimited = 8192

// limiter bounds what each of many may do: a burst, then one each refill. All that is kept of one is the time at which its
// burst is whole again.
type limiter[K comparable] struct {
	mu     sync.Mutex
	burst  time.Duration
	refill time.Duration
	whole  map[K]time.Time
}

func newLimiter[K comparable](burst int, refill time.Duration) *limiter[K] {
	return &limiter[K]{burst: time.Duration(burst) * refill, refill: refill, whole: map[K]time.Time{}}
}

// check is RATE_LIMITED where who has to wait.
func (l *limiter[K]) check(who K, now time.Time, what string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	whole, known := l.whole[who]
	if !known || !whole.After(now) {
		return nil
	}
	wait := whole.Add(l.refill).Sub(now) - l.burst
	if wait <= 0 {
		return nil
	}
	return fault.New(fault.RateLimited, "%s", what).WithDetail(retryAfter, int(math.Ceil(wait.Seconds())))
}

// spend counts one.
func (l *limiter[K]) spend(who K, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := l.whole[who]
	if from.Before(now) {
		from = now
	}
	if len(l.whole) >= mostLimited {
		clear(l.whole)
	}
	l.whole[who] = from.Add(l.refill)
}

// clientAddress is whom failed attempts are counted against: an IPv4 address, or the /64 of an IPv6 address, which one
// client holds whole. Anything else is one client.
func clientAddress(remote string) netip.Prefix {
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
