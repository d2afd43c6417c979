package ramdisk

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

// The parts of a frame of LLDP (IEEE 802.1AB) that are read.
const (
	lldpEtherType       = 0x88cc
	lldpEnd             = 0
	lldpChassisID       = 1
	lldpPortID          = 2
	lldpTTL             = 3
	lldpPortDescription = 4
	lldpSystemName      = 5

	ethernetHeader = 14
	lldpTextMost   = 255 // bytes, as the standard has it
)

// The kinds of names of a chassis and a port that are no text. The two lists of the standard differ.
const (
	chassisMAC     = 4
	chassisAddress = 5
	portMAC        = 3
	portAddress    = 4
)

// parseLLDP reads a frame of Ethernet. Anybody on the wire may have written it: what does not follow the standard is no
// neighbour. A neighbour that says goodbye has no time to live.
func parseLLDP(frame []byte) (out node.LLDPNeighbor, ttl time.Duration, ok bool) {
	if len(frame) < ethernetHeader || binary.BigEndian.Uint16(frame[ethernetHeader-2:]) != lldpEtherType {
		return out, 0, false
	}
	rest := frame[ethernetHeader:]
	for n := 0; ; n++ {
		if len(rest) < 2 {
			return out, 0, false // it has to say where it ends
		}
		head := binary.BigEndian.Uint16(rest)
		kind, length := int(head>>9), int(head&0x1ff)
		if len(rest) < 2+length {
			return out, 0, false
		}
		value := rest[2 : 2+length]
		rest = rest[2+length:]
		if n < 3 && kind != n+1 {
			return out, 0, false // these come first, in this order
		}
		switch kind {
		case lldpEnd:
			return out, ttl, out.ChassisID != "" && out.PortID != ""
		case lldpChassisID:
			out.ChassisID = lldpID(value, chassisMAC, chassisAddress)
		case lldpPortID:
			out.PortID = lldpID(value, portMAC, portAddress)
		case lldpTTL:
			if length < 2 {
				return out, 0, false
			}
			ttl = time.Duration(binary.BigEndian.Uint16(value)) * time.Second
		case lldpPortDescription:
			out.PortDescription = lldpText(value)
		case lldpSystemName:
			out.SystemName = lldpText(value)
		}
	}
}

// lldpID is a name of one of several kinds.
func lldpID(value []byte, mac, address byte) string {
	if len(value) < 2 {
		return ""
	}
	kind, name := value[0], value[1:]
	switch {
	case kind == mac && len(name) == 6:
		return net.HardwareAddr(name).String()
	case kind == address && (name[0] == 1 || name[0] == 2): // IPv4, IPv6
		if a, ok := netip.AddrFromSlice(name[1:]); ok {
			return a.String()
		}
		return ""
	case kind == mac || kind == address:
		return hex.EncodeToString(name[:min(len(name), lldpTextMost/2)])
	}
	return lldpText(name)
}

// lldpText is a text as far as it can be printed on one line.
func lldpText(value []byte) string {
	text := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(value), ""))
	return fault.Bounded(strings.TrimSpace(text), lldpTextMost)
}

// neighbors are the switches' ports that the machine's are plugged into, as far as they were heard.
type neighbors struct {
	wait time.Duration // from when a link is up, for one that has not said anything
	now  func() time.Time

	mu    sync.Mutex
	ports map[string]*heard
	news  chan struct{} // closed when anything changes
}

// heard is what is known at one port.
type heard struct {
	since    time.Time // when listening began on a link that is up; zero: it is down
	neighbor *node.LLDPNeighbor
	until    time.Time
}

func newNeighbors(wait time.Duration) *neighbors {
	return &neighbors{wait: wait, now: time.Now, ports: map[string]*heard{}, news: make(chan struct{})}
}

func (n *neighbors) changed() {
	close(n.news)
	n.news = make(chan struct{})
}

// link notes whether a port that is listened at has a carrier. What was at the end of another cable is forgotten.
func (n *neighbors) link(port string, up bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch known := n.ports[port]; {
	case !up && known == nil, up && known != nil:
	case up:
		n.ports[port] = &heard{since: n.now()}
		n.changed()
	default:
		delete(n.ports, port)
		n.changed()
	}
}

// frame takes what came in at a port.
func (n *neighbors) frame(port string, frame []byte) {
	neighbor, ttl, ok := parseLLDP(frame)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.ports[port]
	if known == nil { // its carrier was not noticed yet
		known = &heard{since: n.now()}
		n.ports[port] = known
	}
	known.neighbor, known.until = &neighbor, n.now().Add(ttl)
	if ttl == 0 {
		known.neighbor = nil
	}
	n.changed()
}

// await waits until every port whose link is up has heard its neighbour, or has listened for long enough.
func (n *neighbors) await(ctx context.Context) {
	for {
		n.mu.Lock()
		news, rest := n.news, time.Duration(0)
		for _, p := range n.ports {
			if p.neighbor == nil {
				rest = max(rest, n.wait-n.now().Sub(p.since))
			}
		}
		n.mu.Unlock()
		if rest <= 0 {
			return
		}
		timer := time.NewTimer(rest)
		select {
		case <-ctx.Done():
		case <-news:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// add puts what was heard to the ports of an inventory.
func (n *neighbors) add(nics []node.NIC) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range nics {
		if p := n.ports[nics[i].Name]; p != nil && p.neighbor != nil && n.now().Before(p.until) {
			told := *p.neighbor
			nics[i].LLDP = &told
		}
	}
}
