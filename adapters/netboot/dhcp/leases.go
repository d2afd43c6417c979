package dhcp

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"
	"time"
)

// Lease is an address that a machine has, had, or was offered. One per MAC: firmware, iPXE and the OS of one machine call
// themselves differently, and get the same address all the same.
type Lease struct {
	MAC     string     `json:"mac,omitempty"` // empty: somebody else was found to use the address
	Address netip.Addr `json:"address"`
	Until   time.Time  `json:"until"`
	Bound   bool       `json:"bound"` // the machine took it, at some time
}

// Leases are a pool of addresses. A value of it is not safe for concurrent use.
type Leases struct {
	first, last netip.Addr
	reserved    map[netip.Addr]bool
	byMAC       map[string]*Lease
	byAddress   map[netip.Addr]*Lease
}

// NewLeases makes a pool of the addresses from first to last, without those reserved.
func NewLeases(first, last netip.Addr, reserved ...netip.Addr) *Leases {
	l := &Leases{
		first: first, last: last, reserved: map[netip.Addr]bool{}, byMAC: map[string]*Lease{}, byAddress: map[netip.Addr]*Lease{},
	}
	for _, a := range reserved {
		l.reserved[a] = true
	}
	return l
}

// Restore adds what All gave, as far as it is still of this pool.
func (l *Leases) Restore(leases []Lease) {
	for _, lease := range leases {
		if l.contains(lease.Address) && l.byAddress[lease.Address] == nil && (lease.MAC == "" || l.byMAC[lease.MAC] == nil) {
			l.put(lease)
		}
	}
}

// All lists the leases that were taken, by address.
func (l *Leases) All() []Lease {
	var out []Lease
	for _, lease := range l.byAddress {
		if lease.Bound {
			out = append(out, *lease)
		}
	}
	slices.SortFunc(out, func(a, b Lease) int { return a.Address.Compare(b.Address) })
	return out
}

// Has tells whether the machine has a lease, or had one that nobody else got since.
func (l *Leases) Has(mac string) bool {
	lease := l.byMAC[mac]
	return lease != nil && lease.Bound
}

// offerFor is how long an offered address is kept for the machine.
const offerFor = 30 * time.Second

// Offer finds an address for a machine: the one it has or had, the one it wants, one that nobody had yet, or the one that
// ran out first.
func (l *Leases) Offer(mac string, wants netip.Addr, now time.Time) (netip.Addr, bool) {
	until := now.Add(offerFor)
	if lease := l.byMAC[mac]; lease != nil {
		if lease.Until.Before(until) {
			lease.Until = until
		}
		return lease.Address, true
	}
	found := wants
	if !l.isFree(wants, mac, now) || l.byAddress[wants] != nil {
		found = l.find(mac, now)
	}
	if !found.IsValid() {
		return netip.Addr{}, false
	}
	l.put(Lease{MAC: mac, Address: found, Until: until})
	return found, true
}

// find begins at an address that depends on the machine, so that a pool which forgot gives the same ones again.
func (l *Leases) find(mac string, now time.Time) netip.Addr {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(mac)) // a hash takes everything
	size := number(l.last) - number(l.first) + 1
	start := hash.Sum32() % size
	var oldest *Lease
	for i := range size {
		a := addressOf(number(l.first) + (start+i)%size)
		lease := l.byAddress[a]
		switch {
		case l.reserved[a]:
		case lease == nil:
			return a
		case !now.Before(lease.Until) && (oldest == nil || lease.Until.Before(oldest.Until)):
			oldest = lease
		}
	}
	if oldest == nil {
		return netip.Addr{}
	}
	return oldest.Address
}

// Bind gives the machine the address until then. It is not ok if the address is not the pool's, or another machine's.
func (l *Leases) Bind(mac string, a netip.Addr, until, now time.Time) bool {
	if !l.isFree(a, mac, now) {
		return false
	}
	l.put(Lease{MAC: mac, Address: a, Until: until, Bound: true})
	return true
}

// Release ends a machine's lease. It stays on record, so that the machine gets the same address again.
func (l *Leases) Release(mac string, a netip.Addr, now time.Time) {
	if lease := l.byMAC[mac]; lease != nil && lease.Address == a {
		lease.Until = now
	}
}

// Forget takes back an offer that the machine did not take.
func (l *Leases) Forget(mac string) {
	if lease := l.byMAC[mac]; lease != nil && !lease.Bound {
		l.drop(lease)
	}
}

// Decline keeps away from an address that the machine was given and found somebody else to use.
func (l *Leases) Decline(mac string, a netip.Addr, until time.Time) bool {
	lease := l.byMAC[mac]
	if lease == nil || lease.Address != a {
		return false
	}
	l.put(Lease{Address: a, Until: until, Bound: true})
	return true
}

func (l *Leases) contains(a netip.Addr) bool {
	return a.Is4() && l.first.Compare(a) <= 0 && a.Compare(l.last) <= 0 && !l.reserved[a]
}

func (l *Leases) isFree(a netip.Addr, mac string, now time.Time) bool {
	lease := l.byAddress[a]
	return l.contains(a) && (lease == nil || lease.MAC == mac || !now.Before(lease.Until))
}

// put replaces what is known of the machine and of the address.
func (l *Leases) put(lease Lease) {
	l.drop(l.byAddress[lease.Address])
	if lease.MAC != "" {
		l.drop(l.byMAC[lease.MAC])
		l.byMAC[lease.MAC] = &lease
	}
	l.byAddress[lease.Address] = &lease
}

func (l *Leases) drop(lease *Lease) {
	if lease == nil {
		return
	}
	delete(l.byAddress, lease.Address)
	if lease.MAC != "" {
		delete(l.byMAC, lease.MAC)
	}
}

func number(a netip.Addr) uint32 {
	b := a.As4()
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

func addressOf(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// rangeMost is how many addresses a pool may have.
const rangeMost = 1 << 16

// CheckRange tells what is wrong with a pool's range on a network; nothing if it will do.
func CheckRange(first, last netip.Addr, network netip.Prefix) string {
	switch {
	case !first.Is4() || !last.Is4() || first.Compare(last) > 0:
		return "is not a range of IPv4 addresses such as 10.0.0.100-10.0.0.200"
	case !network.Contains(first) || !network.Contains(last):
		return "is not on the network " + cmp.Or(network.Masked().String(), "of the interface")
	case number(last)-number(first) >= rangeMost:
		return "has more than 65536 addresses"
	}
	base := number(network.Masked().Addr())
	broadcast := base | (1<<(32-network.Bits()) - 1)
	if network.Bits() < 31 && (number(first) == base || number(last) == broadcast) {
		return "has the network's own or its broadcast address"
	}
	return ""
}
