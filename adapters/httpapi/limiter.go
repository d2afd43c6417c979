package httpapi

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"time"
)

// The bounds of failed attempts: a burst, then one each refill, by client address.
const (
	attemptBurst  = 20
	attemptRefill = time.Second
	mostAddresses = 8192
)

// limiter is a token bucket for each client address, the least recently used forgotten first.
type limiter struct {
	mu      sync.Mutex
	burst   float64
	refill  time.Duration
	most    int
	order   *list.List // of *bucket, the most recently used first
	buckets map[netip.Prefix]*list.Element
}

type bucket struct {
	address netip.Prefix
	left    float64
	at      time.Time
}

func newLimiter(burst int, refill time.Duration, most int) *limiter {
	return &limiter{
		burst: float64(burst), refill: refill, most: most,
		order: list.New(), buckets: map[netip.Prefix]*list.Element{},
	}
}

// wait is how long an address must wait before its next attempt; zero: it may try now.
func (l *limiter) wait(address netip.Prefix, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	el, known := l.buckets[address]
	if !known {
		return 0
	}
	b := el.Value.(*bucket)
	l.fill(b, now)
	if b.left >= 1 {
		return 0
	}
	return time.Duration((1 - b.left) * float64(l.refill))
}

// spend counts one failed attempt.
func (l *limiter) spend(address netip.Prefix, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	el, known := l.buckets[address]
	if !known {
		el = l.order.PushFront(&bucket{address: address, left: l.burst, at: now})
		l.buckets[address] = el
	}
	l.order.MoveToFront(el)
	b := el.Value.(*bucket)
	l.fill(b, now)
	b.left = max(0, b.left-1)
	for l.order.Len() > l.most {
		oldest := l.order.Back()
		l.order.Remove(oldest)
		delete(l.buckets, oldest.Value.(*bucket).address)
	}
}

func (l *limiter) fill(b *bucket, now time.Time) {
	if passed := now.Sub(b.at); passed > 0 {
		b.left = min(l.burst, b.left+float64(passed)/float64(l.refill))
		b.at = now
	}
}

// clientAddress is whom failed attempts are counted against: an IPv4 address, or the /64 of an IPv6 address, which one
// client holds whole. Anything else, such as a unix socket, is one client.
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
