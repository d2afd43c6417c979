package agentapi

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// mostAddresses bounds the addresses that are remembered. Where more fail at once, all are forgotten: what is guessed at has
// 256 random bits, and the limit only keeps the log and the processors free.
const mostAddresses = 8192

// limiter bounds failed attempts by client address: a burst, then one each refill. All that is kept of an address is the time
// at which its burst is whole again.
type limiter struct {
	mu     sync.Mutex
	burst  time.Duration
	refill time.Duration
	most   int
	whole  map[netip.Prefix]time.Time
}

func newLimiter(burst int, refill time.Duration, most int) *limiter {
	return &limiter{burst: time.Duration(burst) * refill, refill: refill, most: most, whole: map[netip.Prefix]time.Time{}}
}

// wait is how long an address must wait before its next attempt; zero: it may try now.
func (l *limiter) wait(address netip.Prefix, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	whole, known := l.whole[address]
	if !known || !whole.After(now) {
		return 0
	}
	return max(whole.Add(l.refill).Sub(now)-l.burst, 0)
}

// spend counts one failed attempt.
func (l *limiter) spend(address netip.Prefix, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := l.whole[address]
	if from.Before(now) {
		from = now
	}
	if len(l.whole) >= l.most {
		clear(l.whole)
	}
	l.whole[address] = from.Add(l.refill)
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
